"""The embedded store: one process owns a directory, everybody else speaks HTTP to it.

`server.json` in the directory says who owns it: {pid, port, password}. Only the owner's user can read it.

Whoever uses the store holds a shared lock on `users.lock`; the kernel takes it back however a process ends. A store
that was started for its users ends when it gets that lock for itself, and nobody joins it on its way out.
"""

from __future__ import annotations

import fcntl
import http.client
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO

from cachemodel.errors import UserError

DATABASE = "hitmap"
START_TIMEOUT_S = 60.0


class DirectoryTakenError(UserError):
    """Another process owns the store's directory, or is about to; `ensure` knows it by the exit code."""

    exit_code = os.EX_TEMPFAIL


def home() -> Path:
    """Where hitmap keeps its files: $HITMAP_HOME or ~/.local/share/hitmap."""
    return Path(os.environ.get("HITMAP_HOME") or Path.home() / ".local/share/hitmap")


@dataclass(frozen=True)
class Owner:
    """The process that owns a store directory."""

    pid: int
    port: int
    password: str

    @property
    def dsn(self) -> str:
        """DSN of the writer."""
        return f"http://writer:{self.password}@127.0.0.1:{self.port}/{DATABASE}"

    @property
    def reader_dsn(self) -> str:
        """DSN of a reader, who can look and not touch."""
        return f"http://127.0.0.1:{self.port}/{DATABASE}"

    @property
    def display_name(self) -> str:
        """What the owner calls itself on its port: after a crash another process may listen there."""
        return f"hitmap-{self.pid}"

    def answers(self) -> bool:
        """Whether it is the owner that listens on its port."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)
        try:
            connection.request("GET", "/ping")
            return connection.getresponse().getheader("X-ClickHouse-Server-Display-Name") == self.display_name
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


def owner_file(directory: Path) -> Path:
    """Where the owner of `directory` introduces itself."""
    return directory / "server.json"


def find_owner(directory: Path) -> Owner | None:
    """The running owner of `directory`, or None; raises UserError when its file belongs to somebody else."""
    try:
        owner = Owner(**json.loads(owner_file(directory).read_text()))
    except FileNotFoundError:
        return None
    except PermissionError:
        raise UserError(
            f"the store in {directory} belongs to another user; set HITMAP_HOME to a folder of yours"
        ) from None
    except (ValueError, TypeError):
        return None
    return owner if owner.answers() else None


def open_users_lock(directory: Path) -> IO[str]:
    """The file that users of the store in `directory` lock; raises UserError when there cannot be one."""
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        return (directory / "users.lock").open("a")
    except OSError as error:
        raise UserError(f"the store directory {directory} cannot be used: {error.strerror}") from None


def sole_user(lock: IO[str]) -> bool:
    """Take the users' lock for oneself alone, without waiting; whether that worked."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class Embedded:
    """A store to talk to, there until this object is closed or its process ends."""

    def __init__(self, owner: Owner, lock: IO[str], process: subprocess.Popen[str] | None = None) -> None:
        self.owner = owner
        self._lock = lock
        self._process = process

    @property
    def dsn(self) -> str:
        """DSN of the writer."""
        return self.owner.dsn

    @property
    def reader_dsn(self) -> str:
        """DSN of a reader."""
        return self.owner.reader_dsn

    @property
    def pid(self) -> int:
        """Process that owns the directory."""
        return self.owner.pid

    def close(self) -> None:
        """Leave the store. One that we started and nobody else uses is ended, and waited for."""
        if self._lock.closed:
            return
        with self._lock:
            if self._process and sole_user(self._lock):
                self._process.terminate()
                self._process.wait(timeout=60)

    def __enter__(self) -> Embedded:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def ensure(directory: Path | None = None, port: int = 0) -> Embedded:
    """The store of `directory` (default: below `home()`): the one that runs, else one started now.

    port: where one that is started listens, 0 for any free port; one that runs stays where it is. A store that was
    started so ends after its last user. Raises UserError with its own words when it does not come up.
    """
    directory = directory or home() / "store"
    deadline = time.monotonic() + START_TIMEOUT_S
    lock = open_users_lock(directory)
    try:
        _join(directory, lock, deadline)
        return _find_or_start(directory, lock, deadline, port)
    except BaseException:
        lock.close()
        raise


def _join(directory: Path, lock: IO[str], deadline: float) -> None:
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise UserError(f"the store in {directory} is stopping and does not come to an end") from None
            time.sleep(0.05)
        else:
            return


def _find_or_start(directory: Path, lock: IO[str], deadline: float, port: int) -> Embedded:
    process = None
    while time.monotonic() < deadline:
        if owner := find_owner(directory):
            return Embedded(owner, lock, process if process and process.pid == owner.pid else None)
        if process is None:
            process = _start(directory, port)
        elif process.poll() not in (None, DirectoryTakenError.exit_code):
            raise UserError(f"the embedded store did not start: {_last_words(directory, process.returncode)}")
        time.sleep(0.05)
    if process and process.poll() is None:
        process.kill()
    raise UserError(f"the embedded store in {directory} did not answer within {START_TIMEOUT_S:.0f} s")


def _start(directory: Path, port: int) -> subprocess.Popen[str]:
    command = ["store", "serve", "--dir", str(directory), "--port", str(port), "--while-used"]
    with (directory / "store.log").open("w") as log:
        return subprocess.Popen(  # noqa: S603 - our own interpreter and module
            [sys.executable, "-m", "hitmap", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            text=True,
            start_new_session=True,  # a Ctrl-C in the terminal is ours to handle: the store goes after its users
        )


def _last_words(directory: Path, code: int | None) -> str:
    said = (directory / "store.log").read_text().strip().splitlines()
    return said[-1].removeprefix("hitmap: ") if said else f"exit code {code}"
