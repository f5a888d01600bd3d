"""What the engine tells of itself: a trace a request, KV events, and metrics. It sees through the Observer alone.

names       span names and attributes, in one table
spans       a request as its spans
sender      spans on their way out
exposition  the text form of metrics
metrics     what is counted
kv_events   the publisher
"""

from __future__ import annotations

import os
import socket
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Literal

from opentelemetry.sdk.resources import Resource

from cachemodel.kv_events import Event
from engine.clock import now_ns
from engine.config import EngineConfig
from engine.faults import KINDS, Faults
from engine.observer import Step
from engine.request import Request
from engine.telemetry import metrics
from engine.telemetry.exposition import Family
from engine.telemetry.kv_events import KEPT, KvPublisher
from engine.telemetry.metrics import Metrics, Values, by_label
from engine.telemetry.sender import SpanSender, check_endpoint
from engine.telemetry.spans import Tracer

if TYPE_CHECKING:
    from engine.core.stepper import Stats

__all__ = ["Telemetry", "TelemetryConfig"]


@dataclass(frozen=True, slots=True)
class TelemetryConfig:
    """otlp: host:port where spans are received over gRPC, empty for nowhere. service_name, instance_id: of the
    resource; the latter is made up where it is empty. capture: `full` puts the text of prompts and responses on the
    spans. kv_events, kv_replay: endpoints to bind, as in tcp://127.0.0.1:5557; empty for none.
    """

    otlp: str = ""
    service_name: str = "hitmap-engine"
    instance_id: str = ""
    capture: Literal["hashes", "full"] = "hashes"
    kv_events: str = ""
    kv_replay: str = ""


class Telemetry:
    """An Observer that tells the world. Raises UserError where an endpoint cannot be used."""

    def __init__(
        self, config: EngineConfig, options: TelemetryConfig = TelemetryConfig(), faults: Faults | None = None
    ) -> None:
        if options.otlp:
            check_endpoint(options.otlp)
        self._options, self._faults = options, faults or Faults()
        self.version = _version()
        self._info = metrics.info(config, self.version)
        self._metrics = Metrics()
        self._stats: Callable[[], Stats] | None = None
        self.service_name = options.service_name
        self.instance_id = options.instance_id or str(uuid.uuid4())
        self._publisher = (
            KvPublisher(options.kv_events, options.kv_replay, loses=self._faults.loses_events)
            if options.kv_events
            else None
        )
        self._sender = SpanSender(options.otlp, self._tracer()) if options.otlp else None

    def _tracer(self) -> Tracer:
        who: dict[str, str | int] = {
            "service.name": self.service_name,
            "service.instance.id": self.instance_id,
            "service.version": self.version,
            "host.name": socket.gethostname(),
            "process.pid": os.getpid(),
        }
        return Tracer(
            Resource.create(who), self.version, self._faults.during, full=self._options.capture == "full"
        )

    # -- told by the core

    def request_started(self, request: Request) -> None:
        self._metrics.request_started()

    def request_finished(self, request: Request) -> None:
        self._metrics.request_finished(request)
        if self._sender:
            self._sender.put(request)

    def step_done(self, step: Step) -> None:
        self._metrics.step_done(step)

    def kv_events(self, events: Sequence[Event]) -> None:
        if self._publisher:
            self._publisher.put(now_ns() / 1e9, events)

    # -- asked by the front end

    def watch(self, stats: Callable[[], Stats]) -> None:
        """Ask this for what only the core knows: Engine.stats."""
        self._stats = stats

    def exposition(self) -> bytes:
        """The metrics as Prometheus reads them."""
        faults: Counter[str] = Counter(fault.kind for fault in self._faults.active())
        told: dict[Family, Values] = {
            metrics.INFO: {self._info: 1},
            metrics.FAULTS: by_label({kind: faults[kind] for kind in KINDS}),
        }
        if self._publisher:
            told[metrics.KV_BATCHES] = by_label(self._publisher.counts)
        if self._sender:
            told[metrics.TRACES] = by_label(self._sender.counts)
        return self._metrics.text({**told, **(metrics.of_stats(self._stats()) if self._stats else {})})

    def kv_event_sources(self) -> dict[str, dict[str, Any]]:
        """Where KV events are published, by rank, as vLLM answers under /kv_event_sources; empty for nowhere."""
        if not self._publisher:
            return {}
        return {
            "0": {
                "enable_kv_cache_events": True,
                "publisher": "zmq",
                "endpoint": self._publisher.events,
                "replay_endpoint": self._publisher.replay or None,
                "buffer_steps": KEPT,
                "topic": self._publisher.topic,
            }
        }

    def flush(self) -> bool:
        """Send the spans that wait, and wait for that; False where it takes too long."""
        return self._sender.flush() if self._sender else True

    def close(self) -> None:
        """Send what waits and let go of threads and sockets. The engine is stopped before."""
        if self._publisher:
            self._publisher.close()
        if self._sender:
            self._sender.close()


def _version() -> str:
    try:
        return version("hitmap")
    except PackageNotFoundError:
        return "unknown"
