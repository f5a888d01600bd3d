"""`hitmap store serve`: the process that owns a store directory."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import IO

import uvicorn

from cachemodel.errors import UserError
from store.embedded import DATABASE, Owner, find_owner, owner_file
from store.engine import Engine, Limits
from store.http import Interface


def serve(directory: Path, host: str, port: int, limits: Limits, *, with_parent: bool = False) -> None:
    """Own `directory` and serve ClickHouse's HTTP interface until SIGTERM, SIGINT or, with_parent, until the standard
    input closes.

    port: 0 takes any free one. Raises UserError when the directory or the port is taken.
    """
    if owner := find_owner(directory):
        raise UserError(
            f"the store in {directory} is already served by process {owner.pid} on port {owner.port}"
        )
    listener = _listen(host, port)
    directory = directory.absolute()
    lock = _lock(directory)
    os.chdir(directory)  # the engine caches format schemas below the working directory
    engine = _open(directory, limits)
    owner = Owner(os.getpid(), listener.getsockname()[1], _password(directory))
    try:
        for _ in engine.query(f"CREATE DATABASE IF NOT EXISTS {DATABASE}", "Null", writer=True):
            pass
        server = uvicorn.Server(
            uvicorn.Config(
                Interface(engine, owner.password).app,
                http="httptools",
                ws="none",
                lifespan="off",
                log_level="warning",
                access_log=False,
                timeout_graceful_shutdown=30,
            )
        )
        _introduce(directory, owner)
        if with_parent:
            threading.Thread(target=_end_with_parent, args=(server,), daemon=True).start()
        server.run(sockets=[listener])
    finally:
        owner_file(directory).unlink(missing_ok=True)
        engine.close()
        lock.close()


def _listen(host: str, port: int) -> socket.socket:
    if host not in ("127.0.0.1", "::1", "localhost"):
        raise UserError(
            "the embedded store listens on loopback only; put a ClickHouse server where others reach it"
        )
    try:
        return socket.create_server((host, port))
    except OSError as error:
        raise UserError(
            f"port {port} on {host} cannot be used ({error.strerror}); choose another with --port"
        ) from None


def _lock(directory: Path) -> IO[str]:
    """A lock of our own: the engine has one too, but does not say why it fails."""
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = (directory / "owner.lock").open("w")
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UserError(f"the store in {directory} is owned by another process; end that one first") from None
    except OSError as error:
        raise UserError(f"the store directory {directory} cannot be used: {error.strerror}") from None
    return lock


def _open(directory: Path, limits: Limits) -> Engine:
    try:
        return Engine(directory, limits)
    except RuntimeError as error:
        raise UserError(f"the engine cannot open {directory}: {str(error).splitlines()[0][:300]}") from None


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


def _end_with_parent(server: uvicorn.Server) -> None:
    sys.stdin.read()
    server.should_exit = True
    signal.raise_signal(signal.SIGTERM)
