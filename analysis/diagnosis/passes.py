"""What a pass over the device is made of, by the law that the twin was fitted with: a part that no token accounts for,
one for the sequences in it, one that grows with what they attend to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from clickhouse_connect.driver.client import Client

from analysis.attribution.caused.told import told
from analysis.attribution.model import Side, View
from analysis.diagnosis.model import Fact
from analysis.twin.model import Law, NoTwin

_FITTED = 3000  # requests: a share of a pass needs no more


def passes(client: Client, a: Side, b: Side, views: Sequence[View]) -> Mapping[str, Fact]:
    """Nothing where the twin could not speak of the change, or there are several servers."""
    if not any(view.kind == "caused" and not view.refused for view in views):
        return {}
    try:
        laws = [_law(client, side) for side in (a, b)]
    except NoTwin:
        return {}
    parts = [_decode_pass(law, side) for law, side in zip(laws, (a, b), strict=True)]
    n = min(a.n, _FITTED), min(b.n, _FITTED)
    values = {
        "pass_host": [law.step for law in laws],
        "pass_host_part": [fixed / (fixed + each + context) for fixed, each, context in parts],
        "pass_context": [context for _, _, context in parts],
        "pass_context_part": [context / (fixed + each + context) for fixed, each, context in parts],
    }
    return {name: Fact(of_a, of_b, *n) for name, (of_a, of_b) in values.items()}


def _law(client: Client, side: Side) -> Law:
    from analysis.twin.fit import fit  # numba: only where there is something to fit

    server = side.servers[0] if len(side.servers) == 1 else ""
    return fit(side, told(client, side).servers.get(server), most=_FITTED).law


def _decode_pass(law: Law, side: Side) -> tuple[float, float, float]:
    """Of a mean decode pass, ms: what is fixed, what the sequences in it cost, what their context costs."""
    seconds = max(float(side.arrival[-1] - side.arrival[0]), 1e-3)
    decoding = max(1.0, float(np.nansum(side.time("decode"))) / 1000 / seconds)  # Little's law
    held = float(np.nanmean(side.prompt) + np.nanmean(side.completion) / 2) / 1000
    return law.step, law.decode * decoding, law.context * decoding * held
