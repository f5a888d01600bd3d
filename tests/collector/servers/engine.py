"""hitmap's engine: what its telemetry really writes, without the engine behind it."""

from __future__ import annotations

import json

from engine.config import EngineConfig
from engine.telemetry import Telemetry, TelemetryConfig
from tests.collector.support import Server, text


def new() -> Server:
    """Everything switched on."""
    options = TelemetryConfig(
        otlp="127.0.0.1:4317", kv_events="tcp://127.0.0.1:*", kv_replay="tcp://127.0.0.1:*"
    )
    return _server(Telemetry(EngineConfig(disk_blocks=64), options))


def bare() -> Server:
    """Nothing switched on."""
    return _server(Telemetry(EngineConfig(host_blocks=0, prefix_caching=False)))


def _server(telemetry: Telemetry) -> Server:
    answers = {"/metrics": text(telemetry.exposition())}
    models = {"object": "list", "data": [{"id": "demo", "object": "model", "owned_by": "hitmap"}]}
    names = {"service_name": telemetry.service_name, "service_instance_id": telemetry.instance_id}
    for path, page in (
        *(("/v1/models", models), ("/kv_event_sources", telemetry.kv_event_sources())),
        ("/version", {"version": "0", **names}),
    ):
        answers[path] = text(json.dumps(page), content_type="application/json")
    telemetry.close()
    return Server(answers)
