"""What gRPC interceptors add to a call: none, pass-through, ours, OpenTelemetry's, side by side in one run.

    python -m benchmarks.probes_grpc [--side server|client|both] [--rounds 130] [--calls 50] [--json FILE]
    python -m benchmarks.probes_grpc --rings        what a write into each kind of ring takes

One process holds the watched servers (or clients) of all variants, another the plain other end: two processes of the
same program differ by more than what is measured. One unary call of 64 bytes at a time over a unix socket. A round lets
each variant make a block of calls, in an order that changes; what waits after a block is told and exported before the
next variant's. Added: the block's median (or mean) less that of pass-through in the same round; over rounds their
median, with a 95 % bootstrap interval. CPU: process time of the watched process over block and flush, likewise: what a
call costs in all. Both clients send a traceparent header, which has a price of its own: for clients the last column
is also given beyond a pass-through that sends one.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import multiprocessing as mp
import random
import statistics
import struct
import tempfile
import time
import timeit
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
from opentelemetry.instrumentation.grpc import (
    aio_client_interceptors,
    aio_server_interceptor,
    client_interceptor,
    server_interceptor,
)
from opentelemetry.instrumentation.grpc.grpcext import intercept_channel
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

import probes.grpc as ours

METHOD = "/hitmap.bench.Echo/Echo"
PAYLOAD = bytes(64)
WARM_UP = 300
VARIANTS = ("none", "pass-through", "hitmap", "OpenTelemetry", "hitmap 1 %", "OpenTelemetry 1 %")
HEADER_ONLY = "header only"  # of clients: pass-through that sends what both send, the price of the wire
GOAL = 1 / 8


def traceparent() -> tuple[str, str]:
    """A header with ids of its own, as each call has: one that is always the same is cheaper."""
    return ("traceparent", f"00-{random.getrandbits(128):032x}-{random.getrandbits(64):016x}-01")


class NoExport(SpanExporter):
    def export(self, spans: Any) -> SpanExportResult:
        return SpanExportResult.SUCCESS


class PassServer(grpc.ServerInterceptor):
    def intercept_service(self, continuation: Any, details: Any) -> Any:
        return continuation(details)


class PassAioServer(grpc.aio.ServerInterceptor):
    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        return await continuation(details)


class PassClient(grpc.UnaryUnaryClientInterceptor):
    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        return continuation(details, request)


class PassAioClient(grpc.aio.UnaryUnaryClientInterceptor):
    async def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        return await continuation(details, request)


class HeaderClient(grpc.UnaryUnaryClientInterceptor):
    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        return continuation(details._replace(metadata=[traceparent()]), request)


class HeaderAioClient(grpc.aio.UnaryUnaryClientInterceptor):
    async def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        return await continuation(details._replace(metadata=grpc.aio.Metadata(traceparent())), request)


class Watch:
    """What watches a server or a client. interceptors: of a server, or of an async client."""

    def __init__(self, side: str, style: str, variant: str) -> None:
        rate = 0.01 if variant.endswith("1 %") else 1.0
        self._provider = TracerProvider(sampler=ParentBased(TraceIdRatioBased(rate)))
        self._provider.add_span_processor(BatchSpanProcessor(NoExport()))
        self._recorder = ours.Recorder(self._provider)
        self._variant = variant
        self.interceptors = self._made((side, style), variant.removesuffix(" 1 %"))

    def _made(self, where: tuple[str, str], what: str) -> list[Any]:
        if what == "none" or where == ("client", "sync"):
            return []
        if where == ("client", "aio"):
            return {
                "pass-through": lambda: [PassAioClient()],
                HEADER_ONLY: lambda: [HeaderAioClient()],
                "hitmap": lambda: ours.aio_client_interceptors(self._recorder),
                "OpenTelemetry": lambda: aio_client_interceptors(tracer_provider=self._provider),
            }[what]()
        sync = where == ("server", "sync")
        one = {
            "pass-through": PassServer if sync else PassAioServer,
            "hitmap": lambda: (ours.server_interceptor if sync else ours.aio_server_interceptor)(
                self._recorder
            ),
            "OpenTelemetry": lambda: (server_interceptor if sync else aio_server_interceptor)(
                tracer_provider=self._provider
            ),
        }[what]
        return [one()]

    def channel(self, where: str) -> grpc.Channel:
        """A blocking client's."""
        if self._variant.startswith("OpenTelemetry"):  # grpc.intercept_channel refuses its interceptor
            return intercept_channel(
                grpc.insecure_channel(where), client_interceptor(tracer_provider=self._provider)
            )
        channel = grpc.insecure_channel(where)
        if self._variant == "none":
            return channel
        plain = {"pass-through": PassClient, HEADER_ONLY: HeaderClient}.get(self._variant)
        return grpc.intercept_channel(channel, plain() if plain else ours.client_interceptor(self._recorder))

    def flush(self) -> None:
        self._recorder.flush()  # and the provider


def handlers(one: Any) -> Any:
    return grpc.method_handlers_generic_handler(
        "hitmap.bench.Echo", {"Echo": grpc.unary_unary_rpc_method_handler(one)}
    )


def serve(where: str, added: list[Any]) -> grpc.Server:
    server = grpc.server(ThreadPoolExecutor(4), interceptors=added)
    server.add_generic_rpc_handlers((handlers(lambda request, context: request),))
    server.add_insecure_port(where)
    server.start()
    return server


def timed_calls(call: Callable[[bytes], Any], count: int) -> list[float]:
    seconds = []
    for _ in range(count):
        began = time.perf_counter()
        call(PAYLOAD)
        seconds.append(time.perf_counter() - began)
    return seconds


def path(folder: str, variant: str) -> str:
    """Where a variant's server listens."""
    return f"unix:{folder}/{variant.replace(' ', '')}"


def flushed(watches: dict[str, Watch], pipe: Any) -> None:
    """A process of servers: asked for a variant, it flushes that and tells its process time."""
    while variant := pipe.recv():
        watches[variant].flush()
        pipe.send(time.process_time())


def sync_servers(watches: dict[str, Watch], folder: str, pipe: Any) -> None:
    servers = [serve(path(folder, variant), watch.interceptors) for variant, watch in watches.items()]
    pipe.send("ready")
    flushed(watches, pipe)
    for server in servers:
        server.stop(0).wait()


async def aio_servers(watches: dict[str, Watch], folder: str, pipe: Any) -> None:
    async def echo(request: bytes, context: Any) -> bytes:
        return request

    servers = []
    for variant, watch in watches.items():
        server = grpc.aio.server(interceptors=watch.interceptors)
        server.add_generic_rpc_handlers((handlers(echo),))
        server.add_insecure_port(path(folder, variant))
        await server.start()
        servers.append(server)
    pipe.send("ready")
    await asyncio.to_thread(flushed, watches, pipe)
    for server in servers:
        await server.stop(0)


def sync_clients(watches: dict[str, Watch], folder: str, pipe: Any) -> None:
    calls = {
        variant: watch.channel(path(folder, "plain")).unary_unary(METHOD)
        for variant, watch in watches.items()
    }
    pipe.send("ready")
    while asked := pipe.recv():
        variant, count = asked
        began = time.process_time()
        seconds = timed_calls(calls[variant], count)
        watches[variant].flush()
        pipe.send((seconds, time.process_time() - began))


async def aio_clients(watches: dict[str, Watch], folder: str, pipe: Any) -> None:
    calls = {
        variant: grpc.aio.insecure_channel(
            path(folder, "plain"), interceptors=watch.interceptors
        ).unary_unary(METHOD)
        for variant, watch in watches.items()
    }
    pipe.send("ready")
    while asked := pipe.recv():
        variant, count = asked
        seconds, cpu_began = [], time.process_time()
        for _ in range(count):
            began = time.perf_counter()
            await calls[variant](PAYLOAD)
            seconds.append(time.perf_counter() - began)
        watches[variant].flush()
        pipe.send((seconds, time.process_time() - cpu_began))


def watched(side: str, style: str, variants: tuple[str, ...], folder: str, pipe: Any) -> None:
    """The process of all variants."""
    watches = {variant: Watch(side, style, variant) for variant in variants}
    if style == "aio":
        asyncio.run((aio_servers if side == "server" else aio_clients)(watches, folder, pipe))
    else:
        (sync_servers if side == "server" else sync_clients)(watches, folder, pipe)


Found = dict[str, dict[str, list[float]]]


def measure(side: str, style: str, rounds: int, calls: int) -> Found:
    """By variant: of each round the median, the mean and the CPU a call, in microseconds."""
    variants = VARIANTS if side == "server" else (*VARIANTS, HEADER_ONLY)
    order = random.Random(7)
    found: Found = {variant: {"median": [], "mean": [], "cpu": []} for variant in variants}
    context = mp.get_context("spawn")
    pipe, there = context.Pipe()
    with tempfile.TemporaryDirectory() as folder:
        plain = serve(path(folder, "plain"), [])
        process = context.Process(target=watched, args=(side, style, variants, folder, there), daemon=True)
        process.start()
        assert pipe.recv() == "ready"
        block = _to_servers(pipe, variants, folder) if side == "server" else _from_clients(pipe)
        for variant in variants:
            block(variant, WARM_UP)
        for _ in range(rounds):
            for variant in order.sample(variants, len(variants)):
                seconds, cpu = block(variant, calls)
                found[variant]["median"].append(statistics.median(seconds) * 1e6)
                found[variant]["mean"].append(statistics.fmean(seconds) * 1e6)
                found[variant]["cpu"].append(cpu / calls * 1e6)
        pipe.send(None)
        process.join(5)
        plain.stop(0).wait()
    return found


Block = Callable[[str, int], tuple[list[float], float]]


def _from_clients(pipe: Any) -> Block:
    def block(variant: str, count: int) -> tuple[list[float], float]:
        pipe.send((variant, count))
        return pipe.recv()

    return block


def _to_servers(pipe: Any, variants: tuple[str, ...], folder: str) -> Block:
    calls = {
        variant: grpc.insecure_channel(path(folder, variant)).unary_unary(METHOD) for variant in variants
    }

    def block(variant: str, count: int) -> tuple[list[float], float]:
        pipe.send(variant)
        began = pipe.recv()
        seconds = timed_calls(calls[variant], count)
        pipe.send(variant)
        return seconds, pipe.recv() - began

    return block


def added(found: Found, variant: str, what: str, beyond: str = "pass-through") -> list[float]:
    return [a - b for a, b in zip(found[variant][what], found[beyond][what], strict=True)]


def interval(statistic: Callable[[list[int]], float], rounds: int) -> tuple[float, float]:
    """95 % by resampling rounds."""
    rnd = random.Random(11)
    drawn = sorted(statistic(rnd.choices(range(rounds), k=rounds)) for _ in range(2000))
    return drawn[50], drawn[1949]


def summary(found: Found) -> list[dict[str, Any]]:
    rounds = len(found["none"]["median"])
    rows = []
    for variant in found:
        row: dict[str, Any] = {"variant": variant}
        row["added_cpu_us"] = statistics.median(added(found, variant, "cpu"))
        row["round_trip_us"] = statistics.median(found[variant]["median"])
        for what in ("median", "mean"):
            deltas = added(found, variant, what)
            row[f"added_{what}_us"] = statistics.median(deltas)
            row[f"added_{what}_interval_us"] = interval(
                lambda at, deltas=deltas: statistics.median(deltas[i] for i in at), rounds
            )
        if variant.startswith("hitmap"):
            theirs = variant.replace("hitmap", "OpenTelemetry")
            row["cpu_ratio"] = row["added_cpu_us"] / statistics.median(added(found, theirs, "cpu"))
            for what in ("median", "mean"):
                us, them = added(found, variant, what), added(found, theirs, what)

                def ratio(at: Any, us: list[float] = us, them: list[float] = them) -> float:
                    return statistics.median(us[i] for i in at) / statistics.median(them[i] for i in at)

                row[f"ratio_{what}"] = ratio(range(rounds))
                row[f"ratio_{what}_interval"] = interval(ratio, rounds)
            if HEADER_ONLY in found:
                ours, others = (added(found, one, "median", HEADER_ONLY) for one in (variant, theirs))
                row["ratio_beyond_header"] = statistics.median(ours) / statistics.median(others)
        rows.append(row)
    return rows


def show(side: str, style: str, rows: list[dict[str, Any]]) -> None:
    print(f"\n{side}, {style}: microseconds a call, added beyond pass-through [95 %]")
    print(
        f"{'':18} {'round trip':>10} {'added, median':>24} {'added, mean':>24} {'added CPU':>10}  to OpenTelemetry"
    )
    for row in rows:
        told = []
        for what in ("median", "mean"):
            low, high = row[f"added_{what}_interval_us"]
            told.append(f"{row[f'added_{what}_us']:+7.1f} [{low:+6.1f}, {high:+6.1f}]")
        ratio = ""
        if "ratio_median" in row:
            low, high = row["ratio_median_interval"]
            ratio = f"{row['ratio_median']:.3f} [{low:.3f}, {high:.3f}], of CPU {row['cpu_ratio']:.2f}"
            ratio += "  (goal 0.125: met)" if row["ratio_median"] <= GOAL else "  (goal 0.125: missed)"
            if "ratio_beyond_header" in row:
                ratio += f"; beyond the header {row['ratio_beyond_header']:.2f}"
        print(
            f"{row['variant']:18} {row['round_trip_us']:10.1f} {told[0]:>24} {told[1]:>24}"
            f" {row['added_cpu_us']:+10.1f}  {ratio}"
        )


def rings() -> None:
    """Two clock readings and one write, best of 15: into a packed buffer, a list of slots, a deque."""
    slots = 1 << 14
    packed = struct.Struct("<qqHBBQQQQB256s")
    buffer, cells, ring = bytearray(slots * packed.size), [None] * slots, deque[Any]()
    take, clock = itertools.count().__next__, time.monotonic_ns
    facts = (3, 0, 1, 0x1234567890ABCDEF, 0x1234567, 0x12345, 0x1234, 1, b"key")

    def write_packed() -> None:
        packed.pack_into(buffer, take() % slots * packed.size, clock(), clock(), *facts)

    def write_slots() -> None:
        cells[take() % slots] = (clock(), clock(), *facts)

    def write_deque() -> None:
        if len(ring) < slots:
            ring.append((clock(), clock(), *facts))

    for write in (write_packed, write_slots, write_deque):
        best = min(timeit.repeat(write, setup=ring.clear, number=10_000, repeat=15)) / 10_000
        print(f"{write.__name__:14} {best * 1e9:6.0f} ns")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--side", choices=("server", "client", "both"), default="both")
    parser.add_argument("--style", choices=("sync", "aio", "both"), default="both")
    parser.add_argument("--rounds", type=int, default=130)
    parser.add_argument("--calls", type=int, default=50)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rings", action="store_true")
    options = parser.parse_args()
    if options.rings:
        rings()
        return
    tables = []
    for side, style in itertools.product(("server", "client"), ("sync", "aio")):
        if options.side in (side, "both") and options.style in (style, "both"):
            rows = summary(measure(side, style, options.rounds, options.calls))
            show(side, style, rows)
            tables.append({"side": side, "style": style, "rows": rows})
    if options.json:
        options.json.write_text(json.dumps(tables, indent=1))


if __name__ == "__main__":
    main()
