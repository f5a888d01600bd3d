"""`hitmap engine perturb` on an engine under load: what it measures, and that it takes every delay back."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hitmap.cli import cli
from hitmap.commands._engine_faults import ask
from tests.attributed.live import SERVER, SLOW_DEVICE, Phase, Watched, send, watched

# Milliseconds of a live engine are compared, which other tests beside it would lengthen.
pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(600)]


def perturb(on: Watched, *options: str) -> Result:
    return CliRunner().invoke(cli, ["engine", "perturb", on.url, "--store", on.dsn, *options])


@contextmanager
def loaded(on: Watched) -> Iterator[None]:
    stopping = threading.Event()
    load = threading.Thread(target=send, args=(Phase("load", 3.5, seconds=240), on, stopping))
    load.start()
    try:
        yield
    finally:
        stopping.set()
        load.join()


def test_delays_are_measured_and_taken_back(tmp_path: Path) -> None:
    """A request waits once before it is queued, and once for each of its tokens after the first: the mean moves by
    about 1 ms for each ms of the one and by several of the other, and predictions are of the same order."""
    with watched(tmp_path / "engine", ("--device-blocks", "4096", "--host-blocks", "0")) as on:
        short = ("--seconds", "2", "--rounds", "1", "--layer", "queue")
        assert "is not watched: run hitmap attach" in str(perturb(on, *short).exception)
        few = str(perturb(on, *short, "--server", SERVER).exception)
        assert "too few requests came in the time without a delay: none" in few
        with loaded(on):
            asked = ("--server", SERVER, "--delay", "20", "--layer", "queue", "--layer", "decode")
            result = perturb(on, *asked, "--seconds", "16", "--quantile", "mean", "--json")
        left = [fault.spec for fault in ask("GET", on.url, None)]
    assert result.exit_code == 0, str(result.exception)
    assert left == list(SLOW_DEVICE)
    found = json.loads(result.stdout)
    print(f"\n{found}")
    queue, decode = found["layers"]
    assert (queue["layer"], decode["layer"]) == ("queue", "decode")
    assert queue["low"] < 2 < 4 < decode["measured"]
    assert queue["high"] > 0
    assert (queue["linear"], queue["twin"]) == (pytest.approx(1, abs=1), pytest.approx(1, abs=0.5))
    assert 0.3 < decode["linear"] / decode["measured"] < 1.7
    assert 0.3 < decode["twin"] / decode["measured"] < 3
