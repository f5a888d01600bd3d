"""vLLM's own: `metrics` of a request (--enable-per-request-metrics), on the answer or on the last chunk of a stream.

Source: vLLM 0.32.0; telemetry atlas 1.3. Milliseconds, where its spans have seconds. Its token counts are in the OpenAI
style, with cached ones only under --enable-prompt-tokens-details.
"""

from __future__ import annotations

from functools import partial

from collector.usage.style import Row, Style, milliseconds

_ms = partial(Row, read=milliseconds)

STYLE = Style(
    "vllm",
    marks=("metrics.time_to_first_token_ms", "metrics.generation_time_ms", "metrics.queue_time_ms"),
    rows=(
        _ms("queue_us", ("metrics.queue_time_ms",)),
        _ms(
            "prefill_us",
            ("metrics.time_to_first_token_ms",),
            trap="counts from scheduling to the first token: the span's prefill, not its TTFT",
        ),
        _ms("decode_us", ("metrics.generation_time_ms",)),
    ),
)
