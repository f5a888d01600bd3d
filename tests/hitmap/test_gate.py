"""`hitmap gate` in CI: a planted regression fails it, a null comparison passes, and what cannot be told is neither."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from analysis.attribution.model import Side
from cachemodel.errors import UsageError, UserError
from cachemodel.layers import SERVING_LAYERS
from hitmap.cli import cli, main
from store.client import connect
from store.embedded import Embedded
from store.migrate import migrate
from tests.analysis.attribution.contention import AS_WAS, Draws, World, side
from tests.conftest import Database

N = 800
COLUMNS = ["time", "server", "request_id", "span_id", "prompt_tokens", "completion_tokens", "device_tokens",
           "host_tokens", "remote_tokens", "cached_tokens", "ttft_us", "e2e_us", "labels"]  # fmt: skip
CDN = str(Path(__file__).parents[2] / "deploy/examples/cdn/layers.yaml")
MAIN, PR, SAME, FEW = "arm=main", "arm=pr", "arm=same", "arm=few"


@pytest.fixture(scope="module")
def filled(store_server: Embedded) -> Iterator[Database]:
    """Four arms of one server, one after the other: main, one that lost hits, one like main, and a few requests."""
    root = connect(store_server.dsn)
    root.command("CREATE DATABASE gate")
    dsn = store_server.dsn.rpartition("/")[0] + "/gate"
    client = connect(dsn)
    migrate(client)
    arms = {
        "main": (AS_WAS, 1, N),
        "pr": (World(hits=0.5), 2, N),
        "same": (AS_WAS, 3, N),
        "few": (World(hits=0.5), 4, 20),
    }
    for at, (arm, (world, seed, n)) in enumerate(arms.items()):
        _insert(Database(dsn, client), arm, side(world, Draws.of(n, seed)), 600.0 * at)
    yield Database(dsn, client)
    client.close()
    root.command("DROP DATABASE gate")
    root.close()


def _insert(db: Database, arm: str, traffic: Side, later_s: float) -> None:
    of = {name: traffic.tokens[traffic.sources.index(name)] for name in ("device", "host")}
    layers = [layer for layer in SERVING_LAYERS if np.isfinite(traffic.time(layer.name)).all()]
    times = np.stack([traffic.time(layer.name) for layer in layers])
    rows = [
        [
            datetime.fromtimestamp(traffic.arrival[i] + later_s, UTC),
            *("vllm-a", f"{arm}-{i}", i + 1, int(traffic.prompt[i]), int(traffic.completion[i])),
            *(int(of["device"][i]), int(of["host"][i]), 0, int(of["device"][i] + of["host"][i])),
            *(round(1000 * traffic.time("ttft")[i]), round(1000 * traffic.time("e2e")[i]), {"arm": arm}),
            *(round(1000 * x) for x in times[:, i]),
        ]
        for i in range(traffic.n)
    ]
    db.client.insert("requests", rows, column_names=[*COLUMNS, *(layer.column for layer in layers)])


def gate(db: Database, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["gate", "--store", db.dsn, "--metric", "e2e", "--fast", *arguments])


def test_a_planted_regression_fails_and_names_who(filled: Database) -> None:
    shown = gate(
        filled, "--budget", "hits=20ms", "--budget", "workload=1s", "--against", MAIN, "--b", PR, "--json"
    )
    assert shown.exit_code == 1, shown.output
    told = json.loads(shown.output)
    by_name = {line["name"]: line for line in told["lines"]}
    assert by_name["hits"]["outcome"] == "exceeded"
    assert by_name["hits"]["view"] == "caused", told["report"]["attribution"]["caused"]["refused"]
    assert by_name["hits"]["value"] > 20
    assert by_name["workload"]["outcome"] == "within"


def test_a_null_comparison_passes(filled: Database) -> None:
    shown = gate(filled, "--budget", "hits=20ms", "--budget", "decode speed=100ms", "--a", MAIN, "--b", SAME)
    assert shown.exit_code == 0, shown.output
    assert shown.output.startswith("hitmap gate: within budget")


def test_too_few_requests_decide_nothing(filled: Database) -> None:
    shown = gate(filled, "--budget", "hits=20ms", "--a", MAIN, "--b", FEW)
    assert shown.exit_code == 3, shown.output
    assert shown.output.startswith("hitmap gate: not decided")


def test_a_saved_report_is_a_baseline(filled: Database, tmp_path: Path) -> None:
    saved = tmp_path / "main.json"
    options = ["--store", filled.dsn, "--fast", "--metric", "e2e", "--quantile", "0.9", "--save"]
    made = CliRunner().invoke(cli, ["report", "--a", FEW, "--b", MAIN, *options, "--json", "-o", str(saved)])
    assert made.exit_code == 0, made.output
    asked = ["--fast", "--budget", "total=20ms", "--against", str(saved), "--b", PR, "--format", "markdown"]
    shown = CliRunner().invoke(cli, ["gate", "--store", filled.dsn, *asked])
    assert shown.exit_code == 1, shown.output
    assert shown.output.startswith("### hitmap gate: budget exceeded\n\nP90 end-to-end time rose by")
    rows = filled.client.query(
        "SELECT name, subject, inputs FROM findings WHERE origin = 'report' AND name = 'report.change'"
    ).result_rows
    assert [(row[0], row[1]) for row in rows] == [("report.change", "P90")]
    told = json.loads(rows[0][2])
    assert (told["a"], told["b"], told["metric"], told["quantile"]) == (FEW, MAIN, "e2e", 0.9)


@pytest.mark.parametrize(
    ("arguments", "error", "code", "words"),
    [
        (("--budget", "hits", "--a", MAIN, "--b", PR), UsageError, 2, "is no budget"),
        (
            ("--budget", "hots=2ms", "--a", MAIN, "--b", FEW),
            UsageError,
            2,
            "nothing of e2e is called 'hots' here",
        ),
        (("--budget", "hits=2ms", "--b", PR), UsageError, 2, "say what to compare"),
        (("--budget", "hits=2ms", "--a", "none.json", "--b", PR), UsageError, 2, "none.json cannot be read"),
        (("--budget", "hits=2ms", "--a", "/", "--b", PR), UsageError, 2, "/ cannot be read: Is a directory"),
        (
            ("--budget", "hits=2ms", "--a", MAIN, "--b", MAIN),
            UsageError,
            2,
            "both sets are the same requests",
        ),
        (
            ("--budget", "hits=2ms", "--a", MAIN, "--b", PR, "-o", "/none/x.md"),
            UsageError,
            2,
            "is no folder /none",
        ),
        (
            ("--budget", "hits=2ms", "--a", MAIN, "--b", FEW, "-o", "/dev/full"),
            UserError,
            3,
            "cannot be written",
        ),
        (("--budget", "hits=2ms", "--a", MAIN, "--b", "arm=gone"), UserError, 3, "no request matches"),
    ],
)
def test_what_is_wrong_is_never_taken_for_a_regression(
    arguments: tuple[str, ...], error: type[UserError], code: int, words: str, filled: Database
) -> None:
    shown = gate(filled, *arguments)
    assert isinstance(shown.exception, error)
    assert shown.exception.exit_code == code
    assert words in str(shown.exception)


def test_what_is_no_report_is_no_baseline(filled: Database, tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    for text, words in (("{}", "is no saved report"), ('{"schema": 0, "b": {"asked": "x=1"}, "metric": "e2e",'
                        ' "quantile": 0.5}', "has schema 0"), ('{"schema": 1, "b": {"asked": 5}, "metric": "e2e",'
                        ' "quantile": 0.5}', "is no saved report"), ('{"schema": 1, "b": {"asked": "arm=main"},'
                        ' "metric": "e2e", "quantile": "x"}', "is no saved report")):  # fmt: skip
        file.write_text(text)
        shown = gate(filled, "--budget", "hits=2ms", "--against", str(file), "--b", PR)
        assert isinstance(shown.exception, UsageError)
        assert words in str(shown.exception)


def test_a_baseline_of_a_chain_asks_for_its_layers(tmp_path: Path) -> None:
    file = tmp_path / "cdn.json"
    file.write_text('{"schema": 1, "b": {"asked": "release=v1"}, "metric": "delivery", "quantile": 0.5}')
    shown = CliRunner().invoke(cli, ["gate", "--budget", "cdn=2ms", "--against", str(file), "--b", PR])
    assert isinstance(shown.exception, UsageError)
    assert "'delivery' is of a chain of layers: say which file describes it, --layers FILE" in str(
        shown.exception
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--budget", "cahnged=2ms"), "nothing of ttft is called 'cahnged' here; did you mean changed?"),
        (("--budget", "total=2ms", "--budget", "decod=2ms", "--metric", "e2e"), "did you mean decode?"),
        (("--budget", "decode=2ms"), "nothing of ttft is called 'decode' here"),
        (("--budget", "zzzz=2ms"), "budgets are for total, workload, "),
        (("--budget", "egde=2ms", "--layers", CDN), "nothing is called 'egde' here; did you mean edge?"),
        (("--budget", "changed=2ms", "--layers", "none.yaml"), "none.yaml: No such file"),
    ],
)
def test_a_misspelt_name_is_told_before_any_work(options: tuple[str, ...], words: str) -> None:
    """Of a store that is not there nothing is asked."""
    asked = ["gate", "--store", "http://127.0.0.1:1/none", "--a", MAIN, "--b", PR, *options]
    shown = CliRunner().invoke(cli, asked)
    assert isinstance(shown.exception, UsageError), shown.exception
    assert words in str(shown.exception)


@pytest.mark.parametrize(
    "options",
    [
        *(
            ("--budget", f"{name}=2ms")
            for name in ("total", "queue", "unattributed", "decode speed", "evicted")
        ),
        *(
            ("--budget", f"{name}=2ms", "--layers", CDN)
            for name in ("edge", "workload", "answered by origin")
        ),
    ],
)
def test_a_name_that_a_report_can_have_is_looked_up(options: tuple[str, ...]) -> None:
    asked = ["gate", "--store", "http://127.0.0.1:1/none", "--a", MAIN, "--b", PR, *options]
    shown = CliRunner().invoke(cli, asked)
    assert isinstance(shown.exception, UserError)
    assert "127.0.0.1:1" in str(shown.exception)


def test_no_store_decides_nothing() -> None:
    options = ["--store", "http://127.0.0.1:1/x", "--budget", "hits=2ms", "--a", MAIN, "--b", PR]
    shown = CliRunner().invoke(cli, ["gate", *options])
    assert isinstance(shown.exception, UserError)
    assert shown.exception.exit_code == 3


@pytest.mark.parametrize(
    "fault", [IndexError("a fault of ours"), ModuleNotFoundError("no numba", name="numba")]
)
def test_a_fault_of_ours_is_no_budget_exceeded(fault: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 1 would stop a release for a change that nobody measured."""

    def fails(*_: object) -> None:
        raise fault

    monkeypatch.setattr("hitmap.commands._compare.Question.check", fails)
    monkeypatch.setattr("sys.argv", ["hitmap", "gate", "--budget", "total=1s", "--a", "x=1", "--b", "x=2"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 3
