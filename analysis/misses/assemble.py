"""Requests and chains as they come from the store, put together row by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.misses.columns import Columns, Texts, gather
from analysis.misses.fleets import Fleets
from analysis.misses.model import NOT_TOLD, Chains, Flags, Hashes, Ints

TIERS = ("device", "host", "remote")
_EXACT = (
    "server",
    "reuse",
    "tokenizer",
)  # chains that count just the tokens that the server does, where they are right


@dataclass(frozen=True)
class Asked:
    """What the ladder does not need of the n requests, row by row as in Chains.

    asked: whether the selection has it; the others were in flight beside those. tiers: (n, 3) tokens by TIERS,
    NOT_TOLD. group: value of what is grouped by. told_by: of its chain, empty where it has none. template: 0 where it
    is not known. sent: the time that its chain has, by the clock of who told it, NOT_TOLD. misfit: its chain is of
    another length than its prompt, and counts as not known.
    """

    asked: Flags
    request_id: Texts
    model: Texts
    group: Texts
    tiers: Ints
    told_by: Texts
    template: Hashes
    sent: Ints
    misfit: Flags


@dataclass(frozen=True)
class _Found:
    """Chains of several sources together, by row of `row`: (n,) for each request its chain, NOT_TOLD without."""

    sources: Sequence[Columns]
    row: Ints

    def ints(self, name: str, missing: int) -> Ints:
        return self._of(np.concatenate([source.ints(name) for source in self.sources]), missing)

    def hashes(self, name: str) -> Hashes:
        return self._of(np.concatenate([source.hashes(name) for source in self.sources]), 0)

    def texts(self, name: str) -> Texts:
        return self._of(np.concatenate([source.texts(name) for source in self.sources]), "")

    def flags(self, name: str) -> Flags:
        return self._of(np.concatenate([source.flags(name) for source in self.sources]), False)

    def _of(self, values: NDArray[Any], missing: object) -> NDArray[Any]:
        padded = np.concatenate([values, np.array([missing], dtype=values.dtype)])
        return padded[self.row]  # NOT_TOLD is the last one

    def arrays(self, name: str, most: Ints) -> tuple[Ints, NDArray[Any]]:
        """Offsets and values of an array column, at the most so many of each row."""
        parts = [source.arrays(name) for source in self.sources]
        ends = np.cumsum([0, *(len(values) for _, values in parts)])
        begins = np.concatenate([offsets[:-1] + end for (offsets, _), end in zip(parts, ends, strict=False)])
        lengths = np.concatenate([np.diff(offsets) for offsets, _ in parts])
        offsets, index = gather(self._of(begins, 0), np.minimum(self._of(lengths, 0), most))
        return offsets, np.concatenate([values for _, values in parts])[index]


def assemble(
    told: Columns, sources: Sequence[Columns], known: Fleets, keep: Flags | None = None
) -> tuple[Asked, Chains, int]:
    """Rows in order of arrival, and how many of those asked for were left out: nothing tells their prompt's length.

    told: requests in order of arrival; sources: chains, those of an earlier source before those of a later one. keep:
    which of the requests to take. Holders are not set.
    """
    found = _Found(sources, _rows_of(told, sources))
    counted, cut = told.ints("prompt_tokens_told"), found.ints("prompt", NOT_TOLD)
    prompt = np.where(counted >= 0, counted, cut)
    sized = prompt >= 0
    unsized = int((told.flags("picked") & ~sized).sum())
    if keep is not None:
        sized &= keep
    exact = np.isin(found.texts("told_by"), _EXACT)
    misfit = (exact & (counted >= 0) & (cut >= 0) & (counted != cut))[sized]
    found = _Found(sources, found.row[sized])
    fitting = _Found(sources, np.where(misfit, NOT_TOLD, found.row))
    asked = Asked(
        asked=told.flags("picked")[sized],
        request_id=told.texts("request_id")[sized],
        model=told.texts("model_name")[sized],
        group=told.texts("grouped")[sized],
        tiers=np.stack([told.ints(f"{tier}_tokens_told")[sized] for tier in TIERS], axis=1),
        told_by=fitting.texts("told_by"),
        template=found.hashes("template"),
        sent=found.ints("sent", NOT_TOLD),
        misfit=misfit,
    )
    chains = _chains(told, fitting, sized, prompt[sized], known)
    # what was asked for is so, however many tokens that made
    isolation, reads_off = found.hashes("isolation"), found.flags("reads_off")
    return asked, replace(chains, isolation=isolation, reads_off=reads_off), unsized


def _chains(told: Columns, found: _Found, sized: Flags, prompt: Ints, known: Fleets) -> Chains:
    server, arrived = told.ints("server_at")[sized], told.ints("arrived")[sized]
    ttft, cached = told.ints("ttft")[sized], told.ints("cached_tokens_told")[sized]
    block_size = np.maximum(found.ints("block_size", 1), 1)
    # an approximation can be longer than the prompt that it stands for
    offsets, blocks = found.arrays("blocks", prompt // block_size)
    every = np.full(len(prompt), np.iinfo(np.int64).max)
    piece_offsets, pieces = found.arrays("pieces", every)
    _, piece_tokens = found.arrays("piece_tokens", every)
    return Chains(
        servers=known.servers,
        server=server,
        holder=np.full(len(server), NOT_TOLD),
        arrived=arrived,
        began=arrived + np.maximum(told.ints("waited")[sized], 0),
        first_token=np.where(ttft >= 0, arrived + ttft, NOT_TOLD),
        isolation=found.hashes("isolation"),
        prompt=prompt,
        cached=np.minimum(cached, prompt),
        recomputed=told.ints("recomputed_tokens_told")[sized],
        block_size=block_size,
        reads_off=found.flags("reads_off"),
        known=found.row >= 0,
        offsets=offsets,
        blocks=known.apart(blocks, np.repeat(server, np.diff(offsets))),
        split_depth=found.ints("split_depth", 0),
        split_tokens=found.ints("split_tokens", 0),
        pieces_from=found.ints("pieces_from", 0),
        piece_offsets=piece_offsets,
        pieces=known.apart(pieces, np.repeat(server, np.diff(piece_offsets))),
        piece_tokens=piece_tokens.astype(np.int64),
    )


def _rows_of(told: Columns, sources: Sequence[Columns]) -> Ints:
    """Where the chain of each request stands in the sources, one after the other; NOT_TOLD for none.

    Of several chains of a request the truest. Where several requests of a server have one id, a chain is of the one
    that is nearest to it in time.
    """
    keys, arrived = told.hashes("whose"), told.ints("arrived")
    chain, sent, truth = (
        np.concatenate([getattr(source, kind)(name) for source in sources])
        for kind, name in (("hashes", "whose"), ("ints", "sent"), ("ints", "truth"))
    )
    order = np.lexsort((arrived, keys))
    first, end = (np.searchsorted(keys[order], chain, side) for side in ("left", "right"))
    asked = order[np.minimum(first, len(order) - 1)] if len(order) else np.zeros(len(chain), np.int64)
    end = np.where(
        (sent == NOT_TOLD) & (end - first > 1), first, end
    )  # of one of them, and nothing tells of which
    for at in np.flatnonzero(end - first > 1).tolist():
        those = order[first[at] : end[at]]
        after = min(int(np.searchsorted(arrived[those], sent[at])), len(those) - 1)
        before = max(after - 1, 0)
        nearer = sent[at] - arrived[those[before]] <= arrived[those[after]] - sent[at]
        asked[at] = those[before if nearer else after]
    some = np.flatnonzero(end > first)
    apart = np.abs(sent[some] - arrived[asked[some]])
    some = some[np.lexsort((some, apart, truth[some], asked[some]))]
    new = np.ones(len(some), np.bool_)
    new[1:] = asked[some[1:]] != asked[some[:-1]]
    row = np.full(len(keys), NOT_TOLD)
    row[asked[some[new]]] = some[new]
    return row


def subset(chains: Chains, rows: Flags) -> Chains:
    """Some of the requests."""
    if rows.all():
        return chains
    lengths, piece_lengths = np.diff(chains.offsets)[rows], np.diff(chains.piece_offsets)[rows]
    offsets, index = gather(chains.offsets[:-1][rows], lengths)
    piece_offsets, piece_index = gather(chains.piece_offsets[:-1][rows], piece_lengths)
    by_row = {
        name: getattr(chains, name)[rows]
        for name in (
            *(
                "server",
                "holder",
                "arrived",
                "began",
                "first_token",
                "isolation",
                "prompt",
                "cached",
                "recomputed",
            ),
            *("block_size", "reads_off", "known", "split_depth", "split_tokens", "pieces_from"),
        )
    }
    return replace(
        chains,
        **by_row,
        offsets=offsets,
        blocks=chains.blocks[index],
        piece_offsets=piece_offsets,
        pieces=chains.pieces[piece_index],
        piece_tokens=chains.piece_tokens[piece_index],
    )
