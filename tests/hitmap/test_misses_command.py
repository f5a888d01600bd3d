"""`hitmap misses` and `hitmap explain` as a person calls them: a store, a command line, what comes out."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from analysis.misses.next_steps import next_steps
from analysis.misses.parts import PARTS
from analysis.misses.report_model import MissLine, MissReport
from analysis.misses.text import bar, describe, to_markdown, to_terminal
from cachemodel.errors import UsageError, UserError
from hitmap.cli import cli
from tests.analysis.misses.build import World
from tests.analysis.misses.stored_world import insert, moment, put
from tests.conftest import Database

LATER = 100_000


@pytest.fixture
def filled(db: Database) -> Database:
    """Two servers: half of the second prompt was elsewhere; the third found nothing that had changed places."""
    world = (
        World({"a": 1, "b": 1}).served("ABCD", 0, "a", cached=0).served("ABCE", LATER, "b", cached=0, more=3)
    )
    put(db.client, world, tenant="acme|x")
    db.client.command("INSERT INTO request_keys SELECT sipHash64(request_id), toDateTime(time) FROM requests")
    return db


def hitmap(db: Database, *arguments: str) -> Result:
    return CliRunner().invoke(cli, [arguments[0], "--store", db.dsn, *arguments[1:]])


def test_text(filled: Database) -> None:
    shown = hitmap(filled, "misses")
    assert shown.exit_code == 0, shown.output
    flat = " ".join(shown.output.split())
    assert flat.startswith(
        "0% of 131 prompt tokens came from the cache; 63% of the 131 computed ones were computed because"
    )
    assert "Next: 37% because another replica held them at that moment" in flat
    assert "the last hour with requests, up to 2026-11-29 12:01:40 UTC: 2 requests, 131 prompt tokens" in flat
    assert "elsewhere 48 37%" in flat
    assert "By server" in flat
    assert "From KV events alone" in flat
    assert "hits leave no trace in them" in flat
    assert "what was sent before 2026-11-29 11:59:59.995 UTC cannot be known: it counts as cold" in flat
    assert "elsewhere: send requests that begin alike to one replica" in flat
    assert "hitmap explain r0" in flat
    assert (
        "hitmap misses 2026-11-29T11:01:40/2026-11-29T12:01:41,server=a # the group with most of it" in flat
    )
    assert hitmap(filled, "misses", "2026-11-29T11:01:40/2026-11-29T12:01:41,server=a").exit_code == 0


def test_json_adds_up(filled: Database) -> None:
    data = json.loads(hitmap(filled, "misses", "server=b", "--by", "tenant", "--json").output)
    assert data["name"] == "server=b"
    assert [line["key"] for line in data["lines"]] == ["acme|x"]
    for line in (data["total"], *data["lines"], *data["trend"]):
        assert sum(line["parts"].values()) == line["prompt"] == 67
    assert data["total"]["parts"] == {"elsewhere": 48, "cold": 19}
    assert set(data["total"]["parts"]) <= set(PARTS)


@pytest.mark.parametrize("by", ["server", "model", "template", "isolation", "label.tenant", "word"])
def test_groups(filled: Database, by: str) -> None:
    data = json.loads(hitmap(filled, "misses", "--by", by, "--json").output)
    keys = {line["key"] for line in data["lines"]}
    expected = {
        "server": {"a", "b"},
        "model": {"m"},
        "template": {"00000000"},
        "isolation": {"(none)"},
        "label.tenant": {"acme|x"},
        "word": {"ABCD", "ABCE"},
    }
    assert keys == expected[by]


@pytest.mark.parametrize(("name", "start"), [("m.md", "# Misses: "), ("m.json", "{"), ("m.txt", "0% of 131")])
def test_files(name: str, start: str, filled: Database, tmp_path: Path) -> None:
    file = tmp_path / name
    shown = hitmap(filled, "misses", "--by", "tenant", "-o", str(file))
    assert (shown.exit_code, shown.output) == (0, "")
    written = file.read_text()
    assert written.startswith(start)
    if name == "m.md":
        assert "| cause" not in written
        assert "`hitmap explain r0" in written
    assert "█" not in written  # a bar says nothing without its colours


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (("misses", "--by", "tennant"), UsageError, "cannot be grouped by 'tennant'"),
        (("misses", "--by", "request_id"), UsageError, "hitmap explain takes one apart"),
        (("misses", "phase=x"), UsageError, "no column or label 'phase'"),
        (("misses", "server=c"), UserError, "no request matches 'server=c': the store has 2 requests"),
        (("misses", "-o", "/dev/null/x"), UserError, "/dev/null/x cannot be written"),
        (("explain", "nothing"), UserError, "no request 'nothing'"),
        (("explain", "r"), UsageError, "several requests are called so: r0, r1"),
    ],
)
def test_errors_say_what_to_do(
    arguments: tuple[str, ...], error: type[UserError], words: str, filled: Database
) -> None:
    result = hitmap(filled, *arguments)
    assert isinstance(result.exception, error), result.output
    assert words in str(result.exception)


@pytest.mark.parametrize(
    "arguments",
    [
        ("-5000d/now,server=b",),
        ("--json", "-5000d/now,server=b"),
        ("-5000d/now,server=b", "--by", "tenant"),
        ("--by", "tenant", "--", "-5000d/now,server=b"),
    ],
)
def test_a_window_that_begins_with_a_dash_is_no_option(arguments: tuple[str, ...], filled: Database) -> None:
    options = () if "--json" in arguments else ("--json",)
    shown = hitmap(filled, "misses", *options, *arguments)
    assert shown.exit_code == 0, shown.output
    assert json.loads(shown.output)["name"] == "-5000d/now,server=b"


def test_a_file_may_be_called_as_a_window(
    filled: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert hitmap(filled, "misses", "-o", "-1d.json", "-5000d/now").exit_code == 0
    assert json.loads((tmp_path / "-1d.json").read_text())["name"] == "-5000d/now"


def test_what_is_no_option_is_refused(filled: Database) -> None:
    for wrong in ("--bye", "-x/now", "--1h/now"):
        assert "No such option" in hitmap(filled, "misses", wrong).output
    assert "unexpected extra argument" in hitmap(filled, "misses", "-1h/now", "-2h/now").output
    shown = hitmap(filled, "explain", "-4f1c")
    assert "write cli explain -- ID" in " ".join(shown.output.split()), shown.output
    assert "no request '-4f1c'" in str(hitmap(filled, "explain", "--", "-4f1c").exception)


def test_an_empty_store(db: Database) -> None:
    result = hitmap(db, "misses")
    assert "the store has no requests yet; attach a server or run hitmap demo" in str(result.exception)


def test_requests_without_prompts_or_events_say_what_would_tell(db: Database) -> None:
    put(
        db.client,
        World(joined={("a", 0): None})
        .ask("AB", 0, known=False)
        .ask("ABC", LATER)
        .ask("ABC", 2 * LATER, cached=0),
    )
    flag = "--kv-events-config '{...}'"
    insert(db.client, "servers", [
        {"time": moment(0), "server": "a", "kind": "vllm", "version": "", "url": "", "models": ["m"], "facts": {},
         "signals": [("KV-cache events", False, "", flag)], "notes": []}
    ])  # fmt: skip
    data = json.loads(hitmap(db, "misses", "--json").output)
    assert data["derived"] == 2
    needs = data["unknown_needs"]
    assert needs[0].startswith("48 tokens of a, which tells no KV events: it needs --kv-events-config")
    assert needs[1].startswith("32 tokens of 1 requests whose prompts are not known: attach with --log FILE")
    assert any("of 2 of 3 requests nothing tells what was served" in warning for warning in data["warnings"])
    assert data["total"]["parts"]["unknown"] == 80


def test_kv_events_alone_make_a_report(filled: Database) -> None:
    filled.client.command("TRUNCATE TABLE requests")
    shown = hitmap(filled, "misses", "2026-11-29T11:00/2026-11-29T13:00")
    assert shown.exit_code == 0, shown.output
    flat = " ".join(shown.output.split())
    assert flat.startswith(
        "No request is known of that time; KV events alone tell that 100% of 128 stored tokens"
    )
    assert "hitmap attach URL --log FILE --tokenizer PATH" in flat


def test_explain(filled: Database) -> None:
    shown = hitmap(filled, "explain", "r1")
    assert shown.exit_code == 0, shown.output
    flat = " ".join(shown.output.split())
    assert flat.startswith(
        "0 of 67 prompt tokens came from the cache; 67 were computed: 48 elsewhere, 19 cold."
    )
    assert "r1 on b, model m, 2026-11-29 12:01:40 UTC" in flat
    assert "0 48 48 elsewhere held by a at that moment" in flat
    data = json.loads(hitmap(filled, "explain", "r1", "--json").output)
    assert [(run["start"], run["end"], run["part"]) for run in data["runs"]] == [
        (0, 48, "elsewhere"),
        (48, 67, "cold"),
    ]
    markdown = hitmap(filled, "explain", "r1", "--format", "markdown").output
    assert markdown.startswith("# r1\n")
    assert "| 0 | 48 | 48 | elsewhere | held by a at that moment |" in markdown


def test_an_explanation_is_found_by_any_part_of_an_id(filled: Database) -> None:
    filled.client.command("INSERT INTO request_keys SELECT sipHash64('chat-x-0039'), toDateTime(now())")
    filled.client.command(
        "INSERT INTO requests (time, server, request_id, prompt_tokens) SELECT toDateTime(now()), 'a', 'chat-x-0039', 9"
    )
    for part in ("chat-x-0039", "chat", "x-0039", "0039"):
        assert json.loads(hitmap(filled, "explain", part, "--json").output)["request_id"] == "chat-x-0039"


def test_a_bar_is_as_wide_as_asked_and_in_the_colours_of_its_parts() -> None:
    drawn = bar({"device": 50, "changed": 25, "cold": 25}, 100, 20)
    assert len(drawn.plain) == 20
    assert [(span.end - span.start, span.style) for span in drawn.spans] == [
        (10, "#56B4E9"),
        (5, "#882255"),
        (5, "#BBBBBB"),
    ]
    assert bar({}, 0, 5).plain == "     "
    assert bar({"cold": 10}, 20, 4).plain == "██  "


def test_hostile_names_do_not_steer_the_terminal() -> None:
    line = MissLine("\x1b[31mx\n", 1, 1, 10, {"cold": 10})
    report = MissReport("set\x1b[0m", "tenant", "2026-11-29T12:00:00Z", "2026-11-29T12:00:00Z", 1, 0, "", line,
                        [line, line], [], [], [], answer="a\x07b")  # fmt: skip
    console = Console(width=60, record=True, force_terminal=True, highlight=False, file=io.StringIO())
    to_terminal(report, console)
    text = console.export_text()
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "�[31mx" in text


def report_of(
    *steps: str, by: str = "tenant", sampled: int = 1, requests: int = 2, selected: int = 2
) -> MissReport:
    line = MissLine("a", requests, requests, 10, {"cold": 10})
    return MissReport("all", by, "2026-11-29T12:00:00Z", "2026-11-29T12:00:00Z", sampled, 0, "", line,
                      [line, line], [], [], [], next_steps=list(steps), selected=selected)  # fmt: skip


def test_markdown_shows_hostile_ids_and_labels_as_they_are() -> None:
    evil = "hitmap explain 'a`<img src=x>``|\n# b\x1b[31m'"
    page = to_markdown(report_of(evil, "hitmap misses --by x", by="<i>|[x](y)"))
    assert "* ``` hitmap explain 'a`<img src=x>``|↵# b�[31m' ```" in page.splitlines()
    assert "* `hitmap misses --by x`" in page.splitlines()
    assert "\x1b" not in page
    assert r"\<i\>\|\[x\](y)" in page
    assert "| <i>" not in page


def test_labels_are_no_markup_of_the_terminal() -> None:
    console = Console(width=90, record=True, force_terminal=True, highlight=False, file=io.StringIO())
    to_terminal(report_of(by="x[/y] [bold]z"), console)
    assert "By x[/y] [bold]z" in console.export_text()


def test_of_more_requests_than_are_read_the_headline_says_so() -> None:
    told = describe(report_of(sampled=2, requests=25_038, selected=50_000))
    assert told.startswith("all: 25,038 of 50,000 requests (one in two), 10 prompt tokens")
    assert describe(report_of()).startswith("all: 2 requests, 10 prompt tokens")


def test_an_id_that_begins_with_a_dash_is_suggested_so_that_it_works() -> None:
    assert next_steps(report_of(), "-4f`1c")[1].startswith("hitmap explain -- '-4f`1c'    #")
