"""`hitmap store serve`: the process that owns a store directory."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import uvicorn

from cachemodel.errors import UserError
from store.embedded import (
    DATABASE,
    DirectoryTakenError,
    Owner,
    find_owner,
    open_users_lock,
    owner_file,
    sole_user,
)
from store.engine import Engine, Limits
from store.errors import EngineError
from store.http import Interface
from store.http_door import bounded_server

USERS_CHECK_S = 0.5
BODY_S = 300.0  # of an INSERT that its client makes while sending it
GRACE_S = 5  # for statements under way when the store is asked to stop


def serve(
    directory: Path,
    port: int,
    limits: Limits,
    *,
    while_used: bool = False,
    ready: Callable[[int], None] | None = None,
) -> None:
    """Own `directory` and serve ClickHouse's HTTP interface on loopback until SIGTERM, SIGINT or, with while_used,
    until nobody uses the store any more.

    port: 0 takes any free one; `ready` is told which. Raises UserError when the directory or the port is taken.
    """
    if owner := find_owner(directory):
        raise DirectoryTakenError(
            f"the store in {directory} is already served by process {owner.pid} on port {owner.port}"
        )
    listener = _listen(port, limits.stall_seconds)
    directory = directory.absolute()
    lock = _lock(directory)
    os.chdir(directory)  # the engine caches format schemas below the working directory
    engine = _open(directory, limits)
    owner = Owner(os.getpid(), listener.getsockname()[1], _password(directory))
    try:
        server = bounded_server(Interface(engine, owner, DATABASE).app, body_s=BODY_S)
        server.config.timeout_graceful_shutdown = GRACE_S
        logging.getLogger("uvicorn.error").addFilter(_is_news)
        if while_used:
            threading.Thread(target=_end_after_last_user, args=(directory, server), daemon=True).start()
        # uvicorn stops on SIGTERM, then raises it again for whoever comes next: that is us, and we are done
        signal.signal(signal.SIGTERM, lambda *_: None)
        _introduce(directory, owner)
        if ready:
            ready(owner.port)
        server.run(sockets=[listener])
    finally:
        owner_file(directory).unlink(missing_ok=True)
        if engine.busy:
            # a statement that did not end in time; closing would wait for it, and a kill loses nothing acknowledged
            os._exit(0)
        engine.close()
        lock.close()


def _listen(port: int, stall_seconds: float) -> socket.socket:
    try:
        listener = socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise UserError(
            f"port {port} cannot be used ({error.strerror}); choose another with --port"
        ) from None
    # asyncio does not set it on sockets that it was handed; without it each answer waits 40 ms for the client's ACK
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # what was written before a client was given up lies in buffers until then
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(2000 * stall_seconds))
    return listener


def _lock(directory: Path) -> IO[str]:
    """A lock of our own: the engine has one too, but does not say why it fails."""
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = (directory / "owner.lock").open("w")
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise DirectoryTakenError(
            f"the store in {directory} is owned by another process; end that one first"
        ) from None
    except OSError as error:
        raise UserError(f"the store directory {directory} cannot be used: {error.strerror}") from None
    return lock


def _open(directory: Path, limits: Limits) -> Engine:
    try:
        engine = Engine(directory, limits)
        for _ in engine.query(f"CREATE DATABASE IF NOT EXISTS {DATABASE}", "Null", writer=True):
            pass
    except (RuntimeError, EngineError) as error:
        raise UserError(f"the engine cannot open {directory}: {str(error).splitlines()[0][:300]}") from None
    return engine


def _password(directory: Path) -> str:
    """The writer's password; it outlives restarts, so that a DSN stays good."""
    file = directory / "writer.password"
    if not file.exists():
        _write_private(file, secrets.token_urlsafe(24))
    return file.read_text().strip()


def _introduce(directory: Path, owner: Owner) -> None:
    _write_private(owner_file(directory), json.dumps(owner.__dict__))


def _write_private(file: Path, text: str) -> None:
    """Written whole or not at all, readable by its owner alone."""
    draft = file.with_suffix(".new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        out.write(text)
    draft.rename(file)


def _is_news(record: logging.LogRecord) -> bool:
    """Not that a statement failed half way: who asked for it was told."""
    return not (record.exc_info and isinstance(record.exc_info[1], EngineError))


def _end_after_last_user(directory: Path, server: uvicorn.Server) -> None:
    """Holds the users' lock from then on to the end of the process."""
    lock = open_users_lock(directory)
    while not sole_user(lock):
        time.sleep(USERS_CHECK_S)
    server.should_exit = True
