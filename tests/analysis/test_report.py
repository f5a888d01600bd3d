"""The report: sums are exact, unknown stays unknown, the words say what the numbers say."""

from __future__ import annotations

import dataclasses
import io
import json
import math
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from analysis.attribution.model import Verdict, View
from analysis.attribution.words import headline
from analysis.report.json import to_json
from analysis.report.metrics import METRICS
from analysis.report.model import SCHEMA, Comparison, Report
from analysis.report.text import to_markdown, to_terminal
from cachemodel.errors import UserError
from tests.analysis.attributions import CAUSED, NO_PLACEBO, SHOWS, attributed, made, refused, share, view
from tests.analysis.sets import compared, requests

SNAPSHOTS = Path(__file__).parent / "snapshots"


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
    assert list(data)[:6] == ["schema", "metric", "quantile", "a", "b", "answer"]
    assert data["schema"] == SCHEMA
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
    assert (f"{a.low:.1f} to {a.high:.1f}" in shown) == (width > 80)


def terminal(report: Report, width: int) -> str:
    out = io.StringIO()
    to_terminal(report, Console(file=out, width=width, highlight=False))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def snapshot(name: str, shown: str) -> None:
    """Look at the file in the diff when this fails, and commit it when it reads better."""
    file = SNAPSHOTS / name
    if not file.exists():
        file.parent.mkdir(exist_ok=True)
        file.write_text(shown)
        pytest.fail(f"{file} was written; look at it and commit it")
    assert shown == file.read_text()


@pytest.mark.parametrize("name", ["report.txt", "report.md"])
def test_what_people_see(name: str, report: Report) -> None:
    snapshot(name, to_markdown(report) if name.endswith("md") else terminal(report, 110))


@pytest.mark.parametrize("name", ["attributed.txt", "attributed.md"])
def test_what_people_see_of_causes(name: str, report: Report) -> None:
    found = attributed(report, made())
    snapshot(name, to_markdown(found) if name.endswith("md") else terminal(found, 110))


def test_the_mean_is_taken_apart_as_a_quantile_is() -> None:
    a, b = requests(60, 1, 30, 0.7), requests(200, 2, 90, 0.1)
    found = compared(a, b, q=None)
    assert found.answer.startswith("Mean time to first token rose from")
    for pick in ("a", "b", "change"):
        parts = math.fsum(getattr(line.part, pick).value for line in found.layers)
        assert parts == pytest.approx(getattr(found.quantiles[0], pick).value, abs=1e-6)
    assert "What the mean is made of, ms" in terminal(found, 110)
    assert not any("beyond" in warning for warning in found.warnings)


def test_a_view_that_was_refused_says_why_and_the_rest_stands(report: Report) -> None:
    none = refused("caused", "the server tells no layers: hitmap attach URL --check")
    shown = " ".join(terminal(attributed(report, made(none, placebo=NO_PLACEBO)), 110).split())
    why = "the server tells no layers: hitmap attach URL --check"
    assert f"What caused it cannot be told ({why}); it shows up as decode 178 ± 20" in shown
    assert "What caused it: change of P50, ms the server tells no layers: hitmap attach URL --check" in shown
    assert "False blame on your fleet: not known; 12 windows of 30 s before A are needed" in shown


def test_headlines_say_no_more_than_is_known() -> None:
    noise = [share("changed", 9.0, 14.0, Verdict.NOISE)]
    near = [share("changed", 19.0, 14.0, Verdict.UNDECIDED), *noise]
    ends = ((400.0, 900), (409.0, 800))

    def said(caused: View, shows: View = SHOWS) -> str:
        return headline("P50 time", ends, caused, shows, NO_PLACEBO)

    told = said(view("caused", noise), view("shows", noise))
    assert told == (
        "No clear change: P50 time went from 400 ms (n = 900) to 409 ms (n = 800); 95% interval -21.0 ms to +39.0 ms."
        " No cause is told from chance."
    )
    assert "shows up" not in said(view("caused", noise, half=300.0))
    assert "shows up" in said(CAUSED)
    assert "shows up" not in said(CAUSED, view("shows", [share("queue", 20.0, 4.0, Verdict.NAMED)], 90.0))
    assert "because" not in said(view("caused", near, 30.0))
    assert "No cause is told from chance; the largest is changed, 19.0 ± 14.0 ms" in said(
        view("caused", near, 30.0)
    )
    against = [share("cold", -33.0, 31.0, Verdict.UNDECIDED), share("changed", 800.0, 900.0, Verdict.NOISE)]
    assert "the largest is changed, 800 ± 900 ms" in said(view("caused", against, 30.0))
    part = view(
        "shows", [share("changed", 130.0, 20.0, Verdict.NAMED), share("queue", 570.0, 600.0, Verdict.NOISE)]
    )
    assert "it shows up as changed 130 ± 20 of 700 ms, the rest not told from chance" in said(CAUSED, part)
    slight = dataclasses.replace(
        view("caused", [share("changed", 3.0, 0.1, Verdict.SLIGHT)], 0.0, 1.0), least=5.0
    )
    assert "No cause is large enough to be named, 5.0 ms; the largest is changed, 3.0 ± 0.1 ms" in said(
        slight
    )
    assert "of too few requests for an interval" in said(
        view("caused", noise, half=None), refused("shows", "few")
    )
