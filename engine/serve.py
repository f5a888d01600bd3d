"""An engine behind its doors, on one event loop: what `hitmap engine serve` runs, until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from cachemodel.errors import UsageError, UserError
from engine.config import EngineConfig
from engine.core import Engine
from engine.faults import Faults
from engine.model.load import Loaded
from engine.serving.connection import allow_connections, http_server, listen
from engine.serving.frontend import Frontend
from engine.serving.guard import is_loopback
from engine.serving.http import http_app
from engine.serving.rpc import RpcServer
from engine.telemetry import Telemetry, TelemetryConfig

DRAIN_S = 5  # for requests under way when the server is told to stop
HANG_UP_S = 2  # for those that are left then to be told so
STEP_S = 10  # for the step that the core is in; it may be stuck


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """host, port, grpc_port: where to listen, 0 for any free port. token: what callers must show; needed off loopback.
    inject: faults that are on from the start."""

    engine: EngineConfig = field(default_factory=EngineConfig)
    telemetry: TelemetryConfig = field(default_factory=TelemetryConfig)
    host: str = "127.0.0.1"
    port: int = 8000
    grpc_port: int = 8001
    token: str | None = None
    inject: tuple[str, ...] = ()


class EngineServer:
    """An engine with its telemetry and its doors; start, stop and the doors run on one event loop.

    restart: has the process begin again, None where it cannot. loaded: the model, for those who have it already.
    Raises UserError where something cannot begin.
    """

    def __init__(
        self,
        options: ServeOptions,
        restart: Callable[[], None] | None = None,
        *,
        loaded: Loaded | None = None,
    ) -> None:
        if not options.token and not is_loopback(options.host):
            raise UsageError(f"{options.host} can be reached from elsewhere: set a --token")
        if not (options.engine.served_model_name or options.engine.model).isprintable():
            raise UsageError("a model's name is a line of text: give it another --served-model-name")
        self.options, self.faults = options, Faults(options.engine.seed)
        for spec in options.inject:
            self.faults.add(spec)
        with ExitStack() as undo:
            self._listener = _listening(options.host, options.port, "HTTP")
            undo.callback(self._listener.close)
            _listening(options.host, options.grpc_port, "gRPC").close()  # gRPC would not say why it cannot
            self.telemetry = Telemetry(options.engine, options.telemetry, self.faults)
            undo.callback(self.telemetry.close)
            self.engine = Engine(options.engine, self.telemetry, self.faults, loaded=loaded)
            self.telemetry.watch(self.engine.stats)
            undo.pop_all()
        self.frontend = Frontend(self.engine, self.faults)
        self.port: int = self._listener.getsockname()[1]
        bare = options.host.strip("[]")
        self.host = f"[{bare}]" if ":" in bare else bare
        self.url = f"http://{self.host}:{self.port}"
        self._http = http_server(http_app(self.frontend, self.telemetry, self.faults, restart, options.token))
        self._serving: asyncio.Task[None] | None = None
        self._rpc: RpcServer | None = None
        self._hurry = asyncio.Event()

    @property
    def grpc_port(self) -> int:
        """Where gRPC listens, once it does."""
        return self._rpc.port if self._rpc else self.options.grpc_port

    async def start(self) -> None:
        """Begin to serve."""
        self.engine.start()
        address = f"{self.host}:{self.options.grpc_port}"
        self._rpc = RpcServer(self.frontend, address, self.options.token)
        await self._rpc.start()
        self._serving = asyncio.create_task(self._http.serve([self._listener]))

    async def stop(self, grace_s: float) -> None:
        """Accept nothing new, give requests under way this long, tell those that are left, and end."""
        # uvicorn would say of each that is left that it was cancelled
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        self._http.config.timeout_graceful_shutdown = round(grace_s) + HANG_UP_S
        self._http.should_exit = True
        doors = asyncio.gather(
            *([self._rpc.stop(grace_s + HANG_UP_S)] if self._rpc else []),
            *([self._serving] if self._serving else []),
        )
        hurry = asyncio.create_task(self._hurry.wait())
        ends: set[asyncio.Future[Any]] = {doors, hurry}
        await asyncio.wait(ends, timeout=grace_s, return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        self.faults.clear()
        await _stopped(self.engine)  # what it said last was taken when this returns
        await doors
        self._listener.close()
        await asyncio.to_thread(self.telemetry.close)

    def hurry(self) -> None:
        """Wait for no request any more."""
        self._hurry.set()


def serve(options: ServeOptions, ready: Callable[[EngineServer], None], stopping: Callable[[], None]) -> bool:
    """Serve until SIGINT or SIGTERM; whether somebody asked for a restart, which is the caller's to do.

    ready: called once it serves; stopping: at the first of those signals. Raises UserError where it cannot.
    """
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.ERROR)
    logging.getLogger("engine").setLevel(logging.WARNING)
    allow_connections()
    return asyncio.run(_serve(options, ready, stopping))


async def _serve(
    options: ServeOptions, ready: Callable[[EngineServer], None], stopping: Callable[[], None]
) -> bool:
    ending, restarts = asyncio.Event(), False

    def restart() -> None:
        nonlocal restarts
        restarts = True
        ending.set()

    def stop() -> None:
        if ending.is_set():
            server.hurry()
        else:
            stopping()
        ending.set()

    server = EngineServer(options, restart)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    await server.start()
    ready(server)
    await ending.wait()
    await server.stop(0 if restarts else DRAIN_S)
    return restarts


async def _stopped(engine: Engine) -> None:
    """Stop the engine, or leave it behind where its core does not come out of a step."""
    thread = threading.Thread(target=engine.stop, name="engine-stop", daemon=True)
    thread.start()
    await asyncio.to_thread(thread.join, STEP_S)
    if thread.is_alive():
        logging.getLogger(__name__).error("the engine is stuck in a step and was left there")


def _listening(host: str, port: int, what: str) -> socket.socket:
    """A socket that listens. Raises UserError that says why it cannot."""
    try:
        return listen(host, port)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(
            f"cannot listen on {host}:{port} for {what} ({reason}); choose another address"
        ) from None
