"""deploy/examples/cdn from end to end: spans of the stock SDK through a collector's door, `hitmap report` on them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hitmap.cli import cli
from hitmap.demo.stage import Stage, stage
from store.client import connect
from tests.conftest import Database

FOLDER = Path(__file__).parents[3] / "deploy" / "examples" / "cdn"
CHANGE = {"cdn": 22.1, "edge": 41.3, "origin": 13.6, "unattributed": 23.0}
"""What generate.py adds to the mean, ms. The published shares of the first three add up to 77 %."""
REQUESTS = 2000


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage(tmp_path_factory.mktemp("cdn")) as ground:
        command = [sys.executable, FOLDER / "generate.py", "--otlp", ground.otlp, "--requests", str(REQUESTS)]
        subprocess.run(command, check=True, timeout=120)
        ground.drain()
        yield ground


def report(ground: Stage, *arguments: str) -> Result:
    sets = ("--a", "release=v1", "--b", "release=v2")
    layers = ("--layers", str(FOLDER / "layers.yaml"))
    return CliRunner().invoke(cli, ["report", "--store", ground.dsn, *layers, *sets, *arguments])


@pytest.fixture(scope="module")
def found(ground: Stage) -> dict[str, Any]:
    done = report(ground, "--quantile", "mean", "--json")
    assert done.exit_code == 0, done.output
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_every_layer_is_named_with_what_it_was_given(found: dict[str, Any]) -> None:
    """The truth is what was added to the mean; intervals of 95 %, widened to 99.9 % as four are looked at."""
    shares = {share["name"]: share for share in found["attribution"]["shows"]["shares"]}
    for name, truth in CHANGE.items():
        share = shares[name]
        half = (share["high"] - share["low"]) / 2
        assert share["verdict"] == "named", share
        assert abs(share["value"] - truth) < 1.7 * half, (
            f"{name}: {share['value']:.1f} for {truth}, +- {half:.1f}"
        )


def test_shares_add_up(found: dict[str, Any]) -> None:
    shows = found["attribution"]["shows"]
    whole = sum(share["value"] for share in shows["shares"]) + shows["residual"]
    assert whole == pytest.approx(shows["change"], rel=1e-9)
    assert abs(shows["residual"]) < 0.05 * shows["change"]
    change = found["quantiles"][0]["change"]["value"]
    assert shows["change"] == pytest.approx(change, rel=1e-6)


def test_what_caused_it_is_refused(found: dict[str, Any]) -> None:
    assert "only LLM servers are replayed" in found["attribution"]["caused"]["refused"]
    assert "What caused it cannot be told" in found["answer"]


def test_it_reads_as_the_chain_does(ground: Stage) -> None:
    done = report(ground, "--quantile", "0.95", "--fast")
    assert done.exit_code == 0, done.output
    text = " ".join(done.output.split())
    assert text.startswith("P95 time to the last byte rose by")
    assert "answered by origin" in text
    for word in ("prompt", "token", "completion"):
        assert word not in text.lower(), text


def test_the_page_opens_without_network(ground: Stage, tmp_path: Path) -> None:
    page = tmp_path / "cdn.html"
    done = report(ground, "--fast", "-o", str(page))
    assert done.exit_code == 0, done.output
    text = page.read_text()
    assert "time to the last byte" in text
    assert 'src="http' not in text


def test_its_layers_have_the_colours_of_the_file(
    ground: Stage, found: dict[str, Any], tmp_path: Path
) -> None:
    colours = {line["layer"]: line["colour"] for line in found["layers"]}
    assert {name: colours[name] for name in ("cdn", "edge", "origin")} == {
        "cdn": "#56B4E9", "edge": "#009E73", "origin": "#D55E00"}  # fmt: skip
    page = tmp_path / "cdn.html"
    assert report(ground, "--fast", "-o", str(page)).exit_code == 0
    drawn = page.read_text().partition("</head>")[2]
    assert all(f'"color":"{colour}"' in drawn for colour in colours.values())


def test_what_is_kept_says_what_was_asked(ground: Stage) -> None:
    done = report(ground, "--fast", "--save", "--quantile", "0.95", "--metric", "e2e")
    assert done.exit_code == 0, done.output
    with connect(ground.dsn) as client:
        rows = client.query("SELECT name, subject, inputs FROM findings WHERE origin = 'report'").result_rows
    told = json.loads(rows[0][2])
    assert (told["metric"], told["quantile"], told["a"]) == ("delivery", 0.95, "release=v1")
    assert told["layers"] == str(FOLDER / "layers.yaml")
    assert {("report.shows", name) for name in CHANGE} <= {(name, subject) for name, subject, _ in rows}


def test_a_layer_of_the_chain_has_a_budget(ground: Stage) -> None:
    sets = ("--a", "release=v1", "--b", "release=v2", "--quantile", "mean", "--fast", "--json")
    layers = ("--layers", str(FOLDER / "layers.yaml"))
    command = ["gate", "--store", ground.dsn, *layers, *sets, "--budget", "edge=20ms", "--budget", "cdn=90ms"]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 1, done.output
    told = {line["name"]: line["outcome"] for line in json.loads(done.stdout)["lines"]}
    assert told == {"edge": "exceeded", "cdn": "within"}


def test_a_deployment_takes_no_layers(ground: Stage) -> None:
    arguments = ["report", "--store", ground.dsn, "--layers", str(FOLDER / "layers.yaml"), "--deploy", "v2"]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code != 0
    assert "--layers takes --a and --b" in str(done.exception or done.output)


def test_without_its_spans_it_says_which_are_there(db: Database) -> None:
    sets = ("--a", "release=v1", "--b", "release=v2")
    command = ["report", "--store", db.dsn, "--layers", str(FOLDER / "layers.yaml"), *sets]
    done = CliRunner().invoke(cli, command)
    told = "no span is 'GET' of 'client'; spans here: none: send some to hitmap's OTLP port"
    assert told in str(done.exception or done.output)
