"""Many of everything at once for some seconds, and a verdict that tells when a promise was not kept;
benchmarks/load.py does it with hundreds for minutes."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.load import main, run
from benchmarks.load_senders import RETRYABLE
from benchmarks.load_verdict import idle, unbounded, unfair

SMALL = {"connections": 24, "servers": 16, "publishers": 6, "every_s": 0.4, "interval_s": 2}


def test_a_mark_within_its_bound_breaks_nothing() -> None:
    assert unbounded({"threads": 9, "open files": 70}, {"threads": 9, "open files": 100}) == []


def test_a_mark_above_its_bound_breaks_it() -> None:
    assert unbounded({"threads": 10}, {"threads": 9}) == ["threads stayed within 9, not 10"]


def test_a_mark_that_nobody_looked_at_breaks_its_bound() -> None:
    assert unbounded({}, {"threads": 9}) == ["threads was measured"]


def test_a_mark_without_a_bound_is_no_promise_kept() -> None:
    assert unbounded({"threads": 3}, {}) == ["threads has a bound, as it reached 3"]


def test_who_delivered_nothing_is_named() -> None:
    assert idle("connection", [3, 0, 1, 0]) == ["each connection delivered something, not 1, 3"]
    assert idle("connection", [3, 1]) == []


def test_many_who_delivered_nothing_are_counted() -> None:
    assert idle("server", [0] * 200) == [
        "each server delivered something, not 0, 1, 2, 3, 4 and 195 more",
    ]


def test_nobody_at_all_delivered_nothing() -> None:
    assert idle("publisher", []) == ["there is a publisher"]


def test_a_refusal_that_says_to_try_again_is_fair_and_a_stalled_store_asks_for_it() -> None:
    refused = dict.fromkeys(RETRYABLE, 5)
    assert unfair(refused, stalled=True) == []
    assert unfair(refused, stalled=False) == []
    assert unfair({}, stalled=False) == []


def test_a_stall_that_no_sender_felt_proves_nothing() -> None:
    missing = "senders were answered '{}' while the store stood still"
    assert unfair({}, stalled=True) == [missing.format(answer) for answer in sorted(RETRYABLE)]


@pytest.mark.parametrize("answer", ["INVALID_ARGUMENT", "HTTP 503", "RESOURCE_EXHAUSTED", "HTTP 500"])
def test_a_refusal_that_does_not_say_to_try_again_is_not_fair(answer: str) -> None:
    assert unfair({answer: 2}, stalled=False) == [
        f"who was refused was told to try again, not 2 times {answer!r}"
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--servers", "0"],
        ["--publishers", "0"],
        ["--connections", "0"],
        ["--connections", "9"],
        ["--seconds", "0"],
        ["--every", "0"],
        ["--spool-limit", "0"],
        ["--servers", "3", "--publishers", "4"],
        ["--seconds", "20", "--stall", "20"],
        ["--stall", "-1"],
    ],
)
def test_a_load_that_would_prove_nothing_is_refused(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["load", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2


@pytest.mark.slow
def test_what_many_senders_were_acknowledged_is_there_and_no_queue_outgrew_its_bound(tmp_path: Path) -> None:
    verdict = run(tmp_path, seconds=10, spool_mb=64, **SMALL)
    assert verdict.broken == []
    assert min(verdict.sent["acknowledged"]) > 0
    assert min(verdict.served["published"]) > 0
    assert verdict.found.keys() == {"traces", "logs", "metrics", "samples", "kv_events"}
    assert min(verdict.found.values()) > 0
    assert {"threads", "open files", "rows waiting, traces", "KV messages waiting"} <= verdict.report[
        "bounds"
    ].keys()


@pytest.mark.slow
def test_a_store_that_stands_still_makes_senders_wait_and_loses_nothing(tmp_path: Path) -> None:
    verdict = run(tmp_path, seconds=12, stall_s=6, spool_mb=1, **SMALL)
    assert verdict.broken == []
    assert verdict.sent["refused"].keys() == RETRYABLE


@pytest.mark.slow
def test_senders_without_time_to_send_are_no_success(tmp_path: Path) -> None:
    verdict = run(tmp_path, seconds=0, spool_mb=64, **SMALL)
    assert any(promise.startswith("each connection delivered something") for promise in verdict.broken)
