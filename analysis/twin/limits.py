"""The limits of a server's scheduler: as it told them, else as its requests show them."""

from __future__ import annotations

import numpy as np

from analysis.quantiles import Floats
from analysis.twin.model import Limits, Replay, Told, Workload, part
from analysis.twin.refine import misfit
from analysis.twin.regression import Intervals, first_law

NONE = 1 << 20
"""Requests at once where that never was the limit."""
TRIED = (512, 1024, 2048, 4096, 8192, 16384)
"""Tokens a step: vLLM's defaults by device and use are among them (docs.vllm.ai, "Optimization and Tuning")."""
_ENOUGH = 4000  # requests to try them on
_FEWEST_WAITS = 20
_LONG_WAIT = 3  # times what a token takes
_NEARLY_ALL = 0.95


def limits(work: Workload, real: Replay, told: Told) -> tuple[Limits, tuple[str, ...]]:
    """The limits, and what to know of those that nobody told."""
    notes = []
    seats = told.max_num_seqs
    if seats is None:
        seats = _seats(work, real)
        shown = (
            "was never the limit" if seats == NONE else f"is taken for {seats}, which ran while others waited"
        )
        notes.append(f"max_num_seqs is not told and {shown}.")
    tokens = told.max_num_batched_tokens
    if tokens is None:
        tokens = _batched_tokens(work, real, seats)
        notes.append(f"max_num_batched_tokens is not told; of the usual sizes {tokens:,} fits best.")
    if told.kv_tokens is None:
        notes.append("The size of the KV pool is not told: the twin never runs out of it.")
        return Limits(seats, tokens), tuple(notes)
    return Limits(seats, tokens, told.kv_tokens, _shared(work, real, told.kv_tokens)), tuple(notes)


def _seats(work: Workload, real: Replay) -> int:
    """The most requests at once, where others waited while so many ran."""
    admitted, end = _admitted(work, real)
    pace = np.median(real.decode / np.maximum(work.completion - 1, 1))
    waited = real.queue > _LONG_WAIT * pace
    if waited.sum() < _FEWEST_WAITS:
        return NONE
    ones = np.ones(len(end))
    # not at a boundary between passes, where one has ended and the next begun to the microsecond
    ran = _total(admitted, end, ones, admitted - real.queue / 2)[waited]
    most = int(np.quantile(_total(admitted, end, ones, admitted + real.prefill / 2), _NEARLY_ALL))
    return most if np.median(ran) >= most else NONE


def _batched_tokens(work: Workload, real: Replay, seats: int) -> int:
    """The size whose replay fits best; of those that no prompt fills, the largest."""
    work, real = part(work, slice(_ENOUGH)), part(real, slice(_ENOUGH))
    tried = [size for size in TRIED if size < work.computed.max()] + [TRIED[-1]]
    return min(
        dict.fromkeys(tried),
        key=lambda size: misfit(work, real, first_law(work, real, size), Limits(seats, size)),
    )


def _shared(work: Workload, real: Replay, kv_tokens: int) -> float:
    """As many of the tokens found on the device are shared as it takes for those admitted to have had room."""
    admitted, end = _admitted(work, real)
    held = _total(admitted, end, work.prompt + work.completion / 2, admitted)
    found = _total(admitted, end, work.prompt - work.computed, admitted)
    over = np.divide(held - kv_tokens, found, out=np.zeros_like(held), where=found > 0)
    return float(np.clip(np.quantile(over, _NEARLY_ALL), 0.0, 1.0))


def _admitted(work: Workload, real: Replay) -> tuple[Floats, Floats]:
    """When each request got its blocks, and gave them back: ms since the first arrival."""
    spans = Intervals.of(work, real)
    return spans.begun - real.host - real.remote, spans.end


def _total(begin: Floats, end: Floats, amount: Floats, at: Floats) -> Floats:
    """Of amounts (n,), each there from `begin` to `end`, how much is there at each moment (m,)."""
    came, went = np.argsort(begin), np.argsort(end)
    upto = np.concatenate([[0.0], np.cumsum(amount[came])])
    gone = np.concatenate([[0.0], np.cumsum(amount[went])])
    there = upto[np.searchsorted(begin[came], at, "right")] - gone[np.searchsorted(end[went], at, "right")]
    return np.asarray(there)
