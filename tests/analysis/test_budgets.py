"""A report held against budgets: exceeded only by what is named, undecided where chance could be it."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from analysis.attribution.model import Verdict
from analysis.report.budget_text import to_markdown, to_terminal
from analysis.report.budgets import Budget, Decision, Outcome, decide, parse_budget
from analysis.report.json import to_json
from analysis.report.model import Report
from cachemodel.errors import UsageError
from tests.analysis.attributions import CAUSED, SHOWS, attributed, made, refused, share, view
from tests.analysis.sets import compared, requests


@pytest.fixture(scope="module")
def report() -> Report:
    return compared(requests(600, 1, 30, 0.75, "e2e"), requests(700, 2, 110, 0.0, "e2e"), "e2e", 0.5)


def decided(report: Report, name: str, limit: float, **views: object) -> Decision:
    return decide(attributed(report, made(**views)), [Budget(name, limit)])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "name", "limit"),
    [
        ("changed=20ms", "changed", 20.0),
        (" decode speed = 1.5 s ", "decode speed", 1500.0),
        ("total=250us", "total", 0.25),
    ],
)
def test_a_budget_is_a_name_and_a_time(text: str, name: str, limit: float) -> None:
    assert parse_budget(text) == Budget(name, limit)


@pytest.mark.parametrize(
    "text", ["changed", "changed=20", "=20ms", "changed=-1ms", "changed=20 min", "a=b=2ms"]
)
def test_what_is_no_budget_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="write changed=20ms"):
        parse_budget(text)


@pytest.mark.parametrize(
    ("value", "half", "verdict", "limit", "outcome"),
    [
        (30.0, 5.0, Verdict.NAMED, 20.0, Outcome.EXCEEDED),
        (30.0, 5.0, Verdict.NAMED, 31.0, Outcome.WITHIN),
        (30.0, 5.0, Verdict.SLIGHT, 20.0, Outcome.EXCEEDED),  # what matters is what the budget says
        (30.0, 40.0, Verdict.NOISE, 20.0, Outcome.UNDECIDED),
        (30.0, 5.0, Verdict.UNDECIDED, 20.0, Outcome.UNDECIDED),
        (30.0, None, Verdict.UNDECIDED, 20.0, Outcome.UNDECIDED),
        (5.0, None, Verdict.UNDECIDED, 20.0, Outcome.UNDECIDED),
        (-30.0, 5.0, Verdict.NAMED, 20.0, Outcome.WITHIN),
        (0.0, 40.0, Verdict.NOISE, 20.0, Outcome.WITHIN),
    ],
)
def test_a_cause_against_its_budget(
    value: float, half: float | None, verdict: Verdict, limit: float, outcome: Outcome, report: Report
) -> None:
    caused = view("caused", [share("changed", value, half, verdict)])
    decision = decided(report, "changed", limit, caused=caused)
    assert decision.outcome is outcome
    if outcome is Outcome.WITHIN and half and value + half > limit:
        assert "may be up to" in decision.lines[0].why


@pytest.mark.parametrize(
    ("budget", "told", "why"),
    [
        ("changed", "hits", "which prompts lost their hits is not known here"),
        ("unknown", "hits", "which prompts lost their hits is not known here"),
        ("hits", "changed", "lost hits are told by cause here: hold changed"),
        ("evicted", "capacity", "what is evicted counts as capacity"),
    ],
)
def test_a_cause_that_is_told_under_another_name_may_have_changed(
    budget: str, told: str, why: str, report: Report
) -> None:
    line = decided(
        report, budget, 20.0, caused=view("caused", [share(told, 1609.0, 382.0, Verdict.NAMED)])
    ).lines[0]
    assert (line.outcome, line.value) == (Outcome.UNDECIDED, None)
    assert why in line.why


def test_no_budget_holds_where_most_of_the_change_has_no_name(report: Report) -> None:
    caused = view("caused", [share("changed", 3.0, 5.0, Verdict.NOISE)], 200.0)
    line = decided(report, "changed", 20.0, caused=caused).lines[0]
    assert line.outcome is Outcome.UNDECIDED
    assert line.why == "+200 ms of +203 ms is not explained: it may be of this"


def test_one_budget_a_name(report: Report) -> None:
    with pytest.raises(UsageError, match="there are several budgets for total: give one each"):
        decide(attributed(report, made()), [Budget("total", 1.0), Budget("total", 2.0)])
    assert parse_budget("total=1e3ms") == Budget("total", 1000.0)


def test_requests_that_are_in_both_sets_decide_nothing(report: Report) -> None:
    same = replace(attributed(report, made()), shared=report.a.n)
    with pytest.raises(UsageError, match="all requests of one set are in the other one"):
        decide(same, [Budget("total", 1.0)])


def test_what_is_not_decided_says_which_proof_it_lacks(report: Report) -> None:
    few = replace(share("queue", 60.0, 45.0, Verdict.UNDECIDED, "20 -> 61 ms"), sigmas=2.6)
    itself = replace(few, sigmas=9.0, own_sigmas=2.0)
    why = [
        decided(report, "queue", 20.0, shows=replace(view("shows", [one]), gate=3.2)).lines[0].why
        for one in (few, itself)
    ]
    assert why == [
        "not told from chance, 2.6 sigmas of the 3.2 that it takes; compare more requests",
        "it changed itself by 2.0 sigmas of the 3 that it takes (20 -> 61 ms); compare more requests",
    ]


def test_a_cause_that_is_not_looked_at_did_not_change(report: Report) -> None:
    line = decided(report, "evicted", 1.0).lines[0]
    assert (line.outcome, line.value, line.why) == (Outcome.WITHIN, 0.0, "its input did not change")


def test_without_a_twin_the_direct_effect_can_exceed_a_budget_and_not_keep_within_it(report: Report) -> None:
    none = refused("caused", "no layers are told")
    shows = view("shows", [share("changed", 30.0, 5.0, Verdict.NAMED)])
    assert decided(report, "changed", 20.0, caused=none, shows=shows).outcome is Outcome.EXCEEDED
    kept = decided(report, "changed", 40.0, caused=none, shows=shows)
    assert (kept.outcome, kept.lines[0].why) == (Outcome.UNDECIDED, "no layers are told")
    assert decided(report, "capacity", 40.0, caused=none, shows=shows).lines[0].value is None


def test_a_layer_is_read_where_it_shows(report: Report) -> None:
    line = decided(report, "queue", 20.0).lines[0]
    assert (line.outcome, line.value, line.view) == (Outcome.EXCEEDED, 48.0, "shows")


def test_the_total_is_the_change_of_the_quantile(report: Report) -> None:
    line = decided(report, "total", 20.0).lines[0]
    assert (line.outcome, line.value, line.low) == (Outcome.EXCEEDED, CAUSED.change, CAUSED.change_low)
    assert decided(report, "total", 290.0).lines[0].why.startswith("it may be up to 306 ms")
    assert decided(report, "total", 500.0).lines[0].why == ""
    wide = view("caused", [share("changed", 276.0, 400.0, Verdict.NOISE)], half=400.0)
    assert decided(report, "total", 20.0, caused=wide).outcome is Outcome.UNDECIDED
    none = [refused(kind, "few") for kind in ("caused", "shows")]
    few = replace(made(*none), composition=refused("composition", "few"))
    assert decide(attributed(report, few), [Budget("total", 500.0)]).outcome is Outcome.UNDECIDED


def test_the_worst_budget_decides(report: Report) -> None:
    found = attributed(report, made(shows=SHOWS))
    budgets = [Budget("changed", 500.0), Budget("prefill", 20.0)]
    assert decide(found, budgets).outcome is Outcome.UNDECIDED
    assert decide(found, [*budgets, Budget("queue", 20.0)]).outcome is Outcome.EXCEEDED


def test_an_unknown_name_says_which_there_are(report: Report) -> None:
    with pytest.raises(UsageError, match="nothing is called 'Chagned' here; did you mean changed"):
        decided(report, "Chagned", 1.0)
    with pytest.raises(UsageError, match="nothing is called 'x' here; budgets are for total, workload"):
        decided(report, "x", 1.0)


def test_what_people_and_programs_get(report: Report) -> None:
    decision = decide(attributed(report, made()), [Budget("changed", 20.0), Budget("workload", 20.0)])
    paper = io.StringIO()
    to_terminal(decision, Console(file=paper, width=110, highlight=False))
    flat = " ".join(paper.getvalue().split())
    assert flat.startswith("hitmap gate: budget exceeded P99 end-to-end time rose by 276 ms")
    assert "changed 20.0 ms +240 +215 to +265 exceeded" in flat
    comment = to_markdown(decision)
    assert comment.startswith("### hitmap gate: budget exceeded\n")
    assert "| **changed** | **20.0 ms** |" in comment
    assert "<details>" in comment
    told = json.loads(to_json(decision))
    assert (told["schema"], told["outcome"], told["lines"][0]["outcome"]) == (1, "exceeded", "exceeded")
    assert told["report"]["attribution"]["caused"]["shares"][0]["verdict"] == "named"
