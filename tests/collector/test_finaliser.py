"""`requests` built in a real store from recorded spans and logs: whatever the order, the repetition or the crash."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from clickhouse_connect.driver.client import Client

from collector.finaliser import Finaliser
from tests.collector.spans import (
    START_NS,
    at,
    exported,
    insert,
    insert_spans,
    insert_usage,
    log_rows,
    only,
    rows,
    span,
    usage,
)
from tests.conftest import Database

HOUR_NS = 3600 * 10**9
GEN_AI = "opentelemetry.instrumentation.openai_v2"


def finalised(client: Client, *steps: tuple[str, str, Any]) -> Finaliser:
    """Insert and finalise one batch after the other: (kind, batch, payload, or rows of usage, or a recording)."""
    finaliser = Finaliser(client, grace_s=0)
    for kind, batch, content in steps:
        if isinstance(content, Path):
            insert_spans(client, batch, content)
        elif isinstance(content, bytes):
            insert(client, kind, batch, content)
        else:
            insert_usage(client, batch, content)
        finaliser.finalise(kind, batch)
    return finaliser


def staged(client: Client) -> int:
    return int(client.query("SELECT count() FROM requests_staged").result_rows[0][0])


def test_spans_alone_leave_cached_tokens_unknown(db: Database, run1: Path) -> None:
    finalised(db.client, ("traces", "t", run1))
    (told,) = db.client.query(
        "SELECT count(), count(e2e_us), count(ttft_us), count(cached_tokens), count(client_e2e_us), sum(prompt_tokens),"
        " uniqExact(request_id), groupUniqArray((server, dialect)) FROM requests"
    ).result_rows
    assert told == (175, 175, 175, 0, 0, 95_678, 175, [("vllm-tiny", "vllm")])
    assert staged(db.client) == 0


def test_recorded_requests_with_their_log(db: Database, run1: Path) -> None:
    finalised(db.client, ("traces", "t", run1), ("usage", "u", log_rows(run1)))
    (totals,) = db.client.query(
        "SELECT count(), countIf(isNotNull(cached_tokens)), sumIf(prompt_tokens, isNotNull(cached_tokens)),"
        " sum(cached_tokens), countIf(finish_reason = 'abort') FROM requests"
    ).result_rows
    assert totals == (175, 173, 94_499, 56_480, 2)
    rates = db.client.query(
        "SELECT replaceRegexpOne(labels['phase'], '_c\\\\d.*', '') AS phase, count(),"
        " round(100 * sum(cached_tokens) / sumIf(prompt_tokens, isNotNull(cached_tokens)), 1)"
        " FROM requests GROUP BY phase"
    ).result_rows
    assert {phase: (n, rate) for phase, n, rate in rates} == {
        "shared": (43, 83.0),
        "tsfront": (28, 0.0),
        "tsend": (14, 76.1),
        "multiturn": (30, 88.5),
        "long": (10, 55.4),
        "toolshuffle": (12, 48.3),
        "salt": (6, 58.2),
        "mixed_shared": (15, 87.1),
        "mixed_ts": (12, 0.0),
        "mixed_doc": (5, 75.3),
    }


def test_layers_of_recorded_requests_add_up_to_the_microsecond(db: Database, run1: Path) -> None:
    finalised(db.client, ("traces", "t", run1))
    (told,) = db.client.query(
        "SELECT countIf(queue_us + prefill_us + decode_us + frontend_us + other_us = e2e_us),"
        " countIf(queue_us + prefill_us + frontend_us = ttft_us), countIf(other_us < 0),"
        " round(quantileExact(0.5)(frontend_us) / 1000), round(quantileExact(0.95)(frontend_us) / 1000)"
        " FROM requests"
    ).result_rows
    assert told[:2] == (175, 175)
    assert told[2] > 0, "other is signed: it is slightly negative in most recorded requests"
    assert told[3] == 13
    assert told[4] == pytest.approx(280, abs=10)


def test_external_hits_are_in_the_usage(db: Database, run3: Path) -> None:
    finalised(db.client, ("usage", "u", log_rows(run3)), ("traces", "t", run3))
    told = db.client.query(
        "SELECT labels['phase'], count(), sum(cached_tokens) FROM requests GROUP BY 1 ORDER BY 1"
    ).result_rows
    assert told == [("cold", 4, 960), ("external_hit", 4, 1408), ("local_hit", 4, 1408)]


def test_order_of_arrival_does_not_matter(db: Database, run1: Path) -> None:
    log = log_rows(run1)
    finalised(db.client, ("usage", "u", log), ("traces", "t", run1))
    usage_first = rows(db.client)
    for table in ("otel_traces", "request_usage", "request_keys", "requests"):
        db.client.command(f"TRUNCATE TABLE {table}")
    finalised(db.client, ("usage", "u1", log[:40]), ("traces", "t", run1), ("usage", "u2", log[40:]))
    assert rows(db.client) == usage_first


def test_repeating_changes_nothing(db: Database, run1: Path) -> None:
    finaliser = finalised(db.client, ("traces", "t", run1), ("usage", "u", log_rows(run1)))
    before = rows(db.client)
    for kind, batch in [("traces", "t"), ("usage", "u"), ("traces", "t")]:
        finaliser.finalise(kind, batch)
        assert rows(db.client) == before
    assert finaliser.sweep() == 0
    assert rows(db.client) == before


def test_second_replay_moves_the_rows_and_adds_none(db: Database, run1: Path) -> None:
    finaliser = finalised(db.client, ("traces", "t1", run1), ("usage", "u", log_rows(run1)))
    first = rows(db.client, "request_id, time, cached_tokens")
    insert_spans(db.client, "t2", run1, shift_ns=26 * HOUR_NS)
    finaliser.finalise("traces", "t2")
    second = rows(db.client, "request_id, time, cached_tokens")
    assert [(r, c) for r, _, c in second] == [(r, c) for r, _, c in first]
    assert all((b[1] - a[1]).total_seconds() == 26 * 3600 for a, b in zip(first, second, strict=True))
    finaliser.finalise("traces", "t1")
    assert rows(db.client, "request_id, time, cached_tokens") == second, "the later of two plays stands"


def test_both_plays_in_one_batch(db: Database, run1: Path) -> None:
    insert_spans(db.client, "t", run1)
    insert_spans(db.client, "t", run1, shift_ns=HOUR_NS)
    Finaliser(db.client).finalise("traces", "t")
    assert len(rows(db.client)) == 175


class CrashingClient:
    """Passes calls on and dies before the n-th statement that changes something."""

    def __init__(self, client: Client, survives: int) -> None:
        self._client = client
        self._left = survives

    def command(self, statement: str, **more: Any) -> Any:
        if not self._left:
            raise ConnectionError("killed")
        self._left -= 1
        return self._client.command(statement, **more)

    def query(self, *args: Any, **more: Any) -> Any:
        return self._client.query(*args, **more)


@pytest.mark.parametrize("kind", ["traces", "usage"])
def test_crash_anywhere_loses_nothing_and_heals(db: Database, run1: Path, kind: str) -> None:
    insert_spans(db.client, "t1", run1)
    Finaliser(db.client).finalise("traces", "t1")
    insert_spans(db.client, "t2", run1, shift_ns=HOUR_NS)
    insert_usage(db.client, "u", log_rows(run1))
    batch = {"traces": "t2", "usage": "u"}[kind]
    crashes = 0
    for survives in range(20):
        try:
            Finaliser(CrashingClient(db.client, survives)).finalise(kind, batch)  # type: ignore[arg-type]
        except ConnectionError:
            crashes += 1
        else:
            break
        ids = rows(db.client, "DISTINCT request_id")
        assert len(ids) == 175, f"requests were lost by a crash after {survives} statements"
    assert crashes >= 4, "staging, publishing, deleting and dropping are statements of their own"
    assert rows(db.client, "count(), uniqExact(request_id)") == [(175, 175)]
    assert rows(db.client, "count(cached_tokens)") == [(173,)]


def test_crash_before_the_first_rows_stand(db: Database, run1: Path) -> None:
    insert_spans(db.client, "t", run1)
    for survives in range(5):
        with pytest.raises(ConnectionError):
            Finaliser(CrashingClient(db.client, survives)).finalise("traces", "t")  # type: ignore[arg-type]
    Finaliser(db.client).finalise("traces", "t")
    assert rows(db.client, "count(), uniqExact(request_id)") == [(175, 175)]


def test_usage_without_a_span_becomes_a_row_after_the_grace_period(db: Database) -> None:
    row = usage("r1", prompt_tokens=100, cached_tokens=0, client_e2e_us=5, labels={"phase": "p"})
    patient = Finaliser(db.client, grace_s=3600)
    insert_usage(db.client, "u", [row])
    patient.finalise("usage", "u")
    assert patient.sweep() == 0
    assert rows(db.client) == []
    hasty = Finaliser(db.client, grace_s=0)
    hasty.finalise("usage", "u")
    assert hasty.sweep() == 1
    assert hasty.sweep() == 0
    columns = (
        "server, dialect, request_id, span_id, e2e_us, prompt_tokens, cached_tokens, client_e2e_us, labels"
    )
    assert only(db.client, columns) == ("vllm", "log", "r1", 0, None, 100, 0, 5, {"phase": "p"})


def test_the_last_sweep_waits_for_nothing(db: Database) -> None:
    finaliser = Finaliser(db.client, grace_s=3600)
    insert_usage(db.client, "u", [usage("r1", cached_tokens=64)])
    finaliser.finalise("usage", "u")
    assert finaliser.sweep(last=True) == 1
    assert only(db.client, "request_id, cached_tokens") == ("r1", 64)


def test_a_late_span_replaces_the_row_of_the_log(db: Database) -> None:
    finaliser = finalised(db.client, ("usage", "u", [usage("r1", cached_tokens=64)]))
    assert finaliser.sweep() == 1
    insert(db.client, "traces", "t", exported(span({"gen_ai.request.id": "r1"}, span_id=9)))
    finaliser.finalise("traces", "t")
    assert only(db.client, "dialect, span_id, cached_tokens") == ("vllm", 9, 64)


def test_usage_that_a_process_before_left_waiting(db: Database) -> None:
    insert_usage(db.client, "u", [usage("r1"), usage("r2")])
    Finaliser(db.client, grace_s=3600).finalise("usage", "u")
    later = Finaliser(db.client, grace_s=0)
    assert later.sweep() == 2
    assert later.sweep() == 0
    assert len(rows(db.client)) == 2


@pytest.mark.parametrize("first", ["server", "client", "together"])
def test_what_the_server_says_goes_before_what_a_client_says(db: Database, first: str) -> None:
    of = {
        "server": exported(span({"gen_ai.request.id": "r1"}, span_id=1)),
        "client": exported(
            span(
                {"gen_ai.operation.name": "chat", "gen_ai.response.id": "r1"},
                name="chat m",
                scope=GEN_AI,
                service="app",
                span_id=2,
            )
        ),
    }
    if first == "together":
        finalised(db.client, ("traces", "t", of["client"] + of["server"]))
    else:
        second = "client" if first == "server" else "server"
        finalised(db.client, ("traces", "t1", of[first]), ("traces", "t2", of[second]))
    assert only(db.client, "server, dialect, span_id") == ("vllm", "vllm", 1)


def test_two_servers_may_use_the_same_request_ids(db: Database) -> None:
    spans = [span({"gen_ai.request.id": "r1"}, service=name, span_id=n) for n, name in enumerate("ab", 1)]
    log = [usage("r1", "b", cached_tokens=32)]
    finalised(db.client, ("traces", "t", exported(*spans)), ("usage", "u", log))
    assert rows(db.client, "server, cached_tokens") == [("a", None), ("b", 32)]


def test_servers_go_by_their_alias(db: Database) -> None:
    for kind, alias, server in [("service.name", "vllm", "blue"), ("service.instance.id", "i-2", "green")]:
        db.client.insert("server_aliases", [[kind, alias, server]], column_names=["kind", "alias", "server"])
    spans = [
        span({"gen_ai.request.id": "r1"}, span_id=1, instance="i-1"),
        span({"gen_ai.request.id": "r2"}, span_id=2, instance="i-2"),
        span({"gen_ai.request.id": "r3"}, span_id=3, service="other"),
    ]
    finalised(db.client, ("traces", "t", exported(*spans)))
    assert rows(db.client, "request_id, server") == [("r1", "blue"), ("r2", "green"), ("r3", "other")]


def test_a_newer_reading_of_a_response_counts(db: Database) -> None:
    old, new = usage("r1", cached_tokens=1), usage("r1", cached_tokens=2)
    request = exported(span({"gen_ai.request.id": "r1"}))
    finalised(db.client, ("usage", "u1", [old]), ("traces", "t", request), ("usage", "u2", [new]))
    assert only(db.client, "cached_tokens") == (2,)


@pytest.mark.parametrize("order", [("t", "u1", "u2"), ("u1", "t", "u2"), ("u1", "u2", "t")])
def test_a_newer_reading_that_tells_less_takes_nothing_back(db: Database, order: tuple[str, ...]) -> None:
    parts: dict[str, tuple[str, str, Any]] = {
        "t": ("traces", "t", exported(span({"gen_ai.request.id": "r1"}))),
        "u1": ("usage", "u1", [usage("r1", cached_tokens=5)]),
        "u2": ("usage", "u2", [usage("r1", completion_tokens=7)]),
    }
    finaliser = finalised(db.client, *(parts[name] for name in order))
    assert only(db.client, "cached_tokens, completion_tokens") == (5, 7)
    finaliser.finalise("traces", "t")
    assert only(db.client, "cached_tokens, completion_tokens") == (5, 7)


def test_a_span_without_request_id_goes_by_its_span_id(db: Database) -> None:
    spans = [span({"gen_ai.latency.e2e": 1.0}, span_id=n, start_ns=START_NS + n * 10**9) for n in (1, 0xABC)]
    finalised(db.client, ("traces", "t", exported(*spans)))
    assert rows(db.client, "request_id, span_id, time") == [
        ("0000000000000001", 1, at(START_NS + 10**9)),
        ("0000000000000abc", 0xABC, at(START_NS + 0xABC * 10**9)),
    ]


def test_batches_without_requests(db: Database) -> None:
    finaliser = finalised(db.client, ("traces", "t", exported(span({}, name="Load model"))))
    for kind in ("traces", "usage", "logs"):
        finaliser.finalise(kind, "never seen")
    assert rows(db.client) == []
    assert staged(db.client) == 0
