"""A vLLM 0.32: the answers of the recorded server (tests/data/vllm-0.32/run1)."""

from __future__ import annotations

import json
from pathlib import Path

from tests.collector.support import Answer, Server, text

RUN1 = Path(__file__).parents[2] / "data/vllm-0.32/run1"
METRICS = (RUN1 / "metrics/r1_10_after_mixed.txt").read_text()


def page(value: object) -> Answer:
    return text(json.dumps(value), content_type="application/json")


def recorded() -> Server:
    """As it was after the mixed phase."""
    models = {"object": "list", "data": [{"id": "tiny-llama", "object": "model", "owned_by": "vllm"}]}
    return Server(
        {
            "/metrics": text(METRICS),
            "/version": page({"version": "0.32.0"}),
            "/v1/models": page(models),
            "/kv_event_sources": page(json.loads((RUN1 / "kv_event_sources.json").read_text())),
        }
    )
