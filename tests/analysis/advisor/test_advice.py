"""Advice from prompts to sentences: what is saved is what the replay says, and hostile text stays text."""

from __future__ import annotations

import io
import json
import zlib
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from rich.console import Console

from analysis.advisor.advice import Advice, advise
from analysis.advisor.diff import diff
from analysis.advisor.learning.cause import Cause
from analysis.advisor.report import report
from analysis.advisor.rewriting.rules import Body, apply
from analysis.advisor.text import to_markdown, to_terminal
from analysis.prefix_replay.rules import BlockRule
from analysis.report.json import to_json
from cachemodel.prompts.model import Prompt
from cachemodel.prompts.read import read
from tests.analysis.advisor import planted
from tests.analysis.advisor.planted import after_first_line, at_top, clock, log

HOSTILE = "\x1b[31mred\x1b[0m <script>window.hit=1</script> [link](javascript:1) **bold** ``` \u202e \x07"


def tokens(body: Body) -> NDArray[np.uint32]:
    """One a word, after the tools."""
    text = json.dumps(body.get("tools") or [], ensure_ascii=False) + "\n"
    text += "\n".join(f"{m['role']}\n{m['content']}" for m in body["messages"])
    return np.array([zlib.crc32(word.encode(errors="replace")) for word in text.split()], dtype=np.uint32)


def advised(prompts: list[Prompt], **more: Any) -> Advice:
    return advise(
        prompts, tokens, BlockRule(block_size=4), cache_name="blocks of 4", tokens_by="words", **more
    )


def test_what_is_saved_is_what_the_cache_would_serve_more() -> None:
    prompts = log([at_top(clock("Now: %H:%M:%S"))])
    found = advised(prompts)
    (one,) = found.suggestions
    bodies = [prompt.body for prompt in prompts if prompt.body]
    again = [
        Prompt(request_id=str(at), parts=(), time=prompt.time, body=apply(one.rules, body))
        for at, (prompt, body) in enumerate(zip(prompts, bodies, strict=True))
    ]
    after = advised([*again])
    assert one.gain
    assert one.gain.alone.saved == one.gain.next.saved == found.as_sent.computed - after.as_sent.computed > 0
    assert found.together.after.total == after.as_sent
    assert after.suggestions == ()


def test_of_two_faults_the_second_saves_nothing_before_the_first_is_gone() -> None:
    prompts = log([at_top(clock("Now: %H:%M:%S")), after_first_line(planted.user_name)])
    found = advised(prompts)
    by_cause = {one.slot.cause: one.gain for one in found.suggestions}
    first, second = by_cause[Cause.CLOCK], by_cause[Cause.USER_VALUE]
    assert first
    assert second
    assert second.alone.saved < second.next.saved
    assert first.next.saved + second.next.saved == found.together.saved


def test_what_a_later_saving_hangs_on_is_told_too() -> None:
    """An id right in front of the clock: mended alone it saves nothing, and without it the clock's mending does not."""
    made = [at_top(clock("Now: %H:%M:%S")), at_top(planted.request_id), planted.tools_shuffled]
    found = advised(log(made, tools=True))
    by_cause = {one.slot.cause: one.gain for one in found.suggestions}
    assert set(by_cause) == {Cause.TOOL_ORDER, Cause.NONCE, Cause.CLOCK}
    first, gains = by_cause[Cause.NONCE], [gain for gain in by_cause.values() if gain]
    assert first
    assert first.next.saved < first.last.saved
    assert sum(gain.next.saved for gain in gains) == found.together.saved


def test_a_salt_and_an_option_are_no_faults_of_the_prompt() -> None:
    def apart(made: planted.Log, index: int) -> None:
        made.last.more = {
            "isolation": f"tenant-{index % 3}",
            "reads_off": "prompt_logprobs" if index % 5 == 0 else "",
        }

    found = advised(log([apart]))
    assert found.suggestions == ()
    assert {one.cause for one in found.beside} == {Cause.ISOLATION, Cause.READS_OFF}
    assert all(one.tokens > 0 for one in found.beside)


def test_a_clean_log_is_told_nothing() -> None:
    told = report(advised(log([], n=200, tools=True)))
    assert told.suggestions == []
    assert "No slot was found that keeps more than 1% of that from the cache" in told.answer


def test_what_saves_too_little_is_not_told() -> None:
    prompts = log([at_top(clock("Now: %H:%M:%S"))])
    assert advised(prompts, min_share=0.99).suggestions == ()


def test_one_prompt_is_no_log() -> None:
    assert advised(log([], n=1)).suggestions == ()


def hostile(made: planted.Log, _: int) -> None:
    made.system = f"{HOSTILE} {made.last.time:%H:%M:%S}\n{made.system}"


def test_hostile_text_neither_steers_a_terminal_nor_styles_a_page() -> None:
    told = report(advised(log([hostile])), [f"1 line: {HOSTILE}"])
    assert [one.cause for one in told.suggestions] == ["clock"]
    out = io.StringIO()
    to_terminal(told, Console(file=out, width=100, force_terminal=False, highlight=False))
    page = to_markdown(told)
    for shown in (out.getvalue(), page):
        assert not any(char in shown for char in "\x1b\x07\u202e")
    outside = "".join(page.split("````")[::2])
    assert "<script>" not in outside.replace("\\<", "")
    assert "[link](" not in outside
    assert json.loads(to_json(told))["suggestions"][0]["path"] == "messages[0].content"


@pytest.mark.parametrize("size", [1_000_000, 10_000_000])
def test_a_line_of_many_megabytes_is_read_and_cut_where_it_is_shown(size: int) -> None:
    def large(made: planted.Log, _: int) -> None:
        made.last.messages[1]["content"] = f"{made.last.index} " + "word " * (size // 5)

    prompts = log([large, at_top(clock("Now: %H:%M:%S"))], n=4)
    told = report(advised(prompts))
    assert len(to_markdown(told)) < 20_000


def test_a_diff_shows_what_changed_and_no_more() -> None:
    body: dict[str, Any] = {"messages": [{"role": "system", "content": "a\nb\nc\nd\ne"}]}
    after = {"messages": [{"role": "system", "content": "a\nb\nX\nd\ne"}]}
    changed = [line for line in diff(body, after).splitlines()[2:] if line[0] in "+-"]
    assert changed == ["-c", "+X"]
    assert diff(body, body) == ""


def test_requests_of_other_forms_are_advised_on_as_well() -> None:
    """Anthropic's system blocks: the time is found in them, and the rest of the log is read."""
    lines = [
        {
            "request_id": f"a{at}",
            "model": "claude",
            "max_tokens": 64,
            "system": [{"type": "text", "text": f"Time: 12:{at:02}:10\n" + "\n".join(planted.RULES["en"])}],
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": f"What of order {at * 7919 % 1000}?"}]}
            ],
        }
        for at in range(30)
    ]
    prompts = [prompt for line in lines for prompt in read(line, "log") if isinstance(prompt, Prompt)]

    def by_parts(body: Body) -> NDArray[np.uint32]:
        text = json.dumps([body.get("system"), body["messages"]])
        return np.array([zlib.crc32(word.encode()) for word in text.split()], dtype=np.uint32)

    found = advise(prompts, by_parts, BlockRule(block_size=4), cache_name="c", tokens_by="w")
    assert [(one.slot.cause, one.slot.path) for one in found.suggestions] == [(Cause.CLOCK, "system[0].text")]
    assert found.together.saved > 0


def test_models_and_servers_have_caches_of_their_own() -> None:
    """Two adapters by name, on two servers: what one has read the other has not."""

    def apart(made: planted.Log, index: int) -> None:
        made.last.more = {"model": f"adapter-{index % 2}", "server": f"s{index % 4 // 2}"}

    together, found = advised(log([])), advised(log([apart]))
    assert found.as_sent.computed > together.as_sent.computed
    assert found.suggestions == ()
    (one,) = found.beside
    assert one.cause is Cause.ISOLATION
    assert "2 models" in one.detail
    assert 0 < one.tokens < found.as_sent.computed - together.as_sent.computed, "servers are no isolation"


def test_a_diff_shows_every_form_of_a_request() -> None:
    """Instructions and messages of Anthropic's and of the Responses API, and texts in blocks, line by line."""
    block = {"type": "text", "text": "Now: 1\nBe kind."}
    for before, after in (
        ({"system": [block], "messages": []}, {"system": [{**block, "text": "Be kind."}], "messages": []}),
        ({"instructions": "Now: 1\nBe kind.", "input": "Hi"}, {"instructions": "Be kind.", "input": "Hi"}),
        (
            {"input": [{"role": "user", "content": [block]}]},
            {"input": [{"role": "user", "content": "Be kind."}]},
        ),
        ({"prompt": "Now: 1\nBe kind."}, {"prompt": "Be kind."}),
    ):
        assert "\n-Now: 1\n" in diff(before, after) + "\n"
        assert "Be kind." in diff(before, after)
    assert diff({"messages": [3, {"content": None}]}, {"messages": [{"content": {"a": 1}}]})
