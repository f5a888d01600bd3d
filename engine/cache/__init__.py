"""Who has which KV block: a paged pool on the device, an index of prefixes, and slower tiers below.

A block is in one place at a time, and whoever can reach it by its text may use it.

    kv_cache    what the scheduler and the runner call
    block       what it hands out: matches and block tables
    index       chains of cached blocks, and which of them may be evicted
    tiers       how blocks move between the tiers, and how they are lost
    pool, host, disk    where KV lies
    events      what happened, in vLLM's words
    stats       what is where, and what was counted
    check       conservation
"""
