"""By which law each server reuses what it holds: from canaries, else from what it served, else its blocks alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from clickhouse_connect.driver.client import Client

from analysis.alignment import fit, proven
from analysis.misses.ladder import climb
from analysis.misses.model import Chains, Ints, Ladder
from analysis.misses.reader import Reading
from analysis.misses.sizes import without_others
from analysis.misses.standing import standing
from cachemodel.alignment import Alignment
from cachemodel.alignment_fit import Fit

BY_CANARIES = "measured by canaries"


@dataclass(frozen=True)
class Laws:
    """By server. alignments: the law that is taken; none where its blocks are all that is known. fits: what its traffic
    says. told: how the law is known, in words."""

    alignments: dict[str, Alignment]
    fits: dict[str, Fit | None]
    told: dict[str, str]


def laws(chains: Chains, measured: Mapping[str, Alignment], pairs: tuple[Ints, Ints] | None = None) -> Laws:
    """The laws of the servers of some requests. measured: by canaries. pairs: prompt and cached tokens to judge by,
    these requests being too few."""
    fits: dict[str, Fit | None] = {}
    alignments: dict[str, Alignment] = {}
    told: dict[str, str] = {}
    for index, server in enumerate(chains.servers):
        rows = chains.server == index
        if not rows.any():
            continue
        known = rows & chains.known
        block = int(np.bincount(chains.block_size[known]).argmax()) if known.any() else 1
        prompt, cached = pairs or (chains.prompt[rows], chains.cached[rows])
        fits[server] = found = fit(prompt, cached, None, block)
        if server in measured:
            alignments[server], told[server] = measured[server], BY_CANARIES
        elif found and (law := _taken(found, block)):
            among = f" among its latest {len(prompt):,} requests" if pairs else ""
            alignments[server], told[server] = law, f"fitted from {found.pairs:,} requests with a hit{among}"
        else:
            told[server] = "taken from its block size"
    return Laws(alignments, fits, told)


def climb_by_laws(reading: Reading, known: Laws) -> tuple[Ladder, Laws]:
    """Climb, and once more where what was held proves another law than usage alone: a unit that is dropped at the end
    of every match looks like shorter matches until it is known how long they were. Laws of canaries stand."""
    ladder = climbed(reading, known)
    better = {
        server: found
        for server, found in proven(reading.chains, ladder).items()
        if known.told.get(server) != BY_CANARIES
    }
    if not better:
        return ladder, known
    known = replace(
        known,
        alignments=known.alignments | {server: found.alignment for server, found in better.items()},
        fits={**known.fits, **better},
        told=known.told
        | {server: f"proven by {found.hits:,} hits and what was held" for server, found in better.items()},
    )
    return climbed(reading, known), known


def climbed(reading: Reading, known: Laws) -> Ladder:
    """The ladder of what was read, by laws that are known."""
    chains, pieces = reading.chains, reading.pieces_sent
    ladder = climb(chains, reading.events, reading.blocks_sent, pieces, known.alignments)
    return without_others(ladder, chains, pieces, reading.other_sizes)


def _taken(found: Fit, block: int) -> Alignment | None:
    """The law that traffic proves. Where several are possible, whole blocks are the simplest that explains it."""
    if found.certain or Alignment(block) not in (found.alignment, *found.candidates):
        return found.alignment
    return Alignment(block)


def measured(client: Client) -> Mapping[str, Alignment]:
    """What the newest canary found of each server, where it could tell for certain."""
    return standing(client).alignments
