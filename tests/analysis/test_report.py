"""The report: sums are exact, unknown stays unknown, the words say what the numbers say."""

from __future__ import annotations

import dataclasses
import io
import json
import math
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from analysis.report.build import build
from analysis.report.compare import compare_deploy
from analysis.report.json import to_json
from analysis.report.metrics import METRICS
from analysis.report.model import Comparison, Report
from analysis.report.reader import Requests, counters, read
from analysis.report.text import to_markdown, to_terminal
from analysis.selection import Selection
from cachemodel.errors import UserError
from tests.conftest import Database

START = datetime(2026, 11, 29, 12)
SNAPSHOTS = Path(__file__).parent / "snapshots"


def requests(n: int, seed: int, prefill: float, cached: float, metric: str = "ttft") -> Requests:
    """n requests of a server that tells of queue, prefill, decode and frontend, in ms."""
    rng = np.random.default_rng(seed)
    known = {
        "queue": rng.exponential(5, n),
        "prefill": prefill + rng.exponential(10, n),
        "frontend": rng.exponential(8, n),
        "decode": rng.exponential(100, n),
    }
    layers = np.stack([known.get(layer.name, np.full(n, math.nan)) for layer in METRICS[metric].layers])
    prompt = rng.integers(300, 400, n).astype(float)
    tokens = {"prompt_tokens": prompt, "cached_tokens": np.floor(prompt * cached)}
    tokens["completion_tokens"] = rng.integers(14, 18, n).astype(float)
    tokens |= {f"{tier}_tokens": np.full(n, math.nan) for tier in ("device", "host", "remote")}
    return Requests(
        np.nansum(layers, axis=0), layers, tokens, START, START + timedelta(seconds=30), ["vllm-a"]
    )


def compared(
    a: Requests, b: Requests, metric: str = "ttft", q: float = 0.5, names: tuple[str, str] = ("a", "b")
) -> Report:
    return build(METRICS[metric], q, names, (a, b), [], f"--a {names[0]} --b {names[1]}")


def comparisons(report: Report) -> list[Comparison]:
    parts = (c for line in report.layers for c in (line.mean, line.part))
    return [*report.quantiles, *parts, *(t.share for t in report.tokens), *report.workload]


@pytest.fixture(scope="module")
def report() -> Report:
    a, b = requests(14, 1, 30, 0.75), requests(28, 2, 110, 0.0)
    return compared(a, b, names=("phase=last", "phase=first"))


@pytest.mark.parametrize("q", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("metric", ["ttft", "e2e"])
def test_parts_sum_to_the_quantile_and_to_its_change(metric: str, q: float) -> None:
    a, b = requests(60, 1, 30, 0.7, metric), requests(200, 2, 90, 0.1, metric)
    found = compared(a, b, metric, q)
    chosen = next(c for c in found.quantiles if c.name == f"P{100 * q:g}")
    for pick in ("a", "b", "change"):
        parts = math.fsum(getattr(line.part, pick).value for line in found.layers)
        assert parts == pytest.approx(getattr(chosen, pick).value, abs=1e-6)
        means = math.fsum(getattr(line.mean, pick).value for line in found.layers)
        assert means == pytest.approx(getattr(found.quantiles[0], pick).value, abs=1e-6)


def test_the_planted_change_is_what_shows(report: Report) -> None:
    assert "rose" in report.answer
    assert "Where it shows: prefill +" in report.answer
    assert "Cached prompt tokens went from 74" in report.answer
    assert "to 0.0%" in report.answer
    prefill = next(line for line in report.layers if line.layer == "prefill")
    assert prefill.mean.change.value == pytest.approx(80, abs=12)
    assert prefill.mean.change.low < 80 < prefill.mean.change.high  # type: ignore[operator]


def test_the_same_requests_twice_name_nobody() -> None:
    found = compared(requests(80, 1, 30, 0.5), requests(80, 3, 30, 0.5))
    assert found.answer.startswith("No clear change")
    assert "Where it shows" not in found.answer


def test_layers_nobody_tells_of_are_left_out_not_zero(report: Report) -> None:
    assert [line.layer for line in report.layers] == ["frontend", "queue", "prefill"]


def test_a_layer_that_one_set_does_not_tell_is_not_compared() -> None:
    a, b = requests(40, 1, 30, 0.5), requests(40, 2, 30, 0.5)
    queue = [layer.name for layer in METRICS["ttft"].layers].index("queue")
    mean_queue = a.layers[queue].mean()
    a.layers[queue] = math.nan
    found = compared(a, b)
    assert [line.layer for line in found.layers] == ["frontend", "prefill", "unattributed"]
    assert found.layers[-1].mean.a.value == pytest.approx(mean_queue)
    assert "only b tells of queue" in " ".join(found.warnings)
    assert "queue" not in found.answer


def test_a_layer_that_some_requests_do_not_tell_is_said_so() -> None:
    a, b = requests(40, 1, 30, 0.5), requests(40, 2, 30, 0.5)
    queue = [layer.name for layer in METRICS["ttft"].layers].index("queue")
    a.layers[queue, :4] = math.nan
    found = compared(a, b)
    line = next(line for line in found.layers if line.layer == "queue")
    assert (line.known_a, line.known_b) == (36, 40)
    assert "queue is unknown for 4 of 40 requests" in " ".join(found.warnings)
    assert math.fsum(x.mean.a.value for x in found.layers) == pytest.approx(a.totals.mean())


@pytest.mark.parametrize(("n", "q"), [(60, 0.5), (200, 0.9), (14, 0.5)])
def test_every_interval_holds_its_estimate(n: int, q: float) -> None:
    found = compared(requests(n, 1, 30, 0.75), requests(2 * n, 2, 110, 0.0), "ttft", q)
    estimates = [e for c in comparisons(found) for e in (c.a, c.b, c.change)]
    assert any(e.low is not None for e in estimates)
    for e in estimates:
        assert e.low is None or e.high is None or e.low - 1e-9 <= e.value <= e.high + 1e-9


def test_too_few_requests_for_an_interval_have_none(report: Report) -> None:
    by_name = {c.name: c for c in report.quantiles}
    assert by_name["P50"].change.low is not None
    assert by_name["P90"].a.low is None  # 14 requests leave one beyond P90
    assert by_name["P90"].change.low is None
    assert not by_name["P99"].clear
    few = compared(requests(6, 1, 30, 0.75), requests(6, 2, 300, 0.0))
    assert not any(c.clear for c in comparisons(few))
    assert "too few requests for an interval" in few.answer
    assert "6 requests leave fewer than 5 beyond P50: no interval" in " ".join(few.warnings)


def test_a_load_that_differs_is_said_so(report: Report) -> None:
    assert [c.name for c in report.workload] == ["prompt", "completion"]
    assert "the load differs" not in " ".join(report.warnings)
    a, b = requests(40, 1, 30, 0.5), requests(40, 2, 30, 0.5)
    b.tokens["prompt_tokens"] *= 2
    assert "the load differs" in " ".join(compared(a, b).warnings)


def test_derived_figures_are_marked() -> None:
    a, b = (dataclasses.replace(requests(20, seed, 30, 0.5), layers=np.empty((0, 20))) for seed in (1, 2))
    found = compared(a, b, "tpot")
    assert found.layers == []
    assert {c.provenance for c in found.quantiles} == {"derived"}
    found = compared(requests(20, 1, 30, 0.5), requests(20, 2, 30, 0.5))
    assert {line.layer: line.part.provenance for line in found.layers} == {
        "frontend": "derived",
        "queue": "measured",
        "prefill": "measured",
    }


def test_a_quantile_beyond_reach_takes_nothing_apart() -> None:
    far = compared(requests(14, 1, 30, 0.75), requests(28, 2, 110, 0.0), "ttft", 0.99)
    assert "too few requests for an interval" in far.answer
    assert "Where it shows" not in far.answer
    assert all(line.part.change.low is None for line in far.layers)
    assert all(line.mean.change.low is not None for line in far.layers)


def test_the_same_set_twice_is_said() -> None:
    a = requests(30, 1, 30, 0.5)
    found = compared(a, a, names=("x", "x"))
    assert "both sets are the same requests" in found.warnings
    assert len(set(found.warnings)) == len(found.warnings)


def test_unknown_cached_tokens_are_not_zero() -> None:
    a, b = requests(20, 1, 30, 0.5), requests(20, 2, 30, 0.5)
    b.tokens["cached_tokens"][:5] = math.nan
    found = compared(a, b)
    cached = found.tokens[0]
    assert cached.share.b.n == 15
    assert cached.share.b.value == pytest.approx(0.5, abs=0.01)
    assert "cached tokens are unknown for 5 of 20" in " ".join(found.warnings)
    b.tokens["cached_tokens"][:] = math.nan
    found = compared(a, b)
    assert found.tokens == []
    assert "no request says how many tokens were cached" in " ".join(found.warnings)


def test_cached_and_computed_make_the_prompt(report: Report) -> None:
    cached, computed = report.tokens
    assert (cached.source, computed.source) == ("cached", "computed")
    assert cached.share.a.value + computed.share.a.value == pytest.approx(1)
    assert computed.share.change.value == pytest.approx(-cached.share.change.value)
    assert computed.share.provenance == "derived"


def test_small_samples_are_called_small(report: Report) -> None:
    assert any("14 requests leave about 7 beyond P50" in w for w in report.warnings)


def test_too_few_requests_are_an_error() -> None:
    with pytest.raises(UserError, match="at least 3"):
        compared(requests(2, 1, 30, 0.5), requests(9, 1, 30, 0.5))


def test_json_has_no_nan_and_stable_keys(report: Report) -> None:
    data = json.loads(to_json(report), parse_constant=lambda name: pytest.fail(name))
    assert list(data)[:5] == ["metric", "quantile", "a", "b", "answer"]
    assert data["layers"][0]["part"]["change"].keys() == {"value", "low", "high", "n"}


def test_hostile_names_are_only_text() -> None:
    a, b = requests(12, 1, 30, 0.5), requests(12, 2, 30, 0.5)
    a.servers[0] = "\x1b[2J<img src=x>|\n# top"
    found = compared(a, b)
    page = to_markdown(found)
    assert "\\<img src=x\\>\\|" in page
    assert "\n# top" not in page
    for shown in (page, terminal(found, 100)):
        assert "\x1b" not in shown


@pytest.mark.parametrize("width", [40, 80, 100, 110])
def test_no_figure_is_cut_where_there_is_little_room(width: int, report: Report) -> None:
    shown = terminal(report, width)
    assert "…" not in shown
    figures, _, commands = shown.partition("\nNext\n")
    assert max(len(line) for line in figures.splitlines()) <= width
    assert [line.strip() for line in commands.splitlines()] == report.next_steps, "whole, to be copied"
    a = report.quantiles[0].a
    assert (f"{a.low:.1f} to {a.high:.1f}" in shown) == (width > 105)


def terminal(report: Report, width: int) -> str:
    out = io.StringIO()
    to_terminal(report, Console(file=out, width=width, highlight=False))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


@pytest.mark.parametrize("name", ["report.txt", "report.md"])
def test_what_people_see(name: str, report: Report) -> None:
    """Snapshots: look at the file in the diff when this fails, and commit it when it reads better."""
    shown = to_markdown(report) if name.endswith("md") else terminal(report, 110)
    file = SNAPSHOTS / name
    if not file.exists():
        file.parent.mkdir(exist_ok=True)
        file.write_text(shown)
        pytest.fail(f"{file} was written; look at it and commit it")
    assert shown == file.read_text()


def test_reading_from_the_store(db: Database) -> None:
    names = ["time", "server", "request_id", "span_id", "ttft_us", "queue_us", "prefill_us", "frontend_us",
             "prompt_tokens", "cached_tokens", "labels"]  # fmt: skip
    rows = [
        [
            START + timedelta(seconds=i),
            "s",
            f"r{i}",
            i,
            3000,
            1000,
            1500,
            500,
            100,
            None if i else 0,
            {"phase": "x"},
        ]
        for i in reversed(range(5))
    ]
    rows.append([START, "s", "untimed", 9, None, None, None, None, 100, 50, {"phase": "x"}])
    db.client.insert("requests", rows, column_names=names)
    found = read(db.client, Selection("x", "labels['phase'] = {p:String}", {"p": "x"}), METRICS["ttft"])
    assert found.n == 6
    assert np.nansum(found.totals) == 15.0
    assert int(np.isnan(found.totals).sum()) == 1
    assert np.nansum(found.layers[:, -1]) == 3.0
    assert int(np.isnan(found.tokens["cached_tokens"]).sum()) == 4
    with pytest.raises(UserError, match="no request matches 'y': the store has 6 requests of s"):
        read(db.client, Selection("y", "0", {}), METRICS["ttft"])


def test_large_sets_are_thinned_evenly(db: Database) -> None:
    rows = [[START + timedelta(seconds=i), "s", f"r{i}", i, 1000 * i] for i in range(3000)]
    db.client.insert("requests", rows, column_names=["time", "server", "request_id", "span_id", "ttft_us"])
    every = Selection("all", "1", {})
    found = read(db.client, every, METRICS["ttft"], most=1000)
    assert found.sampled == 3
    assert 850 < found.n < 1150
    assert found.totals.mean() == pytest.approx(1500, rel=0.1)
    assert (np.diff(found.totals) > 0).all()
    assert found.end - found.begin == timedelta(seconds=2999)
    whole = read(db.client, every, METRICS["ttft"])
    assert (whole.n, whole.sampled) == (3000, 1)
    assert "one in 3 requests was read" in " ".join(compared(found, whole).warnings)


def test_a_deployment_to_one_server_leaves_others_out(db: Database) -> None:
    rows = [
        [START + timedelta(seconds=i), server, f"{server}{i}", i + 20, 1000]
        for server in ("x", "y")
        for i in range(-20, 20)
    ]
    db.client.insert("requests", rows, column_names=["time", "server", "request_id", "span_id", "ttft_us"])
    db.client.insert(
        "deploys", [[START, "x", "v2"], [START, "", "v3"]], column_names=["time", "server", "name"]
    )
    one = compare_deploy(db.client, "v2", timedelta(seconds=15))
    assert (one.a.n, one.b.n, one.a.servers, one.b.servers) == (15, 15, ["x"], ["x"])
    assert one.next_steps[0] == "hitmap report --deploy v2 --window 15s --metric e2e"
    both = compare_deploy(db.client, "v3", timedelta(seconds=15))
    assert (both.a.n, both.b.n, both.a.servers) == (30, 30, ["x", "y"])
    with pytest.raises(UserError, match="no deployment 'v9'; marked are v2, v3"):
        compare_deploy(db.client, "v9", timedelta(seconds=15))


def test_counters_are_summed_from_scrape_to_scrape(db: Database) -> None:
    db.client.insert(
        "series",
        [[1, "vllm-a", "prompt_tokens_by_source", "counter", "tokens", {"source": "external_kv_transfer"}]],
        column_names=["fingerprint", "server", "metric", "kind", "unit", "labels"],
    )
    growth = [(-5, 1000.0), (10, 20.0), (20, 100.0), (40, 3.0), (55, 1000.0), (100, 7.0), (500, 1000.0)]
    db.client.insert(
        "samples",
        [[START + timedelta(seconds=s), 1, 0.0, d] for s, d in growth],
        column_names=["time", "fingerprint", "value", "delta"],
    )
    a = requests(5, 1, 30, 0.5)  # runs from 0 to 30 s: scrapes at -5 and 40 s enclose it
    b = Requests(
        **{**a.__dict__, "begin": START + timedelta(seconds=60), "end": START + timedelta(seconds=90)}
    )
    (line,) = counters(db.client, a, b)
    assert (line.server, line.labels, line.a, line.b) == ("vllm-a", "external_kv_transfer", 123.0, 7.0)
