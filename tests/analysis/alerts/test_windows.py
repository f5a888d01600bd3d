"""How windows become alerts: range edges, merging, gaps, how long a breach must hold. Rules with a query of
literals, on a real store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.alerts.evaluate import MOST_ROWS, evaluate
from analysis.alerts.model import Alert, Report, Rule, Verdict
from tests.analysis.alerts.planted import LATER, START, second
from tests.databases import Database, Databases

RULE = Rule(
    id="test", means="m", value="v", unit="ratio", severity="warning", breach="above", threshold=10, window_s=10,
    hold_s=20, gap_s=20, by=("server",), of="samples", minimum=2, needs="rows", sql="",
)  # fmt: skip
BAD, WELL, THIN, NONE = 20.0, 5.0, -1.0, None
T0 = int(START.timestamp())


def rule_of(values: Sequence[float | None], server: str = "s", rule: Rule = RULE, begin: int = T0) -> Rule:
    """A rule that tells these values, a window each; THIN: one with too few samples."""
    window = rule.window_s
    rows = ", ".join(
        f"({begin + window * i}, '{server}', {BAD if v == THIN else v}, {1 if v == THIN else 4})"
        for i, v in enumerate(values)
        if v is not None
    )
    told = "SELECT arrayJoin([" + rows + "]) AS r" if rows else "SELECT (0, '', 0, 0) AS r WHERE 0"
    return replace(rule, sql=f"SELECT r.1 AS at, r.2 AS server, r.3 AS value, r.4 AS samples FROM ({told})")


def judge(db: Database, rule: Rule, begin: float, end: float, now: datetime = LATER) -> Verdict:
    (verdict,) = evaluate(db.client, second(begin), second(end), [rule], now=now).verdicts
    assert verdict.error == ""
    return verdict


class Seen(NamedTuple):
    start: float
    end: float
    windows: int
    state: str


def seen(verdict: Verdict) -> list[Seen]:
    def s(time: datetime) -> float:
        return (time - START).total_seconds()

    return [Seen(s(a.start), s(a.end), a.windows, a.state) for a in verdict.alerts]


def test_consecutive_breaches_are_one_alert(db: Database) -> None:
    values = [WELL, BAD, BAD, 30.0, BAD, WELL, BAD, BAD, WELL]
    verdict = judge(db, rule_of(values), 0, 90)
    assert seen(verdict) == [(10, 50, 4, "resolved"), (60, 80, 2, "resolved")]
    assert (verdict.alerts[0].worst, verdict.alerts[0].worst_at, verdict.alerts[0].samples) == (
        30,
        second(30),
        16,
    )


def test_a_rule_may_breach_below(db: Database) -> None:
    rule = replace(RULE, breach="below")
    verdict = judge(db, rule_of([20.0, 4.0, 3.0, 10.0, 20.0], rule=rule), 0, 50)
    assert seen(verdict) == [(10, 30, 2, "resolved")]
    assert (verdict.alerts[0].worst, verdict.alerts[0].worst_at) == (3, second(20))


@pytest.mark.parametrize("hole", [NONE, THIN])
def test_windows_without_enough_data_do_not_end_an_alert_within_the_gap(
    db: Database, hole: float | None
) -> None:
    assert seen(judge(db, rule_of([BAD, hole, hole, BAD, WELL]), 0, 50)) == [(0, 40, 2, "resolved")]


def test_beyond_the_gap_it_is_over_for_want_of_data(db: Database) -> None:
    verdict = judge(db, rule_of([BAD, BAD, NONE, NONE, NONE, BAD, BAD, WELL]), 0, 80)
    assert seen(verdict) == [(0, 20, 2, "no data"), (50, 70, 2, "resolved")]


def test_an_alert_that_holds_at_the_end_fires_until_data_is_missing_for_too_long(db: Database) -> None:
    rule = rule_of([WELL, BAD, BAD])
    assert seen(judge(db, rule, 0, 30)) == [(10, 30, 2, "firing")]
    assert seen(judge(db, rule, 0, 50)) == [(10, 30, 2, "firing")]
    assert seen(judge(db, rule, 0, 60)) == [(10, 30, 2, "no data")]


def test_the_last_data_of_each_subject_is_told(db: Database) -> None:
    (subject,) = judge(db, rule_of([WELL, BAD, BAD]), 0, 60).subjects
    assert (subject.labels, subject.windows, subject.last) == ({"server": "s"}, 3, second(30))


def test_each_window_is_in_one_of_adjoining_ranges(db: Database) -> None:
    """Cut anywhere, the windows judged on both sides are those of the whole."""
    rule = rule_of([WELL] * 9)
    for cut in (0.5, 10, 14.999, 45, 89.5):
        parts = [judge(db, rule, 0, cut), judge(db, rule, cut, 90)]
        assert sum(s.windows for part in parts for s in part.subjects) == 9, cut


def test_a_window_that_the_end_cuts_is_left_for_later(db: Database) -> None:
    assert seen(judge(db, rule_of([WELL, BAD, BAD]), 0, 29.9)) == []
    assert seen(judge(db, rule_of([BAD, BAD]), 5, 20)) == [(0, 20, 2, "firing")]


def test_a_breach_that_began_before_the_range_counts_for_as_long_as_it_must_hold(db: Database) -> None:
    assert seen(judge(db, rule_of([BAD, BAD, BAD, BAD, WELL]), 30, 50)) == [(10, 40, 3, "resolved")]
    assert seen(judge(db, rule_of([BAD, BAD, BAD, WELL, WELL]), 30, 50)) == []


def test_a_range_without_a_whole_window_is_no_data(db: Database) -> None:
    assert judge(db, rule_of([BAD] * 5), 11, 19).no_data == "no window of 10 s ended in this range"


def test_what_is_younger_than_the_delay_is_judged_later(db: Database) -> None:
    rule = rule_of([BAD] * 6, rule=replace(RULE, delay_s=15))
    assert seen(judge(db, rule, 0, 60, now=second(60))) == [(0, 40, 4, "firing")]
    assert seen(judge(db, rule, 0, 60, now=second(75))) == [(0, 60, 6, "firing")]
    assert (
        judge(db, rule, 0, 60, now=second(20)).no_data
        == "no window of 10 s ended in this range 15 s ago or earlier"
    )


def test_a_value_that_is_no_number_is_not_judged(db: Database) -> None:
    sql = "SELECT toInt64(r) AS at, 's' AS server, if(r = {0}, NULL, if(r = {1}, nan, inf)) AS value, 9 AS samples"
    rows = f" FROM (SELECT arrayJoin([{T0}, {T0 + 10}, {T0 + 20}]) AS r)"
    verdict = judge(db, replace(RULE, sql=sql.format(T0, T0 + 10) + rows), 0, 30)
    assert (verdict.alerts, verdict.thin) == ((), 3)
    assert verdict.no_data == "3 windows, none with 2 samples"


def test_subjects_are_told_apart_and_those_without_a_label_do_not_have_it(db: Database) -> None:
    told = ", ".join(
        f"({T0 + 10 * i}, '{gpu}', {value})"
        for i in range(3)
        for gpu, value in (("a", BAD), ("", BAD), ("b", WELL))
    )
    columns = "r.1 AS at, 'n' AS host, r.2 AS gpu, r.3 AS value, 9 AS samples"
    sql = f"SELECT {columns} FROM (SELECT arrayJoin([{told}]) AS r)"
    verdict = judge(db, replace(RULE, by=("host", "gpu"), sql=sql), 0, 30)
    assert [a.labels for a in verdict.alerts] == [{"host": "n"}, {"host": "n", "gpu": "a"}]
    assert len({a.fingerprint for a in verdict.alerts}) == 2
    assert len(verdict.subjects) == 3


def test_a_fingerprint_stays_the_same_over_time_and_differs_between_rules(db: Database) -> None:
    def one(rule: Rule, begin: float, end: float) -> Alert:
        (alert,) = judge(db, rule, begin, end).alerts
        return alert

    rule = rule_of([BAD] * 9)
    assert one(rule, 0, 40).fingerprint == one(rule, 40, 90).fingerprint
    assert one(replace(rule, id="another"), 0, 40).fingerprint != one(rule, 0, 40).fingerprint
    assert one(rule_of([BAD] * 9, "t"), 0, 40).fingerprint != one(rule, 0, 40).fingerprint


def test_a_rule_that_the_store_cannot_answer_does_not_keep_the_others_from_it(db: Database) -> None:
    broken = [
        replace(RULE, id="typo", sql="SELECT nothing FROM nowhere"),
        replace(RULE, id="column", sql="SELECT 1 AS at"),
    ]
    report = evaluate(db.client, second(0), second(30), [*broken, rule_of([BAD] * 3)], now=LATER)
    assert [bool(verdict.error) for verdict in report.verdicts] == [True, True, False]
    assert "nowhere" in report.verdicts[0].error
    assert len(report.alerts) == 1
    assert not report.judged


def test_an_answer_too_long_is_refused_and_not_cut(db: Database) -> None:
    sql = f"SELECT {T0} AS at, toString(number) AS server, 1 AS value, 9 AS samples FROM numbers({{n}})"
    few = evaluate(
        db.client, second(0), second(30), [replace(RULE, sql=sql.format(n=MOST_ROWS - 1))], now=LATER
    )
    assert len(few.verdicts[0].subjects) == MOST_ROWS - 1
    many = evaluate(db.client, second(0), second(30), [replace(RULE, sql=sql.format(n=MOST_ROWS))], now=LATER)
    assert many.verdicts[0].error == "more than 20,000 alerts and subjects: ask for a shorter time"
    assert not many.judged


def test_a_rule_that_is_switched_off_is_not_asked(db: Database) -> None:
    report = evaluate(db.client, second(0), second(30), [replace(RULE, enabled=False)], now=LATER)
    assert report == Report(second(0), second(30), ())
    assert not report.judged


def test_the_gravest_alert_is_told_first_then_the_newest(db: Database) -> None:
    early, late = rule_of([BAD, BAD, WELL]), rule_of([WELL, BAD, BAD, WELL])
    table = [replace(early, id="a"), replace(late, id="b"), replace(early, id="c", severity="critical")]
    report = evaluate(db.client, second(0), second(60), table, now=LATER)
    assert [alert.rule.id for alert in report.alerts] == ["c", "b", "a"]


def _runs(values: Sequence[float | None], hold: int, gap: int) -> list[Seen]:
    """What is to come out, one window after the other. All ranges here end with the last window."""
    judged = [(i * 10, v) for i, v in enumerate(values) if v is not None and v != THIN]
    runs: list[list[int]] = []
    for number, (at, value) in enumerate(judged):
        if value != BAD:
            continue
        before = judged[number - 1] if number else None
        if before and before[1] == BAD and at - before[0] <= 10 + gap:
            runs[-1].append(at)
        else:
            runs.append([at])
    found = []
    for run in runs:
        if len(run) * 10 < hold:
            continue
        later = [at for at, _ in judged if at > run[-1]]
        if later:
            state = "resolved" if later[0] - run[-1] <= 10 + gap else "no data"
        else:
            state = "firing" if len(values) * 10 - run[-1] <= 10 + gap else "no data"
        found.append(Seen(run[0], run[-1] + 10, len(run), state))
    return found


@pytest.fixture(scope="module")
def store(databases: Databases) -> Database:
    with databases.migrated() as database:
        yield database  # type: ignore[misc]


@settings(max_examples=60)
@given(
    values=st.lists(st.sampled_from([BAD, BAD, WELL, THIN, NONE]), max_size=25),
    hold=st.sampled_from([0, 5, 10, 25, 40]),
    gap=st.sampled_from([0, 5, 10, 30]),
)
def test_alerts_are_what_the_windows_say(
    store: Database, values: list[float | None], hold: int, gap: int
) -> None:
    rule = rule_of(values, rule=replace(RULE, hold_s=hold, gap_s=gap))
    verdict = judge(store, rule, 0, max(10, 10 * len(values)))
    assert seen(verdict) == _runs(values, hold, gap)
    judged = sum(v is not None and v != THIN for v in values)
    assert sum(s.windows for s in verdict.subjects) == judged
    assert verdict.thin == sum(v == THIN for v in values)
    assert bool(verdict.no_data) == (judged == 0)


@settings(max_examples=30)
@given(values=st.lists(st.sampled_from([BAD, WELL, NONE]), min_size=12, max_size=20), cut=st.integers(1, 119))
def test_no_breach_is_lost_where_two_ranges_meet(
    store: Database, values: list[float | None], cut: int
) -> None:
    """What fires in the whole range fires in one of its halves, in which it ends or holds."""
    rule = rule_of(values, rule=replace(RULE, hold_s=20, gap_s=0))
    length = 10 * len(values)
    whole = judge(store, rule, 0, length).alerts
    halves = [*judge(store, rule, 0, cut).alerts, *judge(store, rule, cut, length).alerts]
    for alert in whole:
        assert any(part.end == alert.end for part in halves), (alert, halves)
    assert all(part.end - part.start >= timedelta(seconds=20) for part in halves)
