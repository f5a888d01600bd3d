"""Sends the traffic of a CDN before and after a release, as spans, to an OTLP door: python generate.py --otlp HOST:PORT

A request is a span GET of a client; in it lies a span of the CDN, in that one of the edge where the CDN had nothing,
in that one of the origin where the edge had nothing either. The release v2 makes every layer slower, and the network,
which no span tells: CHANGE says by how many milliseconds on the mean of all requests.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Span, SpanKind, Tracer, set_span_in_context

CHANGE = {"cdn": 22.1, "edge": 41.3, "origin": 13.6, "network": 23.0}
"""Milliseconds on the mean, in the proportion of a published table whose three shares add up to 77 %."""
BATCH = 512
ROUTES = {"/img": 60_000, "/js": 20_000, "/api": 4_000}
CDN_HITS, EDGE_HITS = 0.7, 0.6


@dataclass
class Layers:
    """Milliseconds of one request; 0 is a layer it did not reach."""

    network: float
    cdn: float
    edge: float
    origin: float

    @property
    def total(self) -> float:
        return self.network + self.cdn + self.edge + self.origin


class Collected(SpanExporter):
    """Keeps the spans of the SDK until a batch is full."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def export(self, spans: object) -> SpanExportResult:
        self.spans += spans  # type: ignore[arg-type]
        return SpanExportResult.SUCCESS


def draw(rng: random.Random, size: int, slower: dict[str, float]) -> Layers:
    """One request. slower: ms on the mean over all requests, so a layer that few reach gets more on each."""
    hit = rng.random() < CDN_HITS
    edge_hit = rng.random() < EDGE_HITS
    reached = {"network": 1.0, "cdn": 1.0, "edge": 1 - CDN_HITS, "origin": (1 - CDN_HITS) * (1 - EDGE_HITS)}
    base = {
        "network": 10 + size / 10_000,
        "cdn": 4 + size / 40_000,
        "edge": 12 + size / 20_000,
        "origin": 80.0,
    }
    took = {
        name: base[name] * rng.lognormvariate(0, 0.3) + slower[name] / reached[name] * rng.expovariate(1.0)
        for name in base
    }
    return Layers(
        took["network"], took["cdn"], 0.0 if hit else took["edge"], 0.0 if hit or edge_hit else took["origin"]
    )


class Sender:
    """Writes requests as nested spans of four services."""

    def __init__(self, endpoint: str, release: str) -> None:
        self.collected = Collected()
        self.exporter = OTLPSpanExporter(endpoint=endpoint, insecure=True, timeout=10)
        self.tracers = {name: self._tracer(name, release) for name in ("client", "cdn", "edge", "origin")}

    def _tracer(self, service: str, release: str) -> Tracer:
        provider = TracerProvider(resource=Resource({"service.name": service, "release": release}))
        provider.add_span_processor(SimpleSpanProcessor(self.collected))
        return provider.get_tracer("cdn-example")

    def send(self, at_ns: int, route: str, size: int, took: Layers) -> None:
        """One request that began at `at_ns`."""
        attributes = {"http.route": route, "http.response.body.size": size}
        end = at_ns + round(1e6 * took.total)
        request = self.tracers["client"].start_span(
            "GET", kind=SpanKind.CLIENT, start_time=at_ns, attributes=attributes
        )
        inner = at_ns + round(5e5 * took.network)
        self._layer(request, inner, [("cdn", took.cdn), ("edge", took.edge), ("origin", took.origin)])
        request.end(end)
        if len(self.collected.spans) >= BATCH:
            self.flush()

    def _layer(self, parent: Span, begin: int, layers: list[tuple[str, float]]) -> None:
        """The first of these layers with the others in it, as far as they were reached."""
        (name, own), *rest = layers
        whole = own + sum(took for _, took in rest)
        span = self.tracers[name].start_span(
            name, set_span_in_context(parent), SpanKind.SERVER, start_time=begin
        )
        reached = bool(rest) and rest[0][1] > 0
        if name != "origin":
            span.set_attribute("cache.hit", not reached)
        if reached:
            self._layer(span, begin + round(5e5 * own), rest)
        span.end(begin + round(1e6 * whole))

    def flush(self) -> None:
        """Send what was collected; ends the program where nobody takes it."""
        spans, self.collected.spans = self.collected.spans, []
        if spans and self.exporter.export(spans) is not SpanExportResult.SUCCESS:
            sys.exit("the spans were not taken: is hitmap listening there?")


def arrivals(rng: random.Random, count: int, begin_ns: int, seconds: float) -> Iterator[int]:
    """Points in time, evenly by chance."""
    yield from sorted(begin_ns + rng.randrange(round(1e9 * seconds)) for _ in range(count))


def main() -> None:
    """Send both releases: `--minutes` of v1, then as much of v2, which ends now."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--otlp", default="127.0.0.1:4317", help="HOST:PORT of hitmap's OTLP gRPC door")
    options.add_argument("--requests", type=int, default=4000, help="of each release")
    options.add_argument("--minutes", type=float, default=20.0)
    options.add_argument("--seed", type=int, default=1)
    asked = options.parse_args()
    begin = time.time_ns() - round(120e9 * asked.minutes)
    for number, release in enumerate(("v1", "v2")):
        rng = random.Random(f"{asked.seed} {release}")  # noqa: S311
        sender = Sender(asked.otlp, release)
        slower = CHANGE if number else dict.fromkeys(CHANGE, 0.0)
        start = begin + number * round(60e9 * asked.minutes)
        for at in arrivals(rng, asked.requests, start, 60 * asked.minutes):
            route = rng.choice(list(ROUTES))
            size = max(200, round(ROUTES[route] * rng.lognormvariate(0, 0.5)))
            sender.send(at, route, size, draw(rng, size, slower))
        sender.flush()
        sys.stdout.write(f"{asked.requests:,} requests of {release}\n")


if __name__ == "__main__":
    main()
