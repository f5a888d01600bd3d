"""What the requests of each turn say, and what was to be expected of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from clickhouse_connect.driver.client import Client

from analysis.attribution.binned import Blocks, resampled
from analysis.attribution.caused.told import told
from analysis.attribution.certainty.resampling import resampling
from analysis.attribution.linear import sensitivities
from analysis.attribution.model import Resampling, Side
from analysis.attribution.reader import read_side
from analysis.quantiles import Floats
from analysis.report.metrics import Metric
from analysis.selection import Selection
from analysis.twin.model import Fit, Law, NoTwin, Workload
from cachemodel.errors import UserError
from hitmap.engine_perturb.model import FEWEST_DELAYED, Perturbed, Sensitivity, Turn

_ARRIVE_S = 20.0
_95 = 1.96


def server_at(client: Client, url: str) -> str:
    """The name under which the engine at `url` was attached; raises UserError where it was not."""
    rows = client.query(
        "SELECT server FROM servers WHERE url = {url:String} ORDER BY time DESC LIMIT 1",
        parameters={"url": url},
    ).result_rows
    if not rows:
        raise UserError(f"{url} is not watched: run hitmap attach {url} beside this, or say --server")
    return str(rows[0][0])


def measure(
    client: Client,
    server: str,
    turns: Sequence[Turn],
    metric: Metric,
    q: float | None,
    delay_ms: float,
    rng: np.random.Generator,
) -> Perturbed:
    """Sensitivities of the q-quantile (None: the mean) to the layers that were delayed.

    Raises UserError where too few requests came in a turn.
    """
    _wait(client, server, max(turn.end for turn in turns))
    base = _side(client, server, turns, "", metric)
    twin, notes = _twin(client, base)
    layers = []
    for layer in dict.fromkeys(turn.layer for turn in turns if turn.layer):
        other = _side(client, server, turns, layer, metric)
        drawn = resampling(base, other, rng, paired=False)  # turns follow each other and share no time
        measured, sigma = _change(base, other, q, drawn)
        half = _95 * sigma
        layers.append(
            Sensitivity(
                layer=layer,
                n=other.n,
                measured=measured / delay_ms,
                low=None if drawn.refused else (measured - half) / delay_ms,
                high=None if drawn.refused else (measured + half) / delay_ms,
                linear=_by_the_rule(base, other, layer, q, delay_ms),
                twin=None if twin is None else _by_the_twin(base, twin, layer, metric, q, delay_ms),
            )
        )
    value = resampled(base.totals, q, Blocks(np.zeros(base.n, np.int64), np.zeros((0, 1)))).value
    return Perturbed(server, metric.name, q, delay_ms, value, base.n, layers, notes)


def _side(client: Client, server: str, turns: Sequence[Turn], layer: str, metric: Metric) -> Side:
    mine = [turn for turn in turns if turn.layer == layer]
    parameters: dict[str, object] = {"server": server}
    parameters |= {f"b{at}": round(turn.begin * 1e6) for at, turn in enumerate(mine)}
    parameters |= {f"e{at}": round(turn.end * 1e6) for at, turn in enumerate(mine)}
    within = " OR ".join(
        f"toUnixTimestamp64Micro(time) BETWEEN {{b{at}:Int64}} AND {{e{at}:Int64}}" for at in range(len(mine))
    )
    name = f"the time with {layer} delayed" if layer else "the time without a delay"
    least = f"at least {FEWEST_DELAYED}; send more (hitmap load) or give more --seconds"
    few = f"too few requests came in {name}: {{}}, {least}"
    try:
        side = read_side(
            client,
            Selection(name, f"server = {{server:String}} AND ({within})", parameters),
            metric,
            causes=False,
        )
    except UserError:
        raise UserError(few.format("none")) from None
    if side.n < FEWEST_DELAYED:
        raise UserError(few.format(side.n))
    return side


def _change(a: Side, b: Side, q: float | None, drawn: Resampling) -> tuple[float, float]:
    """Of the quantile, and its sigma, ms."""
    before = resampled(a.totals, q, Blocks(drawn.block_a, drawn.counts_a))
    after = resampled(b.totals, q, Blocks(drawn.block_b, drawn.counts_b))
    changes = after.replicates - before.replicates
    return after.value - before.value, float(drawn.widen * changes.std(ddof=1)) if len(changes) > 1 else 0.0


def _by_the_rule(a: Side, b: Side, layer: str, q: float | None, delay_ms: float) -> float | None:
    """Sensitivity times change of mean, of the requests that pass the layer."""
    before, after = a.time(layer), b.time(layer)
    passing = [times[np.nan_to_num(times) > 0] for times in (before, after)]
    if layer not in a.layers or not all(len(times) for times in passing):
        return None
    share = float((np.nan_to_num(before) > 0).mean()) if q is None else sensitivities(a, q)[layer]
    return share * float(passing[1].mean() - passing[0].mean()) / delay_ms


def _twin(client: Client, base: Side) -> tuple[Fit | None, list[str]]:
    from analysis.twin.fit import fit

    of_server = told(client, base).servers[base.servers[0]]
    try:
        # requests of the other turns are not here, and hardly met these
        return fit(base, replace(of_server, requests=None)), []
    except NoTwin as reason:
        return None, [f"no twin: {reason}"]


def _by_the_twin(
    base: Side, fit: Fit, layer: str, metric: Metric, q: float | None, delay_ms: float
) -> float | None:
    from analysis.twin.simulate import replay
    from analysis.twin.workload import known, workload

    work = workload(known(base), fit.hidden_wait, fit.quiet)
    changed = _delayed(work, fit, layer, delay_ms)
    if changed is None or metric.name not in ("ttft", "e2e"):
        return None
    nothing = Blocks(np.zeros(len(work.arrival), np.int64), np.zeros((0, 1)))
    values = [
        resampled(getattr(replay(with_, law, fit.limits), metric.name), q, nothing).value
        for with_, law in ((work, fit.law), changed)
    ]
    return (values[1] - values[0]) / delay_ms


def _delayed(work: Workload, fit: Fit, layer: str, delay_ms: float) -> tuple[Workload, Law] | None:
    """The twin's requests and law with every passage of a layer delayed. What waits on the device has all wait."""
    law, each = fit.law, np.full(len(work.arrival), delay_ms)
    match layer:
        case "frontend" | "queue":
            return replace(work, before=work.before + each), law
        case "other":
            return replace(work, after=work.after + each), law
        case "decode":
            return work, replace(law, step=law.step + delay_ms)
        case "prefill":
            return work, replace(law, prefill=law.prefill + delay_ms / _chunk(work, fit))
        case "host" | "remote":
            return work, replace(law, **{f"{layer}_fixed": getattr(law, f"{layer}_fixed") + delay_ms})
        case _:
            return None


def _chunk(work: Workload, fit: Fit) -> float:
    """Mean tokens of a chunk of prefill."""
    chunks: Floats = np.ceil(work.computed / fit.limits.max_num_batched_tokens)
    return float(work.computed.sum() / chunks.sum())


def _wait(client: Client, server: str, until: float) -> None:
    """Until requests that arrived at the end of the last turn are in the store, as far as any come."""
    deadline = time.monotonic() + _ARRIVE_S
    while time.monotonic() < deadline:
        latest = client.query(
            "SELECT toUnixTimestamp64Micro(max(time)) FROM requests WHERE server = {server:String}",
            parameters={"server": server},
        ).result_rows[0][0]
        if not latest or latest / 1e6 >= until - 0.5:
            return
        time.sleep(0.5)
