"""llama.cpp: `timings` beside every answer, and its native /completion.

Source: llama.cpp b11434 (tools/server) and a recording of it, in which cache_n + prompt_n is the prompt in each of 166
responses and usage.prompt_tokens_details.cached_tokens is cache_n. The server says nothing of queueing or of a TTFT,
nor whether a reused token came out of the slot or out of the host prompt cache.
"""

from __future__ import annotations

from functools import partial

from collector.usage.style import Row, Style, milliseconds

_ms = partial(Row, read=milliseconds)

STYLE = Style(
    "llama.cpp",
    marks=("timings.prompt_n", "timings.predicted_n", "tokens_evaluated"),
    rows=(
        Row(
            "prompt_tokens",
            ("timings.cache_n", "timings.prompt_n"),
            trap="prompt_n leaves out the reused ones",
        ),
        Row(
            "prompt_tokens",
            ("tokens_evaluated",),
            trap="of /completion: the whole prompt, in spite of its name",
        ),
        Row(
            "cached_tokens",
            ("timings.cache_n",),
            trap="not tokens_cached: that is what the slot holds afterwards",
        ),
        Row("completion_tokens", ("timings.predicted_n",)),
        Row("completion_tokens", ("tokens_predicted",)),
        _ms(
            "prefill_us",
            ("timings.prompt_ms",),
            trap="slots overlap: sums exceed llamacpp:prompt_seconds_total",
        ),
        _ms("decode_us", ("timings.predicted_ms",)),
    ),
)
