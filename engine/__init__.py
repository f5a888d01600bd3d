"""The reference engine: a small LLM server with real contention, every tier of a KV cache, and faults that are known.

It is hitmap's ground truth and its demo. It knows the vocabulary (cachemodel) and the wire (OTLP, KV events over
ZeroMQ, Prometheus text) and nothing of those who read it.

    model/      tokens in, logits out: decoder, weights, tokenizer, sampling
    cache/      who has which KV block: pool, prefix index, tiers
    core/       one thread, one device: scheduler and runner
    serving/    HTTP and gRPC in front of it
    telemetry/  spans, metrics and KV events of what it did
    faults/     what goes wrong on purpose
"""
