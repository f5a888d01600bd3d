"""Facts of several servers and of templates that take turns: where requests went, and how soon their like came back."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from analysis.attribution.model import NOT_TOLD, Ints, Side
from analysis.diagnosis.model import Fact
from analysis.diagnosis.requests import SERVED, share
from analysis.quantiles import Floats

_FEWEST = 5  # requests of a template, to tell where they go


def fleet(a: Side, b: Side, slots_a: int | None, slots_b: int | None) -> Mapping[str, Fact]:
    """slots_a, slots_b: prompts that a server of each side keeps, None where it does not say."""
    of_a, of_b = (
        {**_servers(side), **_templates(side, slots)} for side, slots in ((a, slots_a), (b, slots_b))
    )
    return {name: Fact(of_a.get(name), of_b.get(name), a.n, b.n) for name in {**of_a, **of_b}}


def _servers(side: Side) -> dict[str, float]:
    told = side.server != NOT_TOLD
    counts = np.bincount(side.server[told], minlength=1)
    used = counts > 0
    found = {"servers": float(used.sum())}
    if used.sum() < 2:
        return found
    busiest = int(counts.argmax())
    found["busiest"] = float(counts.max() / counts[used].mean())
    queue = side.time("queue")
    waits = [_mean(queue[told & (side.server == busiest)]), _mean(queue[told & (side.server != busiest)])]
    if waits[0] is not None and waits[1]:
        found["busiest_wait"] = waits[0] / waits[1]
    known = told & (side.template != NOT_TOLD)
    if spread := _spread(side.template[known], side.server[known]):
        found["template_servers"] = spread
    return found


def _spread(template: Ints, server: Ints) -> float | None:
    """Effective number of servers of a template (inverse Simpson index), the mean over requests."""
    kinds, at = np.unique(template, return_inverse=True)
    if not len(kinds):
        return None
    table = np.zeros((len(kinds), int(server.max()) + 1))
    np.add.at(table, (at, server), 1)
    n = table.sum(axis=1)
    often = n >= _FEWEST
    if not often.any():
        return None
    # two requests drawn without replacement: right also where a template has few
    same = (table[often] * (table[often] - 1)).sum(axis=1) / (n[often] * (n[often] - 1))
    mean = float((n[often] * same).sum() / n[often].sum())
    return 1 / mean if mean > 0 else None


def _templates(side: Side, slots: int | None) -> dict[str, float]:
    """Of requests whose template had one before on their server: how many lie further apart than there are slots, and
    what share of their prompts was served."""
    if slots is None or not (served := tuple(name for name in side.sources if name in SERVED)):
        return {}
    found = {"slots": float(slots)}
    gap = _gaps(side)
    soon, late = (gap > 0) & (gap <= slots), gap > slots
    if not (soon.any() or late.any()):
        return found
    found["returns_late"] = float(late.sum() / (soon | late).sum())
    tokens, prompt = share(side, served)
    for name, rows in (("hits_soon", soon), ("hits_late", late)):
        if (whole := float(prompt[rows].sum())) > 0:
            found[name] = float(tokens[rows].sum()) / whole
    return found


def _gaps(side: Side) -> Ints:
    """How many requests of the same server ago the last one of the same template was (n,), 0 where there was none."""
    gap = np.zeros(side.n, np.int64)
    rows = np.flatnonzero((side.server != NOT_TOLD) & (side.template != NOT_TOLD))
    by_server = rows[np.argsort(side.server[rows], kind="stable")]
    place = np.empty(side.n, np.int64)
    place[by_server] = np.arange(len(by_server))  # the order within a server is all that is used
    order = by_server[np.argsort(side.template[by_server], kind="stable")]
    order = order[np.argsort(side.server[order], kind="stable")]
    before, after = order[:-1], order[1:]
    alike = (side.server[before] == side.server[after]) & (side.template[before] == side.template[after])
    gap[after[alike]] = place[after[alike]] - place[before[alike]]
    return gap


def _mean(values: Floats) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else None
