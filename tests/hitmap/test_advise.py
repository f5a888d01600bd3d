"""`hitmap advise` as a person calls it: a log, a command line, what comes out, and what CI makes of it."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from click.testing import CliRunner, Result

from analysis.advisor.advice import SCHEMA_VERSION
from cachemodel.errors import UsageError, UserError
from cachemodel.prompts.model import Prompt
from hitmap.cli import cli
from tests.analysis.advisor import planted
from tests.analysis.advisor.planted import Change, at_top, clock, log
from tests.analysis.advisor.test_advice import HOSTILE

CLOCK = at_top(clock("Now: %H:%M:%S"))

MODEL = Path(__file__).parents[1] / "data/vllm-0.32/model"


def written(prompts: Sequence[Prompt]) -> str:
    """A log as a client writes it."""
    return "".join(
        json.dumps({"id": one.request_id, "time": one.time, "body": one.body}) + "\n" for one in prompts
    )


def log_of(folder: Path, changes: Sequence[Change], name: str = "requests.jsonl", **more: Any) -> Path:
    file = folder / name
    file.write_text(written(log(changes, **more)))
    return file


@pytest.fixture
def faulty(tmp_path: Path) -> Path:
    """A log with a clock at the top of each system message."""
    return log_of(tmp_path, [CLOCK])


@pytest.fixture
def clean(tmp_path: Path) -> Path:
    return log_of(tmp_path, [], "clean.jsonl")


def advise(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["advise", *map(str, arguments)])


def test_text(faulty: Path) -> None:
    shown = advise(faulty)
    assert shown.exit_code == 0, shown.output
    flat = " ".join(shown.stdout.split())
    assert flat.startswith("60 prompts: of ")
    assert "1. clock at messages[0].content:" in flat
    assert "-Now: " in flat
    assert "move: put the time behind what stays the same" in flat
    assert "in blocks of 16 tokens" in flat


def test_json_is_of_a_version_and_adds_up(faulty: Path) -> None:
    told = json.loads(advise(faulty, "--json").stdout)
    assert told["schema_version"] == SCHEMA_VERSION
    assert (told["prompts"], told["left_out"]) == (60, [])
    (one,) = told["suggestions"]
    assert (one["cause"], one["path"], one["safety"]) == ("clock", "messages[0].content", "move")
    assert told["computed_tokens"] == told["prompt_tokens"] - told["served_tokens"]
    assert one["saves"] == told["computed_tokens"] - told["computed_after"] > 0
    assert one["share"] == pytest.approx(one["saves"] / told["computed_tokens"])


def test_the_room_of_the_cache_can_be_said(tmp_path: Path) -> None:
    """Two long prompts take turns in a server with one slot and nothing put aside."""
    file = tmp_path / "turns.jsonl"
    both = (log([], language=language) for language in ("en", "fi"))
    file.write_text(written([prompt for pair in zip(*both, strict=True) for prompt in pair]))
    cache = ("--cache", "llama.cpp", "--set", "host_tokens=0", "--json")
    one, two = (json.loads(advise(file, *cache, "--set", f"slots={slots}").stdout) for slots in (1, 2))
    assert [told["cause"] for told in one["beside"]] == ["too few slots"]
    assert one["computed_tokens"] - two["computed_tokens"] == one["beside"][0]["tokens"] > 0
    assert two["beside"] == []
    assert "evicts nothing" not in one["notes"][0]
    wrong = advise(file, "--cache", "llama.cpp", "--set", "capacity=5")
    assert (type(wrong.exception).__name__, wrong.stdout) == ("UsageError", "")


def test_what_leaves_nothing_out_is_told_apart(tmp_path: Path) -> None:
    """An id is dropped, a clock is moved; dropping one that stands behind the clock saves more."""
    file = log_of(tmp_path, [planted.at_top(planted.request_id), CLOCK])
    told = json.loads(advise(file, "--json").stdout)
    assert {one["safety"] for one in told["suggestions"]} == {"move", "drop"}
    assert told["computed_after"] < told["computed_after_nothing_less"] <= told["computed_tokens"]
    assert "where nothing is left out" in told["answer"]


def test_a_file_of_markdown(faulty: Path, tmp_path: Path) -> None:
    page = tmp_path / "advice.md"
    shown = advise(faulty, "-o", page)
    assert (shown.exit_code, shown.stdout) == (0, "")
    told = page.read_text()
    assert told.startswith("# Advice\n")
    assert "## 1. clock at messages\\[0\\].content" in told
    assert "```diff" in told


def test_several_logs_and_packed_ones_are_one(faulty: Path, tmp_path: Path) -> None:
    packed = tmp_path / "more.jsonl.gz"
    packed.write_bytes(gzip.compress(written(log([CLOCK], seed=1)).encode()))
    assert json.loads(advise(faulty, packed, "--json").stdout)["prompts"] == 120


def test_a_clean_log_is_told_nothing(clean: Path) -> None:
    shown = advise(clean, "--check", "--budget", "0")
    assert shown.exit_code == 0
    assert "No slot was found that keeps more than 1% of that from the cache" in " ".join(
        shown.stdout.split()
    )


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ((), 0),
        (("--check",), 1),
        (("--check", "--budget", "0.99"), 0),
        (("--check", "--budget", "0.1", "--json"), 1),
        (("--budget", "0.1"), 0),
    ],
)
def test_a_budget_is_checked_where_that_is_asked(faulty: Path, options: tuple[str, ...], code: int) -> None:
    shown = advise(faulty, *options)
    assert shown.exit_code == code, shown.output
    assert "clock" in shown.stdout


def test_most_prompts_without_tokens_decide_nothing(tmp_path: Path, faulty: Path) -> None:
    """By a model whose template refuses them."""
    model = tmp_path / "model"
    shutil.copytree(MODEL, model)
    for file in model.glob("chat_template*"):
        file.unlink()
    config = json.loads((model / "tokenizer_config.json").read_text())
    refuses = "{{ raise_exception('no system messages here') }}"
    (model / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": refuses}))
    shown = advise(faulty, "--check", "--tokenizer", str(model))
    assert shown.exit_code == 3, shown.output
    assert "Not decided: the tokens of" in shown.stdout
    assert advise(faulty, "--tokenizer", str(model)).exit_code == 0


def test_what_is_left_out_is_counted_with_its_reason(faulty: Path) -> None:
    with faulty.open("a") as file:
        file.write('{"broken\n{"neither": 1}\n')
    told = json.loads(advise(faulty, "--json").stdout)
    assert told["prompts"] == 60
    assert any("1 lines: line is no JSON" in line and f"{faulty}:61" in line for line in told["left_out"])
    assert len(told["left_out"]) == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "no such file; give the log of requests to read"),
        ("", "empty; give a log of requests"),
        ("\n\n", "empty; give a log of requests"),
        ('{"a": 1}\n{"b": 2}\n', "no prompt in 2 lines"),
        ("what is this", "no prompt in 1 lines"),
    ],
)
def test_a_log_that_is_none_is_an_error_and_never_a_budget(
    tmp_path: Path, text: str | None, words: str
) -> None:
    file = tmp_path / "x.jsonl"
    if text is not None:
        file.write_text(text)
    shown = advise(file)
    assert isinstance(shown.exception, UserError)
    assert words in str(shown.exception)
    assert shown.exception.exit_code == 1
    shown = advise(file, "--check")
    assert isinstance(shown.exception, UserError)
    assert shown.exception.exit_code == 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--cache", "openai", "--block-size", "16"), "openai has no blocks of a size"),
        (("--cache", "llama.cpp", "--block-size", "1"), "--block-size is for vllm and sglang"),
        (("--cache", "anthropic", "--block-size", "16", "--check"), "anthropic has no blocks"),
        (("--verify", "http://u:p@127.0.0.1:1"), "holds a user, a password"),
        (("--verify", "ftp://x"), "is not the address of a server"),
        (("--keep",), "add --verify URL"),
        (("--in", "phase=a"), "leave the LOG or --in out"),
        (("--sarif", "/none/x.sarif"), "there is no folder /none"),
        (("--apply", "/none/rules"), "there is no folder /none"),
    ],
)
def test_a_wrong_call_is_told_before_any_work(tmp_path: Path, options: tuple[str, ...], words: str) -> None:
    shown = advise(tmp_path / "never-read.jsonl", *options)
    assert isinstance(shown.exception, UsageError), shown.exception
    assert shown.exception.exit_code == 2
    assert words in str(shown.exception)


@pytest.mark.parametrize(
    "options",
    [
        ("--budget", "2"),
        ("--check", "--budget", "nan"),
        ("--min-share", "nan"),
        ("--max-seconds", "nan"),
        ("--cache", "redis"),
        ("--block-size", "0"),
    ],
)
def test_what_the_command_line_does_not_know(options: tuple[str, ...]) -> None:
    assert advise(*options).exit_code == 2


def test_exit_codes_of_the_program(faulty: Path, clean: Path, tmp_path: Path) -> None:
    def code(*arguments: str | Path) -> int:
        command = [sys.executable, "-m", "hitmap", "advise", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, check=False).returncode

    assert code(faulty, "--check") == 1
    assert code(clean, "--check") == 0
    assert code(faulty, "--cache", "openai", "--block-size", "8", "--check") == 2
    assert code(tmp_path / "none.jsonl", "--check") == 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--block-size", "64"), "blocks of 64 tokens"),
        (("--cache", "sglang"), "pages of 1 token"),
        (("--cache", "sglang", "--block-size", "32"), "pages of 32 tokens"),
        (("--cache", "llama.cpp"), "slots of llama.cpp"),
        (("--cache", "openai"), "OpenAI's cache"),
        (("--cache", "anthropic"), "Anthropic's cache"),
    ],
)
def test_the_rules_of_each_cache(faulty: Path, options: tuple[str, ...], words: str) -> None:
    told = json.loads(advise(faulty, "--json", *options).stdout)
    assert words in told["cache"]


def hostile(made: planted.Log, _: int) -> None:
    made.system = f"{HOSTILE} ]]> & {made.last.time:%H:%M:%S}\n{made.system}"


def test_hostile_prompts_steer_nothing_that_is_written(tmp_path: Path) -> None:
    file, ci = log_of(tmp_path, [hostile]), ("--sarif", tmp_path / "s.sarif", "--junit", tmp_path / "j.xml")
    shown = advise(file, "--apply", tmp_path / "rules", *ci)
    page = advise(file, "--format", "markdown")
    assert (shown.exit_code, page.exit_code) == (0, 0)
    files = ["s.sarif", "j.xml", "rules/rewriter.py", "rules/rules.yaml"]
    for text in (shown.output, page.output, *((tmp_path / name).read_text() for name in files)):
        assert text
        assert not any(char in text for char in "\x1b\x07\u202e")
    assert ElementTree.parse(tmp_path / "j.xml").getroot().findall(".//script") == []
    assert json.loads((tmp_path / "s.sarif").read_text())["runs"][0]["results"]


# --apply


def test_apply_writes_a_rewriter_and_its_rules_as_data(faulty: Path, tmp_path: Path) -> None:
    shown = advise(faulty, "--apply", tmp_path / "rules")
    assert shown.exit_code == 0, shown.output
    assert f"1 rule in {tmp_path / 'rules' / 'rewriter.py'}" in shown.stderr
    (rule,) = yaml.safe_load((tmp_path / "rules" / "rules.yaml").read_text())["rules"]
    assert (rule["cause"], rule["path"], rule["safety"]) == ("clock", "messages[0].content", "move")
    assert "different values in 60" in rule["evidence"]
    code = "import json, sys, rewriter; print(json.dumps(rewriter.rewrite(json.loads(sys.stdin.read()))))"
    body = {
        "messages": [
            {"role": "system", "content": "Now: 01:02:03\nBe kind."},
            {"role": "user", "content": "Hi"},
        ]
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(body),
        cwd=tmp_path / "rules",
        capture_output=True,
        text=True,
        check=True,
    )
    assert [message["content"] for message in json.loads(done.stdout)["messages"]] == [
        "Be kind.",
        "Hi\n\nNow: 01:02:03",
    ]


def test_what_the_model_would_no_longer_read_is_left_out_unless_asked_for(tmp_path: Path) -> None:
    file = log_of(tmp_path, [at_top(planted.request_id)])
    shown = advise(file, "--apply", tmp_path / "rules")
    assert "0 rules in" in shown.stderr
    assert (
        "left out, with what it hides: nonce at messages[0].content: --safety drop takes it in"
        in shown.stderr
    )
    told = yaml.safe_load((tmp_path / "rules" / "rules.yaml").read_text())
    assert (told["rules"], [one["cause"] for one in told["left_out"]]) == ([], ["nonce"])
    advise(file, "--apply", tmp_path / "rules", "--safety", "drop")
    told = yaml.safe_load((tmp_path / "rules" / "rules.yaml").read_text())
    assert ([one["action"] for one in told["rules"]], told["left_out"]) == (["drop"], [])


def test_what_cannot_all_be_written_is_not_written_at_all(faulty: Path, tmp_path: Path) -> None:
    folder = tmp_path / "rules"
    (folder / "rules.yaml").mkdir(parents=True)
    (folder / "rewriter.py").write_text("the last good one")
    shown = advise(faulty, "--apply", folder)
    assert isinstance(shown.exception, UserError)
    assert "rules.yaml cannot be written: Is a directory" in str(shown.exception)
    assert (folder / "rewriter.py").read_text() == "the last good one"
    assert {path.name for path in folder.iterdir()} == {"rewriter.py", "rules.yaml"}


def test_a_server_that_is_not_there_costs_no_advice(faulty: Path) -> None:
    shown = advise(faulty, "--verify", "http://127.0.0.1:1", "--json")
    assert isinstance(shown.exception, UserError)
    assert "no LLM server answers at http://127.0.0.1:1" in str(shown.exception)
    assert json.loads(shown.stdout)["suggestions"]


def test_without_rules_nothing_is_sent(clean: Path) -> None:
    shown = advise(clean, "--verify", "http://127.0.0.1:1")
    assert isinstance(shown.exception, UserError)
    assert "nothing to verify: no suggestion has rules of --safety move" in str(shown.exception)
