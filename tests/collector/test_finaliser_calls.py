"""One call, told of by many: what usage fills in, and which of several spans stands."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from clickhouse_connect.driver.client import Client

from collector.dialects import SPAN_DIALECTS
from collector.finaliser import Finaliser
from tests.collector.spans import (
    START_NS,
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

OPENLLMETRY, SEMCONV = "opentelemetry.instrumentation.openai.v1", "opentelemetry.instrumentation.openai_v2"
LAYERS = "ttft_us, e2e_us, queue_us, prefill_us, decode_us, frontend_us, other_us"
TOLD = {"queue_us": 100_000, "prefill_us": 200_000, "decode_us": 1_000_000}
WHOLE = {
    **{"gen_ai.latency.time_to_first_token": 0.5, "gen_ai.latency.e2e": 2.0},
    **{"gen_ai.latency.time_in_queue": 0.1, "gen_ai.latency.time_in_model_prefill": 0.25},
    **{"gen_ai.latency.time_in_model_decode": 1.4, "gen_ai.request.id": "r1"},
}


def finalised(client: Client, *steps: Any) -> Finaliser:
    """Finalise batches one after the other: rows of usage, or exports of spans; then what waits."""
    finaliser = Finaliser(client, grace_s=0)
    for number, content in enumerate(steps):
        kind, batch = ("usage" if isinstance(content, list) else "traces"), f"b{number}"
        if isinstance(content, list):
            insert_usage(client, batch, content)
        else:
            insert(client, kind, batch, exported(content))
        finaliser.finalise(kind, batch)
    finaliser.sweep()
    return finaliser


def call(
    service: str, span_id: int, start_ms: int = 0, ms: int = 2000, scope: str = SEMCONV, **more: Any
) -> Any:
    """A client's span of the call r1."""
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.response.id": "r1", **more}
    at = START_NS + start_ms * 10**6
    return span(
        attributes,
        name="chat m",
        scope=scope,
        service=service,
        span_id=span_id,
        start_ns=at,
        duration_ns=ms * 10**6,
    )


def test_the_layers_in_recorded_responses_are_those_of_the_spans(db: Database, run1: Path) -> None:
    """vLLM says queue, prefill and decode twice: in its span, and in milliseconds in the response."""
    insert_usage(db.client, "u", log_rows(run1))
    finaliser = Finaliser(db.client, grace_s=0)
    finaliser.finalise("usage", "u")
    assert finaliser.sweep() == 175
    layers = "request_id, queue_us, prefill_us, decode_us"
    by_log = {told[0]: told[1:] for told in rows(db.client, layers) if told[1] is not None}
    assert rows(db.client, "countIf(ttft_us IS NULL AND e2e_us IS NULL AND frontend_us IS NULL)") == [(175,)]
    insert_spans(db.client, "t", run1)
    finaliser.finalise("traces", "t")
    by_span = {told[0]: told[1:] for told in rows(db.client, layers)}
    assert len(by_log) == 173
    for request_id, told in by_log.items():
        assert by_span[request_id] == pytest.approx(told, abs=1), request_id


def test_a_log_alone_gives_what_the_server_told(db: Database) -> None:
    told = {**TOLD, "ttft_us": 350_000, "e2e_us": 1_500_000}
    finalised(
        db.client, [usage("r1", device_tokens=1, host_tokens=2, remote_tokens=3, created_tokens=4, **told)]
    )
    assert only(db.client, LAYERS) == (350_000, 1_500_000, 100_000, 200_000, 1_000_000, 50_000, 150_000)
    assert only(db.client, "device_tokens, host_tokens, remote_tokens, created_tokens") == (1, 2, 3, 4)


def test_a_server_that_tells_few_layers_leaves_the_rest_unknown(db: Database) -> None:
    """llama.cpp: neither queueing nor a TTFT."""
    finalised(db.client, [usage("r1", prefill_us=199_887, decode_us=637_557)])
    assert only(db.client, LAYERS) == (None, None, None, 199_887, 637_557, None, None)


@pytest.mark.parametrize("usage_first", [True, False])
def test_the_span_of_a_server_stands_against_its_usage(db: Database, usage_first: bool) -> None:
    log = [usage("r1", cached_tokens=64, ttft_us=1, e2e_us=1, **TOLD)]
    steps = [log, span(WHOLE)] if usage_first else [span(WHOLE), log]
    finalised(db.client, *steps)
    assert only(db.client, LAYERS) == (500_000, 2_000_000, 100_000, 250_000, 1_400_000, 150_000, 100_000)
    assert only(db.client, "cached_tokens") == (64,)


@pytest.mark.parametrize("order", [*permutations(range(3))])
def test_usage_gives_a_client_span_its_layers(db: Database, order: tuple[int, ...]) -> None:
    """Whatever comes first, and though one reading of the response tells only a part."""
    steps = [
        call("vllm", 2, **{"gen_ai.response.time_to_first_chunk": 0.5}),
        [usage("r1", prefill_us=200_000, ttft_us=1)],
        [usage("r1", **TOLD)],
    ]
    finalised(db.client, *(steps[number] for number in order))
    assert only(db.client, LAYERS) == (500_000, 2_000_000, 100_000, 200_000, 1_000_000, 200_000, 500_000)


def test_usage_gives_a_client_span_the_time_to_first_token(db: Database) -> None:
    finalised(db.client, call("vllm", 2), [usage("r1", ttft_us=400_000)])
    assert only(db.client, LAYERS) == (400_000, 2_000_000, None, None, None, None, None)


NESTED = {
    "app": call("app", 1, ms=2000, scope=OPENLLMETRY),
    "library": call("app", 2, start_ms=1, ms=1990),
    "gateway": call("gateway", 3, start_ms=20, ms=1900, scope="litellm"),
    "server": span({**WHOLE, "gen_ai.request.id": "r1"}, span_id=4, start_ns=START_NS + 30 * 10**6),
}


@pytest.mark.parametrize("order", [*permutations(["app", "library", "gateway"])])
def test_of_spans_within_each_other_the_innermost_stands(db: Database, order: tuple[str, ...]) -> None:
    finalised(db.client, *(NESTED[name] for name in order))
    assert rows(db.client, "server, span_id") == [("gateway", 3)]


@pytest.mark.parametrize("order", [*permutations(NESTED)][::5])
def test_a_call_that_everyone_tells_of_is_one_request(db: Database, order: tuple[str, ...]) -> None:
    finalised(db.client, *(NESTED[name] for name in order))
    assert rows(db.client, "server, dialect, span_id") == [("vllm", "vllm", 4)]


def test_a_call_that_everyone_tells_of_in_one_batch(db: Database) -> None:
    insert(db.client, "traces", "t", exported(*(NESTED[name] for name in ("gateway", "app", "library"))))
    Finaliser(db.client).finalise("traces", "t")
    assert rows(db.client, "server, span_id") == [("gateway", 3)]


SERVER_SPANS = {
    "vllm": span(WHOLE, span_id=9),
    "sglang": span({"rid": "r1"}, name=" Req r1", scope="sglang server", span_id=9),
    "trtllm": span({"gen_ai.request.id": "r1"}, scope="trt.llm", span_id=9),
    "engine": span({"gen_ai.request.id": "r1"}, scope="hitmap.engine", span_id=9),
}


def test_every_server_with_spans_has_a_sample_here() -> None:
    assert {dialect.name for dialect in SPAN_DIALECTS if dialect.by_server} == set(SERVER_SPANS)


@pytest.mark.parametrize("dialect", SERVER_SPANS)
@pytest.mark.parametrize("server_first", [True, False])
def test_no_client_doubles_a_server(db: Database, dialect: str, server_first: bool) -> None:
    clients = [call("app", 1), call("gateway", 2, start_ms=20, ms=1900)]
    server = [SERVER_SPANS[dialect]]
    finalised(db.client, *(server + clients if server_first else clients + server))
    assert rows(db.client, "dialect, span_id") == [(dialect, 9)]


def test_a_layer_that_has_another_inside_is_not_counted_twice(db: Database) -> None:
    """SGLang's span counts queueing as prefill; its response tells it apart, which would make it both."""
    told = {"gen_ai.latency.time_in_model_prefill": 0.25, "gen_ai.latency.time_to_first_token": 0.3}
    finalised(
        db.client,
        span({"rid": "r1", **told}, name=" Req r1", scope="sglang server"),
        [usage("r1", server="vllm", queue_us=100_000)],
    )
    assert only(db.client, "queue_us, prefill_us, frontend_us") == (None, 250_000, 50_000)


def test_spans_that_start_together_are_told_apart_by_their_length(db: Database) -> None:
    finalised(db.client, call("gateway", 1, ms=1900), call("app", 2, ms=2000))
    assert rows(db.client, "server") == [("gateway",)]


def test_calls_one_after_the_other_with_one_id_are_two_requests(db: Database) -> None:
    """A driver that names its requests itself and asks two servers the same."""
    finalised(db.client, call("app", 1, ms=2000), call("app", 2, start_ms=2500))
    assert rows(db.client, "span_id") == [(1,), (2,)]
