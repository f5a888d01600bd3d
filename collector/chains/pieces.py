"""Content-defined pieces of a prompt: cut where the last tokens say so, so that the same passage is cut alike wherever
it stands. Pure. What moved within a prompt is recognised by its pieces."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

SHORTEST, LONGEST = 4, 32  # tokens; some 8 on the average
_WINDOW = 4  # tokens that decide whether a piece ends with the last of them
_CUTS = np.uint64(1 << 62)  # one in four
_FACTORS = np.array(
    [0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93], np.uint64
)
_MIX = np.uint64(0xFF51AFD7ED558CCD)


def ends(tokens: Sequence[int]) -> list[int]:
    """Where each piece of the tokens ends, one past its last token; the last piece ends with them."""
    cuts = _cuts(np.asarray(tokens, np.uint64))
    found: list[int] = []
    start, length = 0, len(tokens)
    while start < length:
        i = bisect_left(cuts, start + SHORTEST)
        end = min(cuts[i] if i < len(cuts) else length, start + LONGEST, length)
        found.append(end)
        start = end
    return found


def _cuts(tokens: np.ndarray[tuple[int], np.dtype[np.uint64]]) -> list[int]:
    if len(tokens) < _WINDOW:
        return []
    mixed = np.zeros(len(tokens) - _WINDOW + 1, np.uint64)
    for i, factor in enumerate(_FACTORS):
        mixed += (tokens[i : len(tokens) - _WINDOW + 1 + i] + np.uint64(1)) * factor  # wraps, as it should
    mixed ^= mixed >> np.uint64(29)
    mixed *= _MIX
    mixed ^= mixed >> np.uint64(32)
    mixed *= _FACTORS[1]
    cuts: list[int] = (np.flatnonzero(mixed < _CUTS) + _WINDOW).tolist()
    return cuts
