"""What each dialect reads from a span: units, missing and unbelievable values, spellings, whose span it is."""

from __future__ import annotations

import math
from itertools import count
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from collector.finaliser import Finaliser
from tests.collector.spans import Attributes, exported, insert, span
from tests.conftest import Database

TTFT, E2E = "gen_ai.latency.time_to_first_token", "gen_ai.latency.e2e"
QUEUE, PREFILL = "gen_ai.latency.time_in_queue", "gen_ai.latency.time_in_model_prefill"
DECODE = "gen_ai.latency.time_in_model_decode"
WHOLE = {TTFT: 0.5, E2E: 2.0, QUEUE: 0.1, PREFILL: 0.25, DECODE: 1.4}
LAYERS = ("queue_us", "prefill_us", "decode_us", "frontend_us", "other_us")
_batches = count()

Case = tuple[ExportTraceServiceRequest, dict[str, Any]]


def read(db: Database, *requests: ExportTraceServiceRequest) -> dict[int, dict[str, Any]]:
    """span id -> row, for spans finalised as one batch."""
    batch = f"b{next(_batches)}"
    insert(db.client, "traces", batch, exported(*requests))
    Finaliser(db.client).finalise("traces", batch)
    answer = db.client.query("SELECT * FROM requests")
    return {row["span_id"]: row for row in answer.named_results()}


def check(db: Database, cases: dict[str, Case]) -> None:
    """Every case's span gives the values expected of it."""
    requests = []
    for number, (request, _) in enumerate(cases.values(), 1):
        request.resource_spans[0].scope_spans[0].spans[0].span_id = number.to_bytes(8)
        requests.append(request)
    found = read(db, *requests)
    told = {name: found.get(number, {}) for number, name in enumerate(cases, 1)}
    assert {
        name: {column: told[name].get(column, "no row") for column in expected}
        for name, (_, expected) in cases.items()
    } == {name: expected for name, (_, expected) in cases.items()}


def vllm(changed: Attributes) -> ExportTraceServiceRequest:
    return span({**WHOLE, **changed})


def without(name: str) -> ExportTraceServiceRequest:
    return span({key: value for key, value in WHOLE.items() if key != name})


def test_vllm(db: Database) -> None:
    unknown = {"frontend_us": None, "other_us": None}
    check(
        db,
        {
            "whole": (
                vllm({"gen_ai.usage.prompt_tokens": 371, "gen_ai.usage.completion_tokens": 16}),
                {
                    **{"dialect": "vllm", "server": "vllm", "model": ""},
                    **{"ttft_us": 500_000, "e2e_us": 2_000_000, "queue_us": 100_000, "prefill_us": 250_000},
                    **{"decode_us": 1_400_000, "frontend_us": 150_000, "other_us": 100_000},
                    **{"prompt_tokens": 371, "completion_tokens": 16, "cached_tokens": None},
                    **{"host_us": None, "remote_us": None, "prefix_us": None, "response_us": None},
                },
            ),
            "zero is a value": (vllm({QUEUE: 0.0}), {"queue_us": 0, "frontend_us": 250_000}),
            "clocks disagree": (vllm({TTFT: 0.34, E2E: 1.7}), {"frontend_us": -10_000, "other_us": -40_000}),
            "no queue": (without(QUEUE), {"queue_us": None, "ttft_us": 500_000, **unknown}),
            "no ttft": (without(TTFT), {"ttft_us": None, "prefill_us": 250_000, **unknown}),
            "no decode": (without(DECODE), {"decode_us": None, "frontend_us": 150_000, "other_us": None}),
            "no e2e": (without(E2E), {"e2e_us": None, "frontend_us": 150_000, "other_us": None}),
            "not a number": (vllm({QUEUE: math.nan}), {"queue_us": None, **unknown}),
            "infinite": (vllm({E2E: math.inf}), {"e2e_us": None, "other_us": None}),
            "negative": (vllm({PREFILL: -0.25}), {"prefill_us": None, **unknown}),
            "absurd": (vllm({DECODE: 1e300}), {"decode_us": None, "other_us": None}),
            "text": (vllm({TTFT: "soon"}), {"ttft_us": None, **unknown}),
            "number as text": (vllm({TTFT: "0.5"}), {"ttft_us": 500_000}),
            "tokens absurd": (
                vllm({"gen_ai.usage.prompt_tokens": -1, "gen_ai.usage.completion_tokens": 2**40}),
                {"prompt_tokens": None, "completion_tokens": None},
            ),
            "tokens absent": (vllm({}), {"prompt_tokens": None, "completion_tokens": None}),
            "older scope": (span(WHOLE, scope="vllm.llm_engine"), {"dialect": "vllm"}),
            "one attribute more": (vllm({"gen_ai.later.version": "x"}), {"dialect": "vllm"}),
        },
    )


def test_spans_that_are_no_request(db: Database) -> None:
    assert (
        read(
            db,
            span(WHOLE, name="Load model", span_id=1),
            span(WHOLE, name="llm_request", scope="someone.else", span_id=2),
            span({"gen_ai.operation.name": "embeddings"}, name="embeddings m", scope="x", span_id=3),
            span({"gen_ai.operation.name": "execute_tool"}, name="execute_tool t", scope="x", span_id=4),
            span({"gen_ai.operation.name": "invoke_agent"}, name="invoke_agent a", scope="x", span_id=6),
            span({"openinference.span.kind": "CHAIN"}, name="chain", scope="openinference", span_id=7),
            span({"langfuse.observation.type": "span"}, name="step", scope="langfuse-sdk", span_id=8),
            span({}, name="GET /", scope="x", span_id=5),
        )
        == {}
    )


def test_a_span_of_vllm_is_not_read_as_gen_ai_too(db: Database) -> None:
    row = read(db, span({**WHOLE, "gen_ai.operation.name": "chat", "gen_ai.request.id": "r"}))
    assert {told["dialect"] for told in row.values()} == {"vllm"}
    assert len(row) == 1


seconds = st.floats(0, 1e5) | st.just(0.0)


@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.tuples(seconds, seconds, seconds, seconds, seconds), min_size=1, max_size=60))
def test_layers_add_up_to_the_microsecond(db: Database, drawn: list[tuple[float, ...]]) -> None:
    for table in ("otel_traces", "requests"):  # spans that came before would be taken for a repeated batch
        db.client.command(f"TRUNCATE TABLE {table}")
    spans = [
        span(dict(zip(WHOLE, values, strict=True)), span_id=number) for number, values in enumerate(drawn, 1)
    ]
    found = read(db, *spans)
    assert len(found) == len(drawn)
    for number, values in enumerate(drawn, 1):
        row = found[number]
        assert row["e2e_us"] == round(values[1] * 1e6)
        assert sum(row[layer] for layer in LAYERS) == row["e2e_us"]
        assert row["queue_us"] + row["prefill_us"] + row["frontend_us"] == row["ttft_us"]
