"""How each kind of server speaks. A dialect is one folder: its span SQL, and its metrics and detection if it has any.

`spans.sql` is a SELECT from `spans`, the spans of one batch that the dialect claims:

    time DateTime64(6), duration UInt64 (ns), server, span_id UInt64, scope: what every span has
    a Map(LowCardinality(String), String): the span's attributes

It may call `micros(seconds)` (to whole microseconds) and `tokens(count)` on Float64 columns; both give NULL for what is
no believable value. It gives `time`, `server`, `span_id`, `request_id` (empty where the span has none) and what else
of `requests` the dialect tells, by name. Expressions over expressions belong into nested SELECTs: the time to plan a
statement counts, and ClickHouse plans a copy of an alias wherever it is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from importlib import resources

_COMMON = ("time", "server", "request_id", "span_id")
_TIMES = ("ttft_us", "e2e_us", "queue_us", "prefill_us", "decode_us", "frontend_us", "other_us")


@dataclass(frozen=True)
class SpanDialect:
    """The span part of a dialect.

    claim: condition on the small columns of `otel_traces` (SpanName, ScopeName, SpanKind); a span goes to the first
    dialect that claims it.
    by_server: whether the server itself makes these spans: what a server says of a request is preferred to what a
    client says of the same request.
    columns: what its spans.sql gives.
    """

    name: str
    claim: str
    by_server: bool
    columns: tuple[str, ...]

    @cached_property
    def sql(self) -> str:
        """The dialect's spans.sql."""
        return resources.files(__name__).joinpath(self.name, "spans.sql").read_text()


SPAN_DIALECTS = (
    SpanDialect(
        "vllm",
        claim="SpanName = 'llm_request' AND startsWith(ScopeName, 'vllm')",
        by_server=True,
        columns=(*_COMMON, *_TIMES, "prompt_tokens", "completion_tokens"),
    ),
    SpanDialect(
        "gen_ai",
        claim="true",
        by_server=False,
        columns=(
            *(*_COMMON, *_TIMES),
            *("model", "prompt_tokens", "cached_tokens", "completion_tokens", "finish_reason"),
        ),
    ),
)
