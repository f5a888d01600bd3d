"""A llama.cpp server: answers of a running b11434 (tests/data/llamacpp-b11434); older builds and the router are made
from the atlas, not run live."""

from __future__ import annotations

import json
from pathlib import Path

from tests.collector.support import Answer, Server, text

RUN_TINY = Path(__file__).parents[2] / "data/llamacpp-b11434/run_tiny"
AFTER_MIXED = (RUN_TINY / "metrics/L1_13_after_mixed.txt").read_text()
DURING_MIXED_SLOTS = (RUN_TINY / "slots_L1_10_during_mixed_2.json").read_text()


def page(value: object, status: int = 200) -> Answer:
    return text(json.dumps(value), status=status, content_type="application/json; charset=utf-8")


def models(*names: str, **status: str) -> Answer:
    """/v1/models; status: of each model of a router."""
    data = [
        {"id": name, "object": "model", "owned_by": "llamacpp"}
        | ({"status": {"value": status[name]}} if name in status else {})
        for name in names
    ]
    return page({"object": "list", "data": data})


def new() -> Server:
    """b11434 with --metrics and --slots, in the middle of work."""
    return Server(
        {
            "/metrics": text(AFTER_MIXED, content_type="text/plain; version=0.0.4"),
            "/slots": text(DURING_MIXED_SLOTS, content_type="application/json; charset=utf-8"),
            "/props": text((RUN_TINY / "props.json").read_text(), content_type="application/json"),
            "/v1/models": models("model/tiny.gguf"),
        }
    )


def bare() -> Server:
    """Started without --metrics and with --no-slots: it refuses in JSON, with 501."""
    server = new()
    for path in ("/metrics", "/slots"):
        server.answers[path] = page({"error": {"code": 501, "type": "not_supported_error"}}, 501)
    return server


def old() -> Server:
    """A build of early 2025: KV usage still exposed, cached tokens not counted."""
    server = new()
    kept = [line for line in AFTER_MIXED.splitlines() if "cached" not in line and "spec_decode" not in line]
    gone = [
        "# TYPE llamacpp:kv_cache_usage_ratio gauge",
        "llamacpp:kv_cache_usage_ratio 0.25",
        "# TYPE llamacpp:kv_cache_tokens gauge",
        "llamacpp:kv_cache_tokens 4096",
    ]
    server.answers["/metrics"] = text("\n".join(kept + gone) + "\n")
    server.answers["/props"] = page({"total_slots": 4, "build_info": "b4600-abcdef0"})
    return server


def router() -> Server:
    """Two models, one of them loaded; without a model named it has no metrics."""
    query = "?model=gemma&autoload=false"
    return Server(
        {
            "/metrics": page({"error": {"code": 400, "message": "model name is missing"}}, 400),
            f"/metrics{query}": text(AFTER_MIXED),
            f"/slots{query}": text(DURING_MIXED_SLOTS, content_type="application/json"),
            "/props": page({"role": "router", "build_info": "b11434-abc"}),
            "/v1/models": models("gemma", "qwen", gemma="loaded", qwen="unloaded"),
        }
    )
