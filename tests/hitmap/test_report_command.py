"""`hitmap report` as a person calls it: a store, a command line, what comes out."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from cachemodel.errors import UsageError, UserError
from hitmap.cli import cli
from tests.conftest import Database

START = datetime(2026, 11, 29, 12, tzinfo=UTC)
COLUMNS = ["time", "server", "request_id", "span_id", "ttft_us", "frontend_us", "queue_us", "prefill_us",
           "prompt_tokens", "cached_tokens", "labels"]  # fmt: skip


@pytest.fixture
def filled(db: Database) -> Database:
    """14 requests that found their prompt in the cache, then 28 that did not."""
    rng, rows = np.random.default_rng(1), []
    for i in range(42):
        warm = i < 14
        frontend, queue = (int(x) for x in rng.exponential(3000, 2))
        prefill = int(rng.normal(20_000 if warm else 90_000, 2000))
        time, phase = START + timedelta(seconds=i), {"phase": "warm" if warm else "cold"}
        layers = [frontend, queue, prefill]
        rows.append([time, "vllm-a", f"r{i}", i + 1, sum(layers), *layers, 400, 320 if warm else 0, phase])
    db.client.insert("requests", rows, column_names=COLUMNS)
    db.client.insert("deploys", [[START + timedelta(seconds=14), "v42"]], column_names=["time", "name"])
    return db


def report(db: Database, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["report", "--store", db.dsn, *arguments])


PAIR = ("--a", "phase=warm", "--b", "phase=cold")


def test_text(filled: Database) -> None:
    shown = report(filled, *PAIR)
    assert shown.exit_code == 0, shown.output
    flat = " ".join(shown.output.split())
    assert flat.startswith("P50 time to first token rose by")
    assert "What caused it cannot be told (th" in flat
    assert "it shows up as" in flat
    assert "Cached prompt tokens went from 80.0% to 0.0%" in flat
    assert "A: phase=warm, n = 14," in flat
    assert "hitmap report --a phase=warm --b phase=cold --metric e2e" in flat


def test_json_adds_up(filled: Database) -> None:
    data = json.loads(report(filled, *PAIR, "--json", "--quantile", "0.75").output)
    assert (data["a"]["n"], data["b"]["n"]) == (14, 28)
    chosen = next(c for c in data["quantiles"] if c["name"] == "P75")
    for side in ("a", "b", "change"):
        parts = sum(line["part"][side]["value"] for line in data["layers"])
        assert parts == pytest.approx(chosen[side]["value"], abs=1e-9)
    assert data["tokens"][0]["tokens_a"] == 14 * 320


def test_a_deployment(filled: Database) -> None:
    data = json.loads(report(filled, "--deploy", "v42", "--window", "1h", "--json").output)
    assert (data["a"]["name"], data["a"]["n"]) == ("before v42", 14)
    assert (data["b"]["name"], data["b"]["n"]) == ("after v42", 28)


def test_the_next_step_can_be_run(filled: Database) -> None:
    data = json.loads(report(filled, "--deploy", "v42", "--json").output)
    words = data["next_steps"][0].split()
    assert words[:2] == ["hitmap", "report"]
    again = report(filled, *words[2:-1], "ttft")  # these requests have no end-to-end time
    assert again.exit_code == 0, again.output


@pytest.mark.parametrize(("form", "start"), [("text", "P50 "), ("markdown", "# phase=warm"), ("json", "{")])
def test_files(form: str, start: str, filled: Database, tmp_path: Path) -> None:
    file = tmp_path / "out"
    shown = report(filled, *PAIR, "--format", form, "-o", str(file))
    assert (shown.exit_code, shown.output) == (0, "")
    assert file.read_text().startswith(start)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (("--a", "phase=hot", "--b", "phase=cold"), UserError, "42 requests of vllm-a, 2026-11-29 12:00"),
        (("--a", "phase=hot", "--b", "phase=cold"), UserError, "UTC; phase: cold (28), warm (14)"),
        (
            ("--a", "phase=warm,arm=x*", "--b", "phase=cold"),
            UsageError,
            "have no column or label 'arm'; labels here: phase",
        ),
        (("--a", "phse=warm", "--b", "phase=cold"), UsageError, "did you mean phase"),
        (
            (*PAIR, "--metric", "e2e"),
            UserError,
            "14 requests are 'phase=warm', 0 of them with e2e; at least 3",
        ),
        (("--deploy", "v43"), UserError, "no deployment 'v43'; marked are v42"),
        (("--deploy", "v42", "--window", "soon"), UsageError, "is no duration"),
        (("--deploy", "v42", *PAIR), UsageError, "--deploy makes both sets"),
        ((*PAIR, "-o", "/dev/null/x"), UsageError, "cannot be written: there is no folder /dev/null"),
        ((*PAIR, "-o", "/dev/full"), UserError, "/dev/full cannot be written: No space left"),
        (
            (*PAIR, "-o", "x.pdf"),
            UsageError,
            "x.pdf: a file ends in .md, .json, .html, .htm, .txt, or --format says",
        ),
        (
            (*PAIR, "--quantile", "1.5"),
            UsageError,
            "a quantile lies between 0 and 1: write 0.99 for P99, not 1.5",
        ),
        ((*PAIR, "--quantile", "nan"), UsageError, "a quantile lies between 0 and 1"),
        (("--a", "-1h/-2h", "--b", "-1h/now"), UsageError, "the window '-1h/-2h' ends before it begins"),
    ],
)
def test_errors_say_what_to_do(
    arguments: tuple[str, ...], error: type[UserError], words: str, filled: Database
) -> None:
    shown = report(filled, *arguments)
    assert isinstance(shown.exception, error)
    assert words in str(shown.exception)
    assert "\n" not in str(shown.exception)


def test_a_seed_is_a_number_that_there_is(filled: Database) -> None:
    shown = report(filled, *PAIR, "--seed", "-1", "--json")
    assert shown.exit_code == 2
    assert "-1 is not in the range" in shown.output


def test_the_same_requests_twice_change_nothing(filled: Database) -> None:
    data = json.loads(report(filled, "--a", "phase=cold", "--b", "phase=cold", "--json").output)
    assert data["answer"].startswith("No clear change")
    assert {c["change"]["value"] for c in data["quantiles"]} == {0.0}
    assert "both sets are the same requests" in data["warnings"]
    assert not any("hitmap gate" in step for step in data["next_steps"]), "which would be a wrong call"


def test_requests_that_both_sets_hold_are_told(filled: Database) -> None:
    """14 warm ones in A, and all 42 in B."""
    data = json.loads(report(filled, "--a", "phase=warm", "--b", "phase=*", "--json").output)
    assert data["shared"] == 14
    assert any(warning.startswith("14 requests are in both sets") for warning in data["warnings"])
    shown = CliRunner().invoke(
        cli, ["gate", "--store", filled.dsn, "--budget", "total=1s", "--a", "phase=warm", "--b", "phase=w*"]
    )
    assert isinstance(shown.exception, UserError)
    assert "all requests of one set are in the other one" in str(shown.exception)


def test_all_of_a_report_has_one_kind_of_interval(filled: Database) -> None:
    """The change of the quantile is said in the answer, in each view and in the table of quantiles."""
    data = json.loads(report(filled, *PAIR, "--json", "--quantile", "0.5").output)
    change = next(c for c in data["quantiles"] if c["name"] == "P50")["change"]
    shows, made_of = (data["attribution"][name] for name in ("shows", "composition"))
    ends = [(v["change"], v["change_low"], v["change_high"]) for v in (shows, made_of)]
    for told in ends:
        assert told == pytest.approx((change["value"], change["low"], change["high"]), rel=1e-6)
    parts = {share["name"]: share for share in made_of["shares"]}
    for line in data["layers"]:
        part, share = line["part"]["change"], parts[line["layer"]]
        assert (part["value"], part["low"], part["high"]) == pytest.approx(
            (share["value"], share["low"], share["high"]), rel=1e-6
        )


def test_an_empty_store(db: Database) -> None:
    shown = report(db, "--a", "-2h/-1h", "--b", "-1h/now")
    assert isinstance(shown.exception, UserError)
    assert "the store has no requests yet" in str(shown.exception)
