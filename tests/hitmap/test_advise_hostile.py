"""`hitmap advise` on logs that somebody made to break it: no traceback, no steered terminal, no styled page, no end of
memory or patience. What steers is shown as a visible character wherever it is written."""

from __future__ import annotations

import ast
import json
import re
import resource
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from click.testing import CliRunner, Result

from cachemodel.errors import UserError
from hitmap.cli import cli
from tests.analysis.advisor.planted import RULES, question

RUN = [sys.executable, "-m", "hitmap", "advise"]
SECONDS, BYTES = 60, 1_500_000_000

STEERING = {
    "colours and cursor": "\x1b[31mred\x1b[0m \x1b[2J\x1b[1;1H",
    "link": "\x1b]8;;https://evil.example\x1b\\here\x1b]8;;\x1b\\",
    "clipboard": "\x1b]52;c;ZXZpbA==\x07 \x1b]0;title\x07",
    "C1": "\x9b31m \x9d52;c;QQ==\x9c \x90q\x9c \x85",
    "HTML": "<script>window.hit=1</script><img src=x onerror=alert(1)> &lt; &#60; <!-- --> <a href='j:1'>x</a>",
    "rich markup": "[red]x[/red] [link=https://evil.example]y[/link] [bold][/] [/nothing] :boom:",
    "fences": "```\n# heading\n~~~\n``````` ````diff\n",
    "Markdown": "| a | b |\n|---|---|\n[l](javascript:1) ![i](https://evil.example/i.png) <https://evil.example> _a_",
    "lone surrogates": "\ud800 x \udfff",
    "reversed writing": "\u202egpj.exe\u202c \u2066x\u2069 \u200f \u061c",
    "line separators": "a\u2028b\u2029c\x0bd\x0ce\x1cf",
    "nothing to see": "\x00\x08\x7f\ufeff\u200b\U000e0041\ufff9",
    "XML": "]]> <![CDATA[ &amp; <!DOCTYPE x [<!ENTITY y SYSTEM 'file:///etc/passwd'>]> \ufffe\uffff",
    "YAML": "!!python/object/apply:os.system ['x']\n---\n- &a *a\n: {{ x }} #",
    "Python": "'''\"\"\"\\N{BELL}\\x41\\\n'); import os; os.abort() #",
    "a regular expression": "(a+)+$ (?P<x>.*)*(?:[^\\n]*?)* \\1 {1,99999}",
}


def record(at: int, system: str, **more: Any) -> dict[str, Any]:
    """A line whose system message begins with what is told."""
    import random

    text = f"{system}\n" + "\n".join(RULES["en"] * 2)
    messages = [{"role": "system", "content": text}, {"role": "user", "content": question(random.Random(at))}]
    return {"id": f"r{at}", "time": 1_790_000_000 + 37 * at, "body": {"messages": messages, **more}}


def log_of(folder: Path, records: Iterator[dict[str, Any]] | list[dict[str, Any]]) -> Path:
    file = folder / "log.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in records))
    return file


def advise(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["advise", *map(str, arguments)])


def bounded(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """By itself, in the memory and time that it may take at most; never a traceback."""

    def limits() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))

    done = subprocess.run(
        [*RUN, *map(str, arguments)],
        capture_output=True,
        check=False,
        preexec_fn=limits,
        errors="replace",
        text=True,
    )
    assert "Traceback" not in done.stderr, done.stderr[-2000:]
    assert done.returncode in (0, 1), (done.returncode, done.stderr[-500:])
    return done


def steers(text: str) -> set[str]:
    """Characters of a text that do something rather than being seen: control, format, separators of lines."""
    return {
        char for char in text if unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp", "Cs") and char != "\n"
    }


def values(at: int, hostile: str) -> dict[str, str]:
    """Where hostile text can stand: beside a value, in it, and as the name of things."""
    return {
        "beside": f"{hostile} {at:04}-{at * 7919 % 1009:04}",
        "inside": f"Id: {at}{hostile}{at * 31 % 97}x{at}",
    }


@pytest.mark.parametrize("where", ["beside", "inside"])
@pytest.mark.parametrize("name", STEERING)
def test_nothing_that_is_written_is_steered(
    name: str, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = STEERING[name]
    tool = {
        "type": "function",
        "function": {"name": f"t {hostile}", "description": hostile, "parameters": {}},
    }
    file = log_of(
        tmp_path, [record(at, values(at, hostile)[where], tools=[tool] * (1 + at % 2)) for at in range(60)]
    )
    names = ("page.md", "s.sarif", "j.xml", "rules/rewriter.py", "rules/rules.yaml")
    page, sarif, junit, code, data = (tmp_path / one for one in names)
    shown = advise(file, "--sarif", sarif, "--junit", junit, "--apply", code.parent, "--safety", "drop")
    assert shown.exit_code == 0, shown.exception
    assert advise(file, "-o", page, "--format", "markdown").exit_code == 0
    as_json = advise(file, "--json").stdout
    assert json.loads(as_json)["suggestions"]
    for text in (
        shown.stdout,
        shown.stderr,
        as_json,
        *(path.read_text() for path in (page, sarif, junit, code, data)),
    ):
        assert not steers(text)
    assert json.loads(sarif.read_text())["runs"][0]["results"]
    root = ElementTree.parse(junit).getroot()
    assert {one.tag for one in root.iter()} <= {"testsuites", "testsuite", "testcase", "failure"}
    assert set(yaml.safe_load(data.read_text())) >= {"rules", "left_out"}
    _check_module(code.read_text(), file, monkeypatch)
    _check_page(page.read_text())


def _check_module(code: str, log: Path, modules: pytest.MonkeyPatch) -> None:
    """It imports what it needs to rewrite, and does no more to a request than that."""
    tree = ast.parse(code)
    imported = {
        name.name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for name in node.names
    }
    assert imported <= {"copy", "json", "re", "unicodedata"}
    module = ModuleType("rewriter_of_hostile_logs")
    modules.setitem(sys.modules, module.__name__, module)  # where dataclasses look
    exec(compile(code, "rewriter.py", "exec"), module.__dict__)
    for line in log.read_text().splitlines()[:5]:
        body = json.loads(line)["body"]
        before = json.dumps(body)
        after = module.rewrite(body)
        assert json.dumps(body) == before
        assert len(after["messages"]) == len(body["messages"])


def _check_page(page: str) -> None:
    """Outside of the fenced diffs nothing of Markdown or HTML is left that was not ours."""
    told, fence = [], ""
    for line in page.split("\n"):
        if fence:
            fence = "" if line == fence else fence
        elif match := re.match(r"(`{3,})diff$", line):
            fence = match[1]
        else:
            told.append(line)
    assert not fence
    for line in told:
        assert re.match(r"(#{1,2} |\* |$|\S)", line)
        bare = re.sub(r"\\.", "", line)
        assert not re.search(r"[<>`\[\]|]", bare), line
        assert not re.match(r"\s*(#{3,}|---|===|~~~|\d+\) )", bare), line


# What is broken.

BROKEN: dict[str, bytes] = {
    "broken UTF-8": b'{"messages": [{"role": "user", "content": "\xff\xfe\xc3\x28 \xed\xa0\x80 \xf0\x28\x8c\xbc"}]}\n',
    "lone surrogates": b'{"id": "\\ud800", "messages": [{"role": "system", "content": "\\udc00 \\ud83d x"}]}\n',
    "100k levels": b'{"messages": [{"role": "user", "content": ' + b"[" * 100_000 + b"]" * 100_000 + b"}]}\n",
    "levels of objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"\n",
    "deep tool": b'{"messages": [{"role": "user", "content": "hi"}], "tools": ['
    + b'{"a":' * 400
    + b"1"
    + b"}" * 400
    + b"]}\n",
    "content is an object": b'{"messages": [{"role": "user", "content": {"text": {"a": [1, null]}}}]}\n',
    "contents of all types": b'{"messages": [{"role": 1, "content": 7}, {"role": null}, {}, {"content": [[], {}]}]}\n',
    "10k digits": b'{"time": ' + b"9" * 10_000 + b', "messages": [{"role": "user", "content": "hi"}]}\n',
    "NaN": b'{"time": NaN, "messages": [{"role": "user", "content": "hi"}]}\n',
    "infinity": b'{"time": 1e999, "messages": [{"role": "user", "content": "hi"}]}\n',
    "the same key twice": b'{"messages": 1, "messages": [{"role": "user", "content": "a", "content": "b"}]}\n',
    "times before time": b'{"time": -62135596801, "messages": [{"role": "user", "content": "hi"}]}\n',
    "the year 3000": b'{"time": "3000-01-01T00:00:00Z", "messages": [{"role": "user", "content": "hi"}]}\n',
    "a time in words": b'{"time": "yesterday", "messages": [{"role": "user", "content": "hi"}]}\n',
    "tools of all types": b'{"messages": [{"role": "user", "content": "hi"}], "tools": [1, null, [], {"name": 3}]}\n',
    "NUL bytes": b"\x00" * 100 + b"\n",
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_line_costs_no_more_than_itself(name: str, tmp_path: Path) -> None:
    file = log_of(tmp_path, [record(at, f"Id: {at * 7919 % 100_003}") for at in range(60)])
    whole = file.read_bytes()
    file.write_bytes(BROKEN[name] * 3 + whole + BROKEN[name] * 3)
    shown = advise(file, "--json", "--apply", tmp_path / "rules", "--safety", "drop")
    assert shown.exit_code == 0, shown.exception
    told = json.loads(shown.stdout)
    assert told["prompts"] >= 60
    left_out = sum(int(match[1]) for one in told["left_out"] if (match := re.match(r"(\d+) lines: ", one)))
    empty = 6 * (name == "NUL bytes")  # as a file that was cut off by a crash is padded
    assert told["prompts"] + left_out + empty == 66
    assert [one["path"] for one in told["suggestions"]] == ["messages[0].content"]


@pytest.mark.parametrize("name", BROKEN)
def test_a_log_of_broken_lines_alone_is_read_or_refused(name: str, tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    file.write_bytes(BROKEN[name] * 40)
    shown = advise(file, "--check")
    assert shown.exception is None or isinstance(shown.exception, (UserError, SystemExit))
    assert not steers(shown.output)


def test_ids_that_collide_are_requests_all_the_same(tmp_path: Path) -> None:
    records = [{**record(at, f"Now: 12:{at:02}:01"), "id": "same"} for at in range(60)]
    told = json.loads(advise(log_of(tmp_path, records), "--json").stdout)
    assert told["prompts"] == 60
    assert [one["cause"] for one in told["suggestions"]] == ["clock"]


def test_times_that_jump_change_no_place(tmp_path: Path) -> None:
    times: list[Any] = [-5, 0, 32503680000, "yesterday", "2026-13-45", None, True, [], 1e300, "1790000000"]
    records = [{**record(at, f"Id {at * 7919 % 100_003}"), "time": times[at % 10]} for at in range(60)]
    told = json.loads(advise(log_of(tmp_path, records), "--json").stdout)
    assert told["prompts"] == 60
    assert {one["path"] for one in told["suggestions"]} == {"messages[0].content"}


# What is large: each by itself, in bounds.


def large_line() -> Iterator[dict[str, Any]]:
    """10 MB in a message, and in the value itself."""
    for at in range(6):
        yield record(at, f"Now 12:{at:02}:00 " + f"word{at} " * (1_400_000 if at < 2 else 20))


def many_messages() -> Iterator[dict[str, Any]]:
    """A million in one request."""
    yield {"id": "m", "messages": [{"role": "user", "content": "x"}] * 1_000_000}
    yield from (record(at, f"Now: 12:{at:02}:01") for at in range(30))


def many_tools() -> Iterator[dict[str, Any]]:
    """A hundred thousand in a request."""
    tools = [{"type": "function", "function": {"name": f"t{i}"}} for i in range(100_000)]
    for at in range(2):
        yield record(at, "Be kind.", tools=tools[::-1] if at else tools)
    yield from (record(at, f"Now: 12:{at:02}:01") for at in range(2, 30))


def long_keys() -> Iterator[dict[str, Any]]:
    """Names of a megabyte."""
    for at in range(4):
        long = f"{at}" * 1_000_000
        yield record(at, f"Now: 12:{at:02}:01", tools=[{"function": {"name": long, long: long}}], **{long: 1})


def one_character_apart() -> Iterator[dict[str, Any]]:
    """Texts that a comparison in squares of their length would never end on."""
    import random

    chance = random.Random(3)
    for at in range(40):
        yield record(at, "".join(chance.choice("ab .\n,") for _ in range(60_000)))


def nested_repeats() -> Iterator[dict[str, Any]]:
    """What makes a pattern of gaps try everything, were it matched as a plain regular expression."""
    for at in range(60):
        slots = " and ".join(f"a is {at * 31 + i} is a" for i in range(12))
        yield record(at, slots, **{"note": "a is " * 2})
    for at in range(60, 70):
        yield record(at, "a is 1 is a and " * 3000)


LARGE = (large_line, many_messages, many_tools, long_keys, one_character_apart, nested_repeats)


@pytest.mark.parametrize("make", LARGE, ids=lambda make: make.__name__)
def test_what_is_large_takes_neither_for_ever_nor_all_memory(make: Any, tmp_path: Path) -> None:
    file = log_of(tmp_path, make())
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    done = bounded(file, "--json", "--apply", tmp_path / "rules", "--safety", "drop")
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    assert peak == before or peak * 1024 < BYTES  # of the largest child so far
    told = json.loads(done.stdout)
    assert told["prompts"] >= 4
    assert len(done.stdout) < 2_000_000
    assert max(map(len, done.stdout.split("\n"))) < 1_100_000
