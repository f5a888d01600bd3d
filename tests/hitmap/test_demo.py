"""`hitmap demo` on the live engine: what a newcomer sees first."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.attribution.model import Verdict
from analysis.twin.workload import FEWEST
from cachemodel.errors import UserError
from hitmap.demo import live, periods
from hitmap.demo.engine_process import engine
from hitmap.demo.unnamed import unnamed
from hitmap.load.plan import Schedule
from hitmap.load.summary import Quantiles, Summary, Tally
from tests.analysis.attributions import attributed, made, refused, share, view
from tests.analysis.sets import compared, requests

pytestmark = pytest.mark.timeout(1260)  # a busy machine takes 200 s for a hundred requests, thrice


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The report of a demo as short as it gets, as data."""
    home = tmp_path_factory.mktemp("demo")
    command = [sys.executable, "-m", "hitmap", "demo", "--seconds", "10", "--json", "--keep", str(home)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_the_clock_at_the_top_takes_the_cache_away(told: dict[str, Any]) -> None:
    cached = next(line for line in told["tokens"] if line["source"] == "cached")
    assert cached["share"]["a"]["value"] > 0.5
    assert cached["share"]["b"]["value"] < 0.35
    assert cached["share"]["change"]["high"] < 0


def test_both_periods_send_the_same_requests(told: dict[str, Any]) -> None:
    assert told["a"]["n"] == told["b"]["n"] >= FEWEST, "of fewer no cause is told"
    assert told["a"]["cached_unknown"] == told["b"]["cached_unknown"] == 0
    assert told["a"]["servers"] == ["demo-engine"]


def test_the_layers_add_up_to_the_quantile(told: dict[str, Any]) -> None:
    p50 = next(line for line in told["quantiles"] if line["name"] == "P50")
    for part in ("a", "b"):
        assert sum(line["part"][part]["value"] for line in told["layers"]) == pytest.approx(
            p50[part]["value"]
        )
    assert {"queue", "prefix", "host", "remote", "prefill"} <= {line["layer"] for line in told["layers"]}


def test_the_rewriter_brings_the_cache_back(told: dict[str, Any]) -> None:
    """It moves the clock; what it saves is what the replay said, but for replies that come out otherwise."""
    first = told["advice"]["suggestions"][0]
    assert (first["cause"], first["path"], first["safety"]) == ("clock", "messages[0].content", "move")
    assert "-Current time: " in first["diff"]
    proof = told["verified"]
    saved = proof["computed_as_sent"] - proof["computed_rewritten"]
    predicted = proof["computed_as_sent"] - proof["computed_predicted"]
    assert saved > 0.4 * proof["computed_as_sent"]
    assert saved == pytest.approx(predicted, rel=0.1)
    assert proof["p95_saved_ms"]["low"] is not None
    priced = told["advice"]["price"]
    assert (priced is None) == (proof["p95_predicted_ms"] is None) == bool(told["advice"]["no_price"])


def test_a_rewriter_changes_bodies_and_nothing_else_of_a_plan() -> None:
    plain = list(periods.plan(periods.AFTER, 2.0, 10.0))
    through = list(periods.plan(periods.AFTER, 2.0, 10.0, lambda body: {**body, "user": "u"}))
    assert [(one.due_s, one.session, one.labels) for one in plain] == [
        (one.due_s, one.session, one.labels) for one in through
    ]
    for one, other in zip(plain, through, strict=True):
        assert other.body([""] * 9) == {**one.body([""] * 9), "user": "u"}


def test_an_engine_that_cannot_serve_is_told_in_its_own_words(tmp_path: Path) -> None:
    options = ["--model", str(tmp_path / "no-such-folder")]
    with (
        pytest.raises(UserError, match=r"did not begin to serve: .*no-such-folder"),
        engine(tmp_path / "log", options),
    ):
        pass


def summary(alone_s: float, wall_s: float = 50.0) -> Summary:
    tally = Tally(planned=16, sent=16, completed=16)
    measured = Quantiles(alone_s, alone_s, alone_s, alone_s, 16)
    return replace(
        tally.summary("x", Schedule(16, wall_s, wall_s), wall_s, interrupted=False), e2e_s=measured
    )


@given(st.floats(0.01, 5.0))
def test_however_slow_the_machine_enough_requests_for_a_cause_are_sent(alone_s: float) -> None:
    rate = periods.rate_of(alone_s)
    seconds = periods.ENOUGH / rate
    assert seconds <= periods.LONGEST_S * 1.01
    assert periods.plan(periods.BEFORE, rate, seconds).schedule().requests >= FEWEST
    if rate > 1.01 * periods.ENOUGH / periods.LONGEST_S:
        assert rate * alone_s < 1, "it is not overloaded"
    assert f"{rate:g} requests a second for {seconds:.0f} s" in live._outlook(summary(alone_s), rate, seconds)


def test_the_probe_sends_other_prompts_one_after_the_other() -> None:
    plan = periods.one_by_one(periods.PROBE)
    for _ in range(2):  # it is gone through more than once
        sent = list(plan)
        assert len(sent) == periods.PROBES
        assert {(planned.due_s, planned.session) for planned in sent} == {(0.0, "probe")}
    systems = [planned.body([""] * at)["messages"][0]["content"] for at, planned in enumerate(sent)]
    assert len(set(systems)) == len(systems), "a cache helps none of them"


SLOWER = share("decode speed", 20.0, 90.0, Verdict.NOISE, "a decode pass of 2 9 ms -> 15 ms")
NOBODY = view("caused", [share("changed", 300.0, 400.0, Verdict.NOISE, "20.6 % -> 80.4 %"), SLOWER])


def test_where_nothing_is_named_it_says_what_the_machine_was_and_what_to_try() -> None:
    report = compared(
        requests(200, 1, 30, 0.75, "e2e"), requests(200, 2, 110, 0.0, "e2e"), "e2e", 0.5, ("a", "b")
    )
    assert unnamed(attributed(report, made()), 4.0, 60.0) == []
    told = " ".join(unnamed(attributed(report, made(NOBODY)), 4.0, 60.0))
    assert "No cause is named" in told
    assert "before -> after: a decode pass of 2 9 ms -> 15 ms" in told
    assert "20.6 %" not in told, "which is what the demo changes"
    assert "4.0 processes wanted each processor" in told
    assert "hitmap demo --seconds 120" in told
    off = refused("caused", "the twin is off")
    assert unnamed(attributed(report, made(off)), 0.1, 60.0) == [], "it is named where it shows"
    quiet = " ".join(unnamed(attributed(report, made(off, NOBODY)), 0.1, 60.0))
    assert "No cause is named: the twin is off." in quiet
    assert "busy" not in quiet


def test_it_says_what_caused_it_or_why_that_cannot_be_told(told: dict[str, Any]) -> None:
    """The largest of its causes is the clock, unless the machine itself changed too much to tell."""
    found = told["attribution"]
    caused = found["caused"]
    if caused["refused"]:
        assert caused["refused"] in found["headline"]
        assert not caused["shares"]
    else:
        assert max(caused["shares"], key=lambda share: share["value"])["name"] == "changed"
    assert found["shows"]["shares"]
    assert told["answer"].startswith(found["headline"])
