"""The reference engine as a child process: a server of its own, that only sockets connect with."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from cachemodel.errors import UserError

_READY_S = 60.0
_STOP_S = 15.0
_URL = re.compile(r"http://[\w.:]+\d")


class Serving(NamedTuple):
    """An engine that serves."""

    url: str
    pid: int


@contextmanager
def engine(log: Path, options: Sequence[str]) -> Iterator[Serving]:
    """Run `hitmap engine serve` on free ports.

    log: file for what it says. Raises UserError where it does not come up.
    """
    command = [sys.executable, "-m", "hitmap", "engine", "serve", "--port", "0", "--grpc-port", "0", *options]
    with log.open("w") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)  # noqa: S603 - ours
    try:
        yield Serving(_url(process, log), process.pid)
    finally:
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _url(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + _READY_S
    while time.monotonic() < deadline and process.poll() is None:
        if found := _URL.search(log.read_text()):
            return found[0]
        time.sleep(0.05)
    said = log.read_text().strip().splitlines()
    raise UserError(f"the engine did not begin to serve: {said[-1] if said else 'it said nothing'}")
