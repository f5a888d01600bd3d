"""`hitmap demo` on the live engine: what a newcomer sees first."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cachemodel.errors import UserError
from hitmap.demo.engine_process import engine


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The report of a short demo, as data."""
    home = tmp_path_factory.mktemp("demo")
    command = [sys.executable, "-m", "hitmap", "demo", "--seconds", "10", "--json", "--keep", str(home)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_the_clock_at_the_top_takes_the_cache_away(told: dict[str, Any]) -> None:
    cached = next(line for line in told["tokens"] if line["source"] == "cached")
    assert cached["share"]["a"]["value"] > 0.5
    assert cached["share"]["b"]["value"] < 0.35
    assert cached["share"]["change"]["high"] < 0


def test_both_periods_send_the_same_requests(told: dict[str, Any]) -> None:
    assert told["a"]["n"] == told["b"]["n"] > 10  # how many depends on the machine
    assert told["a"]["cached_unknown"] == told["b"]["cached_unknown"] == 0
    assert told["a"]["servers"] == ["demo-engine"]


def test_the_layers_add_up_to_the_quantile(told: dict[str, Any]) -> None:
    p50 = next(line for line in told["quantiles"] if line["name"] == "P50")
    for part in ("a", "b"):
        assert sum(line["part"][part]["value"] for line in told["layers"]) == pytest.approx(
            p50[part]["value"]
        )
    assert {"queue", "prefix", "host", "remote", "prefill"} <= {line["layer"] for line in told["layers"]}


def test_an_engine_that_cannot_serve_is_told_in_its_own_words(tmp_path: Path) -> None:
    options = ["--model", str(tmp_path / "no-such-folder")]
    with (
        pytest.raises(UserError, match=r"did not begin to serve: .*no-such-folder"),
        engine(tmp_path / "log", options),
    ):
        pass


def test_it_says_what_caused_it_or_why_that_cannot_be_told(told: dict[str, Any]) -> None:
    """So short a demo has fewer requests than a twin takes, unless the machine is quick."""
    found = told["attribution"]
    caused = found["caused"]
    if caused["refused"]:
        assert caused["refused"] in found["headline"]
        assert not caused["shares"]
    else:
        assert max(caused["shares"], key=lambda share: share["value"])["name"] == "changed"
    assert found["shows"]["shares"]
    assert told["answer"].startswith(found["headline"])
