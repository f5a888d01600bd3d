"""Serves the pages on loopback until interrupted, in this process: nothing is left behind when it ends."""

from __future__ import annotations

import errno
import importlib
import logging
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from cachemodel.errors import UserError
from dashboard.source import Opener, use

if TYPE_CHECKING:
    from analysis.advisor.consult import Tokens

HOST = "127.0.0.1"
SCRIPT = Path(__file__).with_name("app.py")


def listen(port: int) -> socket.socket:
    """A listening socket on loopback, 0 for any free port; raises UserError when the port is taken."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
        listening.listen(64)
    except OSError as error:
        listening.close()
        what = "is taken" if error.errno == errno.EADDRINUSE else f"cannot be used: {error.strerror}"
        raise UserError(f"port {port} {what}; choose another with --port, 0 for any free one") from None
    return listening


def serve(
    listening: socket.socket,
    opener: Opener,
    ready: Callable[[str], None],
    *,
    writer: Opener | None = None,
    tokens: Callable[[], Tokens] | None = None,
) -> None:
    """Serve on `listening` until SIGINT or SIGTERM. ready: called with the address once pages can be loaded. writer:
    opens a client that may write decisions about advice. tokens: makes what tells the tokens of requests."""
    # The settings that count stand in .streamlit/config.toml; a stray variable must not switch statistics on.
    for name in [name for name in os.environ if name.startswith("STREAMLIT_")]:
        del os.environ[name]
    # Before any page: plotly looks at whatever is in sys.modules under this name, even while another thread loads it.
    importlib.import_module("pandas")
    import streamlit
    import uvicorn
    from starlette.middleware import Middleware

    from dashboard.guard import Guard

    use(opener, writer, tokens)
    address = f"http://{HOST}:{listening.getsockname()[1]}"

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                ready(address)
                threading.Thread(target=_prepare, daemon=True).start()

    app = streamlit.App(SCRIPT, middleware=[Middleware(Guard)], on_script_error=_tell)
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    config = uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=1)
    for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn stops first and raises them again, for us
        signal.signal(number, lambda *_: sys.exit(0))
    Server(config).run(sockets=[listening])


def _prepare() -> None:
    """Load what pages take, which the first who looks need not wait for."""
    pages = ("dashboard.views.misses", "dashboard.views.attribution", "dashboard.views.advisor")
    for name in ("analysis.report.compare", "dashboard.advice", *pages):
        importlib.import_module(name)
    import plotly.graph_objects as go

    go.Figure(go.Bar(x=[0], y=[0])).to_dict()  # loads what a first figure loads


def _tell(error: Exception) -> bool:
    """A fault of ours: its traceback belongs on the terminal, not into the page."""
    traceback.print_exception(error)
    import streamlit

    streamlit.error("Something in hitmap failed; the terminal it runs in says what. Please report it.")
    return True
