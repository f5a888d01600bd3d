"""What each server could have served of the prompts it got, in steps from what it did serve.

All of one request, its server's alignment law applied, each no less than the one before:

    achieved    what was served
    own         what the cache that got it held at that moment, on any tier, or was computing for a request before it
    reachable   what any replica held at that moment, under the request's own salt and adapter
    attainable  what had ever been sent before, to any server, under the request's own salt and adapter

`reachable - own` is the *routing loss*: what another choice of replica, and nothing else, would have served. Loads
that failed or were declined lie below `own`; what had been evicted or cleared everywhere lies above `reachable`; and a
low `attainable` is a cold workload, which neither router nor cache can mend. Where the telemetry cannot tell, the lower
figure is taken. Public reports that ask for this: dynamo PR 14776 and 11589, sglang PR 39326, vllm issue 11477.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from analysis.alignment import served
from analysis.misses.model import NOT_TOLD, Chains, Events, Flags, Ints, Ladder, Sent
from analysis.misses.report_model import CeilingLine
from analysis.misses.sent_before import sent_before
from cachemodel.alignment import Alignment
from cachemodel.alignment_fit import Fit

_OWN, _REACHABLE = 2, 3  # rungs of the ladder: not_loaded, elsewhere


def ceilings(
    chains: Chains,
    events: Events,
    blocks_sent: Sent,
    ladder: Ladder,
    fits: Mapping[str, Fit | None],
    asked: Flags | None = None,
) -> list[CeilingLine]:
    """A line for each server with requests whose chain is known, in the order of chains.servers.

    ladder: of these chains. fits: by server, what its alignment was fitted from; none for a law taken from elsewhere.
    asked: which of the requests (n,) to count; all where not given.
    """
    counted = chains.known if asked is None else chains.known & asked
    sent = sent_before(chains, blocks_sent)
    own, reachable = _held(ladder, _OWN), _held(ladder, _REACHABLE)
    telling = {
        server
        for (server, _), joined in zip(events.holders, events.joined, strict=True)
        if joined != NOT_TOLD
    }
    lines = []
    for index, server in enumerate(chains.servers):
        rows = (chains.server == index) & counted
        law = law_of(chains, ladder, index) if rows.any() else None
        if law is None:
            continue
        held = (own[rows], reachable[rows]) if server in telling else None
        lines.append(
            _line(
                server, law, fits.get(server), chains.prompt[rows], ladder.served[rows, 0], sent[rows], held
            )
        )
    return lines


def law_of(chains: Chains, ladder: Ladder, server: int) -> Alignment | None:
    """The alignment law of a server, by its index: as fitted, else its blocks alone; None where it has no blocks."""
    fitted = ladder.alignments.get(chains.servers[server])
    if fitted is not None:
        return fitted
    sizes = chains.block_size[(chains.server == server) & chains.known]
    largest = int(sizes.max(initial=0))
    return Alignment(largest) if largest > 0 else None


def too_long_units(chains: Chains, ladder: Ladder) -> list[str]:
    """A sentence for each server most of whose prompts are too short to hit (vllm issue 51198, vllm-ascend 16270)."""
    found = []
    for index, server in enumerate(chains.servers):
        prompts = chains.prompt[(chains.server == index) & (chains.prompt > 0)]
        law = law_of(chains, ladder, index)
        if law is None or not len(prompts):
            continue
        short = int(np.count_nonzero(served(law, prompts, prompts) == 0))
        if 2 * short > len(prompts):
            needed = (1 + law.dropped_units) * law.unit + law.computed_tokens
            found.append(
                f"{server}: {short:,} of {len(prompts):,} prompts can never hit: that takes {needed:,} tokens or more,"
                f" and the median has {int(np.median(prompts)):,}. Look for a smaller block size, and for what makes"
                " the cache reuse tokens in large units: hybrid layers, speculative decoding."
            )
    return found


def _held(ladder: Ladder, rung: int) -> Ints:
    """Tokens (n,) that the cache of a rung holds for certain."""
    certain: Ints = ladder.served[:, rung] - ladder.unknown[:, 1 : rung + 1].sum(axis=1)
    return certain


def _line(
    server: str,
    law: Alignment,
    fit: Fit | None,
    prompt: Ints,
    achieved: Ints,
    sent: Ints,
    held: tuple[Ints, Ints] | None,
) -> CeilingLine:
    floor, reachable, loss = achieved, None, None
    if held is not None:
        own = np.maximum(achieved, served(law, prompt, held[0]))
        floor = np.maximum(own, served(law, prompt, held[1]))
        reachable, loss = int(floor.sum()), int((floor - own).sum())
    attainable = np.maximum(floor, served(law, prompt, sent))
    return CeilingLine(
        server=server,
        unit=law.unit,
        dropped_units=law.dropped_units,
        fitted_from=0 if fit is None else fit.pairs - fit.misfits,
        prompt=int(prompt.sum()),
        achieved=int(achieved.sum()),
        attainable=int(attainable.sum()),
        reachable=reachable,
        routing_loss=loss,
    )
