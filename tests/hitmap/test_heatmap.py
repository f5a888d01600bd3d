"""`hitmap heatmap` as a person calls it: a store, a command line, what comes out."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cachemodel.errors import UsageError, UserError
from hitmap.cli import COMMANDS, cli
from tests.analysis.heatmap.worlds import Prompt, clock, put
from tests.conftest import Database
from tests.dashboard.made import HOSTILE

T = 0xAAAAAAAA << 32


@pytest.fixture
def filled(db: Database) -> Database:
    """A template with a clock at token 64, and one of a server whose name is none."""
    put(db.client, [*clock(20, T), *[Prompt([1, 2, 3], T + (1 << 60), server=HOSTILE, phase=HOSTILE)] * 5])
    return db


def hitmap(db: Database, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["heatmap", "--store", db.dsn, *arguments])


def test_text(filled: Database) -> None:
    shown = hitmap(filled)
    assert shown.exit_code == 0, shown.output
    assert "aaaaaaaa 9999000000" in shown.output
    flat = " ".join(shown.output.split())
    assert "Rewriting pays most in template aaaaaaaa at tokens 64-160" in flat
    assert "of the same server, salt and adapter" in flat
    assert "\x1b" not in shown.output
    assert "heatmap" in COMMANDS


@pytest.mark.parametrize(
    ("layer", "line"), [("volatility", "aaaaaaaa 0000900000"), ("cost", "aaaaaaaa 0000999999")]
)
def test_layers(filled: Database, layer: str, line: str) -> None:
    assert line in hitmap(filled, "--layer", layer).output


def test_json(filled: Database) -> None:
    found = json.loads(hitmap(filled, "--json").output)
    assert found["schema_version"] == 1
    row = found["rows"][0]
    assert (row["key"], row["requests"]) == ("aaaaaaaa", 20)
    assert [cell["reuse"] for cell in row["cells"]] == [0.95] * 4 + [0.0] * 6
    assert row["cells"][0]["stability"] is None
    assert found["marks"][0]["start"] == 64
    assert HOSTILE in found["servers"]
    assert "NaN" not in hitmap(filled, "--json").output


def test_by_time(filled: Database) -> None:
    found = json.loads(hitmap(filled, "2026-11-29T12:00/2026-11-29T12:01", "--by", "time", "--json").output)
    assert found["rows"][0]["key"] == "2026-11-29T12:00:00+00:00"


class Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.scripts, self.sources, self.text = 0, [], ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.sources += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_html_needs_nothing_else_and_names_are_text(filled: Database, tmp_path: Path) -> None:
    file = tmp_path / "heatmap.html"
    shown = hitmap(filled, f"phase={HOSTILE[:60]}*", "-o", str(file))
    assert (shown.exit_code, shown.output) == (0, ""), shown.output
    page = Page()
    page.feed(file.read_text())
    assert page.sources == []
    assert f"Heatmap: phase={HOSTILE[:60]}*" in page.text
    assert "<script>window.hit" not in file.read_text()


@pytest.mark.parametrize(
    ("name", "start"),
    [("h.png", b"\x89PNG"), ("h.md", b"# Heatmap"), ("h.json", b"{"), ("h.txt", b"41 % of the blocks")],
)
def test_files(filled: Database, tmp_path: Path, name: str, start: bytes) -> None:
    file = tmp_path / name
    shown = hitmap(filled, "-o", str(file))
    assert (shown.exit_code, shown.output) == (0, ""), shown.output
    assert file.read_bytes().startswith(start)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (("-o", "/nowhere/h.png"), UsageError, "there is no folder /nowhere"),
        (("-o", "h.bmp"), UsageError, ".html, .htm, .txt, .png"),
        (("--format", "png"), UsageError, "a picture goes into a file: -o heatmap.png"),
        (("server=z",), UserError, "no request matches 'server=z'"),
        (("colour=red",), UsageError, "no column or label 'colour'"),
    ],
)
def test_errors_say_what_to_do(
    filled: Database, arguments: tuple[str, ...], error: type[UserError], words: str
) -> None:
    result = hitmap(filled, *arguments)
    assert isinstance(result.exception, error), result.output
    assert words in str(result.exception)


def test_an_empty_store(db: Database) -> None:
    assert "the store has no requests yet" in str(hitmap(db).exception)


def test_requests_without_prompts_say_how_to_get_them(filled: Database) -> None:
    filled.client.command("TRUNCATE TABLE chain_depths")
    assert re.search(r"no prompt is known: read their log with hitmap attach", str(hitmap(filled).exception))
