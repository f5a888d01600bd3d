"""`hitmap engine perturb` on an engine under load: what it measures, and that it takes every delay back."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from hitmap.cli import cli
from hitmap.commands._engine_faults import ask
from tests.attributed.live import SERVER, SLOW_DEVICE, Phase, send, watched

pytestmark = pytest.mark.slow
DELAY_MS = 30.0


def test_a_delay_is_measured_and_taken_back(tmp_path: Path) -> None:
    """A request waits once before it is queued, and once for each of its tokens after the first: the mean moves by
    about 1 ms for each ms of the one and by several of the other, and predictions are of the same order."""
    stopping = threading.Event()
    with watched(tmp_path / "engine", ("--device-blocks", "4096", "--host-blocks", "0")) as on:
        load = threading.Thread(target=send, args=(Phase("load", 8.0, seconds=120), on, stopping))
        load.start()
        try:
            asked = [
                "engine",
                "perturb",
                on.url,
                "--store",
                on.dsn,
                "--server",
                SERVER,
                "--delay",
                str(DELAY_MS),
                "--json",
            ]
            asked += ["--layer", "queue", "--layer", "decode", "--seconds", "7", "--quantile", "mean"]
            result = CliRunner().invoke(cli, asked)
            left = [fault.spec for fault in ask("GET", on.url, None)]
        finally:
            stopping.set()
            load.join()
    assert result.exit_code == 0, str(result.exception)
    assert left == list(SLOW_DEVICE)
    found = json.loads(result.stdout)
    queue, decode = found["layers"]
    print(f"\n{found}")
    assert (queue["layer"], decode["layer"]) == ("queue", "decode")
    assert 0.3 < queue["measured"] < 3
    assert decode["measured"] > 4
    assert queue["linear"] == pytest.approx(queue["measured"], rel=0.7)
    assert 0.4 < decode["linear"] / decode["measured"] < 1.6
    for line in found["layers"]:
        assert 0.3 < line["twin"] / line["measured"] < 3, line


def test_an_engine_that_nobody_watches_or_loads_is_said(tmp_path: Path) -> None:
    with watched(tmp_path / "engine", ()) as on:
        asked = [
            "engine",
            "perturb",
            on.url,
            "--store",
            on.dsn,
            "--layer",
            "queue",
            "--seconds",
            "2",
            "--rounds",
            "1",
        ]
        unknown = CliRunner().invoke(cli, asked)
        assert "is not watched: run hitmap attach" in str(unknown.exception)
        few = CliRunner().invoke(cli, [*asked, "--server", SERVER])
        assert "too few requests came in turns without a delay: none" in str(few.exception)
        assert [fault.spec for fault in ask("GET", on.url, None)] == list(SLOW_DEVICE)
