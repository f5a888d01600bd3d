"""The interceptors take nothing along but grpcio, OpenTelemetry and the standard library."""

from __future__ import annotations

import json
import subprocess
import sys

PROGRAM = """
import sys, json
before = set(sys.modules)
import grpc, grpc.aio, opentelemetry.sdk.trace.export, opentelemetry.sdk.metrics, opentelemetry.baggage.propagation
theirs = set(sys.modules)
import probes.grpc
print(json.dumps(sorted(set(sys.modules) - theirs)))
"""


def test_what_is_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True
    )
    new = json.loads(done.stdout)
    assert "probes.grpc.recorder" in new
    foreign = [
        name
        for name in new
        if name.partition(".")[0] not in sys.stdlib_module_names
        and not name.startswith(
            ("probes.grpc", "opentelemetry.sdk", "opentelemetry.context", "opentelemetry.trace")
        )
        and name != "probes"
    ]
    assert foreign == []
