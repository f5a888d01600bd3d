"""The embedded store: one process owns a directory, everybody else speaks HTTP to it.

`server.json` in the directory says who owns it: {pid, port, password}. Only the owner's user can read it.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from cachemodel.errors import UserError

DATABASE = "hitmap"
START_TIMEOUT_S = 60.0


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

    def answers(self) -> bool:
        """Whether a store listens on the owner's port."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/ping", timeout=2) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False


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


class Embedded:
    """A store to talk to; closing it ends the store's process only if this object started it."""

    def __init__(self, owner: Owner, process: subprocess.Popen[str] | None = None) -> None:
        self.owner = owner
        self._process = process

    @property
    def dsn(self) -> str:
        """DSN of the writer."""
        return self.owner.dsn

    @property
    def pid(self) -> int:
        """Process that owns the directory."""
        return self.owner.pid

    def close(self) -> None:
        """Let the store finish and wait for it."""
        if self._process and self._process.stdin:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
            self._process.wait(timeout=60)

    def __enter__(self) -> Embedded:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def ensure(directory: Path | None = None) -> Embedded:
    """The store of `directory` (default: below `home()`): the one that runs, else one started as a child.

    A child lives as long as this process: it watches its standard input, which closes with us, however we end.
    Raises UserError with the child's own words when it does not come up.
    """
    directory = directory or home() / "store"
    if owner := find_owner(directory):
        return Embedded(owner)
    log = _log(directory)
    command = ["store", "serve", "--dir", str(directory), "--port", "0", "--with-parent"]
    with log.open("w") as words:
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            [sys.executable, "-m", "hitmap", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=words,
            text=True,
            start_new_session=True,  # a Ctrl-C in the terminal is ours to handle: the store goes after the collector
        )
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            # Somebody else may have won the race for the directory.
            if owner := find_owner(directory):
                return Embedded(owner)
            said = log.read_text().strip().splitlines()
            reason = said[-1].removeprefix("hitmap: ") if said else f"exit code {process.returncode}"
            raise UserError(f"the embedded store did not start: {reason}")
        owner = find_owner(directory)
        if owner and owner.pid == process.pid:
            return Embedded(owner, process)
        time.sleep(0.05)
    process.kill()
    raise UserError(f"the embedded store in {directory} did not answer within {START_TIMEOUT_S:.0f} s")


def _log(directory: Path) -> Path:
    """Where a child's complaints go."""
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise UserError(f"the store directory {directory} cannot be used: {error.strerror}") from None
    return directory / "store.log"
