"""How each kind of server speaks. A dialect is one folder: its span SQL, and its metrics and detection if it has any.

`spans.sql` is a SELECT from `spans`, the spans of one batch that the dialect claims:

    time DateTime64(6), duration UInt64 (ns), server, span_id and parent UInt64, scope: what every span has
    a Map(LowCardinality(String), String): the span's attributes

It may call `micros(seconds)` (to whole microseconds) and `tokens(count)` on Float64 columns; both give NULL for what is
no believable value; and `counted(a)` for what the threads of an instrumented server spent. It gives `time`, `server`,
`span_id`, `request_id` (empty where the span has none) and what else of `requests` the dialect tells, by name.
Expressions over expressions belong into nested SELECTs: the time to plan a statement counts, and ClickHouse plans a
copy of an alias wherever it is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import resources

from collector.dialects.gen_ai import words

_COMMON = ("time", "server", "request_id", "span_id")
_TIMES = ("ttft_us", "e2e_us", "queue_us", "prefill_us", "decode_us", "frontend_us", "other_us")
_TOKENS = ("prompt_tokens", "cached_tokens", "created_tokens", "completion_tokens")


@dataclass(frozen=True)
class SpanDialect:
    """The span part of a dialect.

    claim: condition on the small columns of `otel_traces` (SpanName, ScopeName, SpanKind); a span goes to the first
    dialect that claims it.
    by_server: whether the server itself makes these spans: what a server says of a request is preferred to what a
    client says of the same request.
    columns: what its spans.sql gives.
    terms: what stands for `{term}` in its spans.sql, where the names are in a table of their own.
    """

    name: str
    claim: str
    by_server: bool
    columns: tuple[str, ...]
    terms: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def sql(self) -> str:
        """The dialect's spans.sql."""
        text = resources.files(__name__).joinpath(self.name, "spans.sql").read_text()
        for term, words_for_it in self.terms.items():
            text = text.replace(f"{{{term}}}", words_for_it)
        return text


SPAN_DIALECTS = (
    SpanDialect(
        "vllm",
        claim="SpanName = 'llm_request' AND startsWith(ScopeName, 'vllm')",
        by_server=True,
        columns=(*_COMMON, *_TIMES, "prompt_tokens", "completion_tokens"),
    ),
    SpanDialect(
        "sglang",
        claim="ScopeName = 'sglang server' AND SpanName LIKE '%Req %'",
        by_server=True,
        columns=(
            *(*_COMMON, "model", "finish_reason", "prompt_tokens", "cached_tokens", "completion_tokens"),
            *(column for column in _TIMES if column != "queue_us"),
        ),
    ),
    SpanDialect(
        "dynamo",
        claim="SpanName = 'http-request'",
        by_server=False,
        columns=(*_COMMON, "model", "ttft_us", "e2e_us", "prompt_tokens", "completion_tokens"),
    ),
    SpanDialect(
        "langfuse",
        claim="ScopeName = 'langfuse-sdk'",
        by_server=False,
        columns=(*_COMMON, "model", "ttft_us", "e2e_us", *_TOKENS),
    ),
    SpanDialect(
        "trtllm",
        claim="SpanName = 'llm_request' AND ScopeName = 'trt.llm'",
        by_server=True,
        columns=(
            *_COMMON,
            *("ttft_us", "e2e_us", "queue_us", "prefill_us", "decode_us", "other_us"),
            *("prompt_tokens", "completion_tokens", "finish_reason"),
        ),
    ),
    SpanDialect(
        "engine",
        claim="ScopeName = 'hitmap.engine'",
        by_server=True,
        columns=(
            *(*_COMMON, *_TIMES, "prefix_us", "host_us", "remote_us"),
            *("prompt_tokens", "cached_tokens", "device_tokens", "host_tokens", "remote_tokens"),
            *("completion_tokens", "recomputed_tokens", "preemptions"),
            *("model", "finish_reason", "labels", "observed"),
        ),
    ),
    SpanDialect(
        "gen_ai",
        claim="true",
        by_server=False,
        columns=(*_COMMON, *_TIMES, *_TOKENS, "model", "finish_reason", "observed"),
        terms=words.terms(),
    ),
)
