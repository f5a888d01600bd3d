"""What clients and gateways tell in their spans: every spelling, and what an input count includes, from both sides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from collector.dialects.gen_ai.words import INPUT_RULES, WORDS
from collector.otlp.values import flatten
from tests.collector.spans import Attributes, span
from tests.collector.test_dialect_spans import WHOLE, Case, check, read
from tests.conftest import DATA, Database

OLD = {"gen_ai.usage.cache_read_input_tokens": 60, "gen_ai.usage.cache_creation_input_tokens": 20}
NEW = {"gen_ai.usage.cache_read.input_tokens": 60, "gen_ai.usage.cache_creation.input_tokens": 20}
OI_PARTS = {
    "llm.token_count.prompt_details.cache_read": 60,
    "llm.token_count.prompt_details.cache_write": 20,
}
ANTHROPIC = {"gen_ai.provider.name": "anthropic"}


def chat(attributes: Attributes, scope: str = "opentelemetry.instrumentation.openai_v2") -> Any:
    return span({"gen_ai.operation.name": "chat", **attributes}, name="chat m", scope=scope)


def used(input_tokens: int, *more: Attributes, scope: str = "x", **counts: int) -> Any:
    """A call with so many input tokens and 7 output tokens."""
    attributes: dict[str, Any] = {"gen_ai.usage.input_tokens": input_tokens, "gen_ai.usage.output_tokens": 7}
    for part in more:
        attributes |= part
    return chat({**attributes, **{f"gen_ai.usage.{name}": value for name, value in counts.items()}}, scope)


def llm(attributes: Attributes, scope: str = "openinference.instrumentation.openai") -> Any:
    """OpenInference's span of a call."""
    return span({"openinference.span.kind": "LLM", **attributes}, name="ChatCompletion", scope=scope)


def prompt(prompt_tokens: int | None, cached: int | None = 60, created: int | None = 20) -> dict[str, Any]:
    return {"prompt_tokens": prompt_tokens, "cached_tokens": cached, "created_tokens": created}


def test_the_conventions(db: Database) -> None:
    names = {"gen_ai.request.model": "m", "gen_ai.response.model": "m-1", "gen_ai.response.id": "r"}
    answer = {"gen_ai.response.finish_reasons": '["stop"]', "gen_ai.response.time_to_first_chunk": 0.25}
    check(
        db,
        {
            "conventions": (
                used(100, names, answer, NEW),
                {
                    **{"dialect": "gen_ai", "model": "m-1", "request_id": "r", "finish_reason": "stop"},
                    **{"e2e_us": 2_000_000, "ttft_us": 250_000, "queue_us": None, "other_us": None},
                    **{"completion_tokens": 7, **prompt(100)},
                },
            ),
            "OpenLLMetry before operation names": (
                span(
                    {
                        **{"llm.request.type": "chat", "gen_ai.usage.prompt_tokens": 100, **OLD},
                        "gen_ai.usage.completion_tokens": 7,
                    },
                    name="openai.chat",
                    scope="opentelemetry.instrumentation.openai.v1",
                ),
                {"completion_tokens": 7, **prompt(100)},
            ),
            "latency attributes": (
                chat(WHOLE),
                {"e2e_us": 2_000_000, "queue_us": 100_000, "frontend_us": 150_000, "other_us": 100_000},
            ),
            "OpenInference": (
                llm(
                    {
                        **{"llm.model_name": "m", "llm.token_count.prompt": 100, **OI_PARTS},
                        **{"llm.token_count.completion": 7, "llm.token_count.total": 107},
                        "llm.finish_reason": "stop",
                    }
                ),
                {
                    **{"dialect": "gen_ai", "model": "m", "finish_reason": "stop", "e2e_us": 2_000_000},
                    **{"completion_tokens": 7, **prompt(100)},
                },
            ),
            "OpenInference by hand": (
                llm({"llm.token_count.prompt": 100}, scope="app"),
                {"prompt_tokens": 100, "cached_tokens": None},
            ),
            "no id": (chat({}), {"request_id": f"{5 + 1:016x}", "prompt_tokens": None}),
        },
    )


def test_every_spelling_of_every_word(db: Database) -> None:
    """A span with nothing but one name tells what that name stands for."""
    columns = {
        **{"input": "prompt_tokens", "output": "completion_tokens", "cached": "cached_tokens"},
        **{"written": "created_tokens", "ttft": "ttft_us", "e2e": "e2e_us", "queue": "queue_us"},
        **{"prefill": "prefill_us", "decode": "decode_us", "model": "model", "request_id": "request_id"},
        "finish": "finish_reason",
    }
    cases: dict[str, Case] = {}
    for word in WORDS:
        for name in word.names:
            if word.term in columns:
                value: Any = 11 if word.number else f"x-{len(cases)}"
                expected = value * 1_000_000 if columns[word.term].endswith("_us") else value
                cases[name] = (chat({name: value}), {columns[word.term]: expected})
    check(db, cases)
    assert len(cases) == 39


# reason: cases. The rules are tried in their order, so that each has its own cases and those just beside it.
RULES: dict[str, dict[str, Case]] = {
    "total": {
        "has room for the parts": (used(100, OLD, total_tokens=187), prompt(180)),
        "has room, by old name": (used(100, OLD, {"llm.usage.total_tokens": 187}), prompt(180)),
        "has none": (used(100, OLD, total_tokens=107), prompt(100)),
        "Bedrock through Strands": (
            used(
                4299,
                {
                    "gen_ai.usage.cache_read_input_tokens": 35_574,
                    "gen_ai.usage.cache_write_input_tokens": 17_787,
                },
                total_tokens=57_667,
            ),
            prompt(57_660, 35_574, 17_787),
        ),
        "nothing cached": (used(100, cached_tokens=0, total_tokens=107), prompt(100, 0, None)),
    },
    "a part is greater": {
        "than the whole": (used(20, NEW), prompt(100)),
        "is the whole": (used(60, {"gen_ai.usage.cached_tokens": 60}), prompt(60, 60, None)),
        "writes alone": (used(4, {"gen_ai.usage.cache_creation.input_tokens": 20}), prompt(24, None, 20)),
        "OpenInference before 1429": (llm({"llm.token_count.prompt": 4, **OI_PARTS}), prompt(84)),
    },
    "exclusive": {
        "by provider": (used(100, ANTHROPIC, OLD), prompt(180)),
        "by old name of the provider": (used(100, {"gen_ai.system": "Anthropic"}, OLD), prompt(180)),
        "Bedrock": (used(100, {"gen_ai.provider.name": "aws.bedrock"}, OLD), prompt(180)),
        "not under the convention's names": (used(100, ANTHROPIC, NEW), prompt(100)),
        "not from the package that adds": (
            used(100, ANTHROPIC, OLD, scope="opentelemetry.instrumentation.anthropic"),
            prompt(100),
        ),
        "not for others": (used(100, {"gen_ai.provider.name": "openai"}, OLD), prompt(100)),
        "not where nothing is told": (used(100, ANTHROPIC), prompt(100, None, None)),
    },
    "writes forgotten": {
        "LiteLLM": (
            used(
                120_357,
                {
                    "gen_ai.usage.cache_read.input_tokens": 120_269,
                    "gen_ai.usage.cache_creation.input_tokens": 21_002,
                },
            ),
            prompt(141_359, 120_269, 21_002),
        ),
        "LiteLLM, mended": (
            used(
                141_359,
                {
                    "gen_ai.usage.cache_read.input_tokens": 120_269,
                    "gen_ai.usage.cache_creation.input_tokens": 21_002,
                },
            ),
            prompt(141_359, 120_269, 21_002),
        ),
    },
    "unexplained": {
        "by a translator": (
            llm(
                {
                    **{"llm.token_count.prompt": 4299, "llm.token_count.completion": 631},
                    "llm.token_count.total": 58_291,
                }
            ),
            {"completion_tokens": 631, **prompt(None, None, None)},
        ),
        "but for reasoning": (
            llm(
                {
                    **{"llm.token_count.prompt": 100, "llm.token_count.completion": 7},
                    **{"llm.token_count.total": 120, "llm.token_count.completion_details.reasoning": 13},
                }
            ),
            prompt(100, None, None),
        ),
    },
    "inclusive": {
        "OpenAI": (used(100, cached_tokens=60), prompt(100, 60, None)),
        "pydantic-ai": (
            used(100, ANTHROPIC, {"gen_ai.usage.details.cache_read_tokens": 60}),
            prompt(100, 60, None),
        ),
    },
}


def test_what_an_input_count_includes(db: Database) -> None:
    cases = {f"{reason}: {name}": case for reason, named in RULES.items() for name, case in named.items()}
    check(db, cases)
    assert len(RULES) == len(INPUT_RULES)


def generation(**told: Any) -> Any:
    attributes = {"langfuse.observation.type": "generation", "langfuse.observation.model.name": "m"}
    started = json.dumps(
        "2026-11-29T12:05:14.250000Z"
    )  # START_NS and a quarter of a second; the SDK writes JSON
    return span(
        {
            **attributes,
            "langfuse.observation.usage_details": json.dumps(told),
            "langfuse.observation.completion_start_time": started,
        },
        name="generation",
        scope="langfuse-sdk",
    )


def test_langfuse(db: Database) -> None:
    check(
        db,
        {
            "disjoint": (
                generation(input=86, input_cached_tokens=17_817, output=9),
                {"dialect": "langfuse", "model": "m", "completion_tokens": 9, **prompt(17_903, 17_817, None)},
            ),
            "total agrees": (
                generation(input=86, cache_read_input_tokens=17_817, output=9, total=17_912),
                prompt(17_903, 17_817, None),
            ),
            "cached inside": (
                generation(input=117_231, cache_read_input_tokens=115_584, output=225, total=117_456),
                prompt(117_231, 115_584, None),
            ),
            "writes": (
                generation(input=4, cache_read_input_tokens=60, cache_creation_input_tokens=20, output=9),
                prompt(84),
            ),
            "OpenAI's as it came": (
                generation(
                    prompt_tokens=100, completion_tokens=7, prompt_tokens_details={"cached_tokens": 60}
                ),
                {"completion_tokens": 7, **prompt(100, 60, None)},
            ),
            "OpenAI's Responses": (
                generation(input_tokens=100, output_tokens=7, input_tokens_details={"cached_tokens": 60}),
                {"completion_tokens": 7, **prompt(100, 60, None)},
            ),
            "Anthropic's as it came": (
                generation(input_tokens=20, output_tokens=7, cache_read_input_tokens=60),
                prompt(80, 60, None),
            ),
            "times": (generation(input=1), {"ttft_us": 250_000, "e2e_us": 2_000_000, "queue_us": None}),
            "no usage": (
                span({"langfuse.observation.type": "generation"}, name="g", scope="langfuse-sdk"),
                {"ttft_us": None, **prompt(None, None, None)},
            ),
        },
    )


# What the stub told of each call, see tests/data/client-spans/README.md; None: the instrumentation passes nothing on.
RECORDED = {
    "openllmetry-anthropic": [("msg_1", 1165, 20, 9), ("msg_2", 1165, 20, 9)],
    "openllmetry-openai": [
        ("chatcmpl_1", 1165, None, 9),
        ("chatcmpl_2", 1165, None, 9),
        ("resp_3", 1165, None, 9),
    ],
    "openinference-anthropic": [("msg_1", 1165, 20, 9), ("msg_2", 1165, 20, 9)],
    "openinference-openai": [("", 1165, None, 9)] * 3,
    "otel-openai-v2": [("chatcmpl_1", None, None, 9), ("chatcmpl_2", None, None, 9)],
    "langfuse": [("", 1165, None, 9)] * 3,
}


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_instrumentations(db: Database, name: str) -> None:
    """One row a call, of 1,189 prompt tokens, though SDK and instrumentation both tell of it."""
    request = ExportTraceServiceRequest.FromString((DATA / "client-spans" / f"{name}.bin").read_bytes())
    flatten(request)
    found = sorted(read(db, request).values(), key=lambda row: row["time"])
    ids = [row["request_id"] if row["request_id"] != f"{row['span_id']:016x}" else "" for row in found]
    columns = ("cached_tokens", "created_tokens", "completion_tokens")
    assert [
        (id, *(row[column] for column in columns)) for id, row in zip(ids, found, strict=True)
    ] == RECORDED[name]
    assert {row["prompt_tokens"] for row in found} == {1189}
    assert all(row["model"] in ("gpt-x", "claude-x") and row["e2e_us"] > 0 for row in found)


def test_the_documentation_has_every_rule() -> None:
    page = (Path(__file__).parents[2] / "docs" / "servers" / "gen_ai.md").read_text()
    assert [rule.reason for rule in INPUT_RULES if f"| {rule.reason} |" not in page] == []


def test_a_canary_is_known_by_who_asked(db: Database) -> None:
    mark = "hitmap-canary"
    answer = {"gen_ai.response.id": "chatcmpl-1"}
    marks = [
        {"user.id": mark},
        {"enduser.id": mark},
        {"llm.user": mark},
        {"langfuse.user.id": mark},
        {"llm.invocation_parameters": json.dumps({"max_tokens": 1, "user": mark})},
    ]
    spans = [used(100, answer, told) for told in (*marks, {"user.id": "somebody"})]
    for number, request in enumerate(spans, 1):
        request.resource_spans[0].scope_spans[0].spans[0].span_id = number.to_bytes(8)
    assert set(read(db, *spans)) == {len(spans)}
