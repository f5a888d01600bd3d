"""SGLang's own: `meta_info` of /generate, and `sglext` in answers of the OpenAI style.

Source: SGLang 0.5.23 (tokenizer_manager.py, req_time_stats.py, openai/protocol.py). `cached_tokens_details` has the
tiers; `storage` is there only with a storage backend. Times are in seconds; queue_time needs --enable-metrics.
"""

from __future__ import annotations

from functools import partial

from collector.usage.style import Row, Style, seconds

_s = partial(Row, read=seconds)
_NATIVE, _OPENAI = "meta_info.cached_tokens_details", "sglext.cached_tokens_details"

STYLE = Style(
    "sglang",
    marks=("meta_info.prompt_tokens", "meta_info.completion_tokens", _OPENAI),
    rows=(
        Row("prompt_tokens", ("meta_info.prompt_tokens",), trap="cached ones included"),
        Row("cached_tokens", ("meta_info.cached_tokens",), trap="0 with MTP in some versions (issue 20451)"),
        Row("completion_tokens", ("meta_info.completion_tokens",)),
        *(
            Row(f"{field}_tokens", (f"{place}.{tier}",))
            for place in (_NATIVE, _OPENAI)
            for field, tier in (("device", "device"), ("host", "host"), ("remote", "storage"))
        ),
        Row("cached_tokens", also=("=device_tokens", "=host_tokens", "=remote_tokens")),
        _s("e2e_us", ("meta_info.e2e_latency",)),
        _s("queue_us", ("meta_info.queue_time",)),
    ),
)
