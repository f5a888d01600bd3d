"""Which request shows what a report is about: a typical one, of the group that it befalls most."""

from __future__ import annotations

import numpy as np

from analysis.misses.columns import Texts
from analysis.misses.model import Ints
from analysis.misses.parts import HITS


def typical(request_ids: Texts, groups: Texts, parts: Ints) -> tuple[str, str]:
    """A request and its group: of the group with most tokens of the largest cause, the one in the middle by how many of
    its tokens have that cause. Empty where nothing was computed. groups: (n,) of each; parts: (n, len(PARTS))."""
    of_cause = parts[:, len(HITS) :]
    if not of_cause.any():
        return "", ""
    tokens = of_cause[:, int(of_cause.sum(axis=0).argmax())]
    names, inverse = np.unique(groups.astype(str), return_inverse=True)
    worst = int(np.bincount(inverse, tokens, minlength=len(names)).argmax())
    rows = np.flatnonzero((inverse == worst) & (tokens > 0))
    middle = rows[np.argsort(tokens[rows], kind="stable")][len(rows) // 2]
    return str(request_ids[middle]), str(names[worst])
