"""A request as its spans: what adds up, what is named, and what stays out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind
from opentelemetry.trace.status import StatusCode

from engine.faults import LAYERS
from engine.request import FinishReason, Request, TokenSources
from engine.telemetry import names
from engine.telemetry.spans import Tracer
from tests.engine.telemetry.made import START_NS, request

TRACER = Tracer(Resource.create({"service.name": "e"}), "1")
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def made(ended: Request, tracer: Tracer = TRACER) -> tuple[ReadableSpan, list[ReadableSpan]]:
    root, *children = tracer.spans(ended)
    return root, children


@given(st.lists(st.tuples(st.sampled_from(LAYERS), st.integers(0, 10**11)), min_size=1, max_size=40))
def test_children_follow_each_other_and_add_up_to_the_root(passed: list[tuple[str, int]]) -> None:
    root, children = made(request(passed=passed))
    assert (root.start_time, children[0].start_time) == (START_NS, START_NS)
    assert [child.end_time for child in children[:-1]] == [child.start_time for child in children[1:]]
    assert children[-1].end_time == root.end_time
    told = dict(root.attributes or {})
    layers = [float(str(told[name])) for name in told if ".latency." in name and _is_layer(name)]
    assert sum(layers) == pytest.approx(float(str(told["gen_ai.latency.e2e"])), abs=1e-9)


def _is_layer(name: str) -> bool:
    return not name.endswith((".e2e", ".time_to_first_token"))


def test_the_root_is_the_request() -> None:
    root, children = made(request())
    assert (root.name, root.kind, root.parent) == ("llm_request", SpanKind.SERVER, None)
    told = dict(root.attributes or {})
    assert told["gen_ai.response.finish_reasons"] == ("length",)
    assert (told["gen_ai.usage.input_tokens"], told["gen_ai.usage.output_tokens"]) == (100, 7)
    assert told["gen_ai.usage.cache_read.input_tokens"] == 64
    assert [told[f"hitmap.tokens.{s}"] for s in ("device", "host", "remote", "computed")] == [32, 16, 16, 36]
    assert told["gen_ai.latency.time_to_first_token"] == pytest.approx(0.091)
    assert told["gen_ai.latency.time_in_model_prefill"] == pytest.approx(0.031)
    assert told["cache.key"] == "6"
    assert told["cache.hit"] is True
    assert told["hitmap.block_hashes"] == f"{2**64 - 1},5,6"
    assert "hitmap.fault" not in told
    assert [child.name for child in children] == [
        "frontend", "queue", "prefix_lookup", "load host", "load remote", "prefill", "prefill", "decode", "deliver"
    ]  # fmt: skip
    assert {child.kind for child in children} == {SpanKind.INTERNAL}
    assert {child.parent.span_id for child in children if child.parent} == {root.context.span_id}
    assert len({child.context.span_id for child in children}) == 9


def test_every_layer_has_a_span_of_its_own() -> None:
    assert set(names.SPANS) == set(names.LATENCIES) == set(LAYERS)
    assert len(set(names.SPANS.values())) == len(LAYERS)
    assert len({attribute.name for attribute in names.ATTRIBUTES + names.TEXTS}) == len(
        names.ATTRIBUTES
    ) + len(names.TEXTS)


def test_it_stands_in_the_trace_of_its_caller() -> None:
    root, children = made(request(traceparent=PARENT, tracestate="a=b"))
    assert root.parent is not None
    assert root.parent.span_id == 0x00F067AA0BA902B7
    assert {span.context.trace_id for span in (root, *children)} == {0x4BF92F3577B34DA6A3CE929D0E0E4736}
    assert root.context.trace_state.to_header() == "a=b"


def test_a_caller_that_does_not_sample_gets_no_spans() -> None:
    assert TRACER.spans(request(traceparent=PARENT[:-1] + "0")) == []


@pytest.mark.parametrize("header", ["", "rubbish", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", PARENT[:-4]])
def test_a_header_that_tells_no_parent_begins_a_trace(header: str) -> None:
    root, _ = made(request(traceparent=header))
    assert root.parent is None
    assert root.context.trace_id != 0


def test_two_requests_are_two_traces() -> None:
    assert made(request())[0].context.trace_id != made(request())[0].context.trace_id


def test_what_never_happened_is_left_out() -> None:
    """Given up in the queue: no first token, no blocks, nothing found."""
    ended = request(
        passed=[("frontend", 5), ("queue", 7), ("other", 1)],
        output=[],
        sources=TokenSources(),
        block_hashes=[],
        finish_reason=FinishReason.ABORT,
    )
    root, _ = made(ended)
    told = dict(root.attributes or {})
    assert told["gen_ai.response.finish_reasons"] == ("abort",)
    assert not {"gen_ai.latency.time_to_first_token", "cache.key", "hitmap.block_hashes"} & set(told)
    assert (told["gen_ai.latency.time_in_queue"], told["hitmap.latency.host"]) == (7e-9, 0.0)
    assert told["cache.hit"] is False
    assert root.status.status_code is StatusCode.UNSET


def test_a_failure_is_one() -> None:
    root, _ = made(request(error="out of memory", finish_reason=FinishReason.ERROR))
    assert root.status.status_code is StatusCode.ERROR
    assert root.status.description == "out of memory"
    assert (root.attributes or {})["error.type"] == "engine_failed"


def test_a_fault_is_marked_where_it_struck_and_on_the_root() -> None:
    ended = request()
    for number, mark in ((1, "layer=queue,delay_ms=5"), (5, "x"), (6, "x")):
        ended.timeline.intervals[number].attributes["fault"] = mark
    root, children = made(ended)
    assert (root.attributes or {})["hitmap.fault"] == "layer=queue,delay_ms=5; x"
    struck = [child.name for child in children if "hitmap.fault" in (child.attributes or {})]
    assert struck == ["queue", "prefill", "prefill"]


def test_a_fault_of_the_cache_marks_whoever_ran_while_it_was_on() -> None:
    asked: list[tuple[int, int]] = []

    def during(start_ns: int, end_ns: int) -> tuple[str, ...]:
        asked.append((start_ns, end_ns))
        return "evict=1", "x"

    ended = request()
    ended.timeline.intervals[1].attributes["fault"] = "x"
    tracer = Tracer(Resource.create({}), "1", during)
    root, _ = made(ended, tracer)
    assert (root.attributes or {})["hitmap.fault"] == "x; evict=1"
    assert asked == [(ended.timeline.start_ns, ended.timeline.intervals[-1].start_ns)]


def test_no_text_unless_asked() -> None:
    ended = request(prompt_text="secret", output_text="answer", cache_key="k")
    root, children = made(ended)
    assert "secret" not in repr([dict(span.attributes or {}) for span in (root, *children)])
    full, _ = made(ended, Tracer(Resource.create({}), "1", full=True))
    told = dict(full.attributes or {})
    assert (told["gen_ai.prompt"], told["gen_ai.completion"], told["cache.key"]) == ("secret", "answer", "k")


def test_what_is_cut_says_how_much_there_was() -> None:
    parts = 2 * names.MOST_CHILDREN
    root, children = made(request(passed=[("queue", 1)] * parts, block_hashes=list(range(1000))))
    told = dict(root.attributes or {})
    assert (len(children), told["hitmap.intervals"]) == (names.MOST_CHILDREN, parts)
    hashes = str(told["hitmap.block_hashes"]).split(",")
    assert (len(hashes), told["hitmap.prompt_blocks"]) == (names.MOST_BLOCK_HASHES, 1000)
