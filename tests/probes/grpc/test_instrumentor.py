"""The entry point: every server and channel made afterwards is watched, and none after `uninstrument`."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.trace import SpanKind

from probes.grpc.instrumentor import GrpcProbes
from tests.probes.grpc.conversation import AioServer, Ask, Service, aio_call, call, sync_server


@pytest.fixture
def instrumented(seen: Any) -> Iterator[Any]:
    probes = GrpcProbes()
    probes.instrument(tracer_provider=seen.provider, cache_key="cache_key")
    seen.recorder = probes.recorder
    yield probes
    if probes.is_instrumented_by_opentelemetry:
        probes.uninstrument()


def test_sync(seen: Any, instrumented: Any) -> None:
    for _ in range(2):  # the second is made after uninstrument()
        with sync_server(Service()) as where, grpc.insecure_channel(where) as channel:
            for kind in ("UnaryUnary", "StreamStream"):
                assert call(channel, kind, Ask(cache_key="k"))[1] is grpc.StatusCode.OK
        spans = seen.spans(SpanKind.SERVER, 2) + seen.spans(SpanKind.CLIENT, 2)
        assert {span.attributes["cache.key"] for span in spans} == {"k"}
        if instrumented.is_instrumented_by_opentelemetry:
            instrumented.uninstrument()


def test_aio(seen: Any, instrumented: Any) -> None:
    async def run() -> None:
        async with AioServer(Service()) as where, grpc.aio.insecure_channel(where) as channel:
            for kind in ("UnaryUnary", "StreamStream"):
                assert (await aio_call(channel, kind, Ask()))[1] is grpc.StatusCode.OK

    asyncio.run(run())
    seen.spans(SpanKind.SERVER, 2)
    seen.spans(SpanKind.CLIENT, 2)
    instrumented.uninstrument()
    asyncio.run(run())
    seen.spans(SpanKind.SERVER, 2)


def test_the_users_own_interceptors_stay(seen: Any, instrumented: Any) -> None:
    passed = []

    class Own(grpc.ServerInterceptor):
        def intercept_service(self, continuation: Any, details: Any) -> Any:
            passed.append(details.method)
            return continuation(details)

    with sync_server(Service(), Own()) as where, grpc.insecure_channel(where) as channel:
        call(channel, "UnaryUnary", Ask())
    assert passed == ["/hitmap.test.Talk/UnaryUnary"]
    seen.spans(SpanKind.SERVER, 1)


def test_opentelemetry_instrument_picks_it_up(tmp_path: Path) -> None:
    """As a user runs it: an entry point, the command, and no line of ours in the program."""
    package = tmp_path / "hitmap_grpc_test-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: hitmap-grpc-test\nVersion: 1\n")
    (package / "entry_points.txt").write_text(
        "[opentelemetry_instrumentor]\nhitmap_grpc = probes.grpc.instrumentor:GrpcProbes\n"
    )
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(
            """
            import grpc
            from opentelemetry import trace
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
            from tests.probes.grpc.conversation import Ask, Service, call, sync_server
            trace.set_tracer_provider(TracerProvider())  # what opentelemetry-distro does, where that is installed
            trace.get_tracer_provider().add_span_processor(BatchSpanProcessor(ConsoleSpanExporter()))
            with sync_server(Service()) as where, grpc.insecure_channel(where) as channel:
                call(channel, "UnaryUnary", Ask(salt="s"))
            """
        )
    )
    here = str(Path(__file__).parents[3])
    done = subprocess.run(
        [str(Path(sys.executable).with_name("opentelemetry-instrument")), sys.executable, str(program)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=here,
        env=os.environ
        | {
            "PYTHONPATH": f"{here}{os.pathsep}{tmp_path}",
            "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "grpc_client,grpc_server,grpc_aio_client,grpc_aio_server",
            "HITMAP_GRPC_CACHE_KEY": "prompt.salt",
        },
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count('"rpc.method": "hitmap.test.Talk/UnaryUnary"') == 2, done.stdout + done.stderr
    assert done.stdout.count('"cache.key": "s"') == 2
    assert "SpanKind.SERVER" in done.stdout
    assert "SpanKind.CLIENT" in done.stdout
