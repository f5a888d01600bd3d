"""Prompts from a store: what capture kept is what was sent, what is not kept is said, and what is read is bounded."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.advisor.advice import Advice, advise
from analysis.advisor.learning.cause import Cause
from analysis.advisor.report import AdviceReport, report
from analysis.advisor.stored import chains as stored_chains
from analysis.advisor.stored import rows as stored_rows
from analysis.advisor.stored.prompts import CAPTURE, NO_SESSIONS, REDACTED, read_prompts
from analysis.prefix_replay.rules import BlockRule
from cachemodel.errors import UserError
from cachemodel.prompts.model import Prompt
from collector.chains.local import read_tokenizer
from collector.chains.settings import Capture
from hitmap.advise.inputs import read_logs
from hitmap.prompt_tokens import body_tokens
from store.client import connect
from store.embedded import Embedded
from tests.analysis.advisor import planted
from tests.analysis.advisor.planted import after_first_line, at_top, clock, conversations, log
from tests.analysis.advisor.stored_world import put
from tests.conftest import Database

DAY = "2026-11-03T00:00/2026-11-05T00:00"


def comparable(prompt: Prompt) -> Prompt:
    """Without what a store says in its own way."""
    assert prompt.body
    body = {name: prompt.body[name] for name in ("messages", "tools", "prompt") if prompt.body.get(name)}
    return replace(prompt, server="", model="", prompt_tokens=None, isolation="", body=body)


def advised(prompts: list[Prompt], tokenizer: str = "approximate", block: int = 16) -> Advice:
    tokens = body_tokens(tokenizer)
    return advise(prompts, tokens, BlockRule(block_size=block), cache_name="blocks", tokens_by=tokens.name)


def told(advice: Advice) -> AdviceReport:
    """What is told of it, but for what responses said of themselves."""
    return replace(report(advice), notes=[])


@pytest.mark.parametrize(
    "prompts",
    [
        pytest.param(log([at_top(clock("Now: %H:%M:%S"))], 30, tools=True), id="tools"),
        pytest.param(conversations([], 3, 4), id="conversations"),
    ],
)
def test_what_was_captured_in_full_is_what_was_sent(db: Database, prompts: list[Prompt]) -> None:
    put(db.client, prompts)
    found = read_prompts(db.client, DAY)
    assert [comparable(one) for one in found.prompts] == [comparable(one) for one in prompts]
    assert all(one.prompt_tokens for one in found.prompts)
    assert (found.capture, found.requests, found.left_out) == ("full", len(prompts), [])
    assert (found.dialect, found.block_size) == ("vllm", 16)


def test_texts_without_messages(db: Database) -> None:
    sent = [
        Prompt(
            request_id=f"r{n}",
            parts=(),
            time=planted.START.timestamp() + n,
            body={"prompt": f"say {n} twice"},
        )
        for n in range(3)
    ]
    put(db.client, sent)
    found = read_prompts(db.client, DAY)
    assert [one.body["prompt"] for one in found.prompts if one.body] == [f"say {n} twice" for n in range(3)]
    assert [(one.parts[0].path, one.parts[0].role) for one in found.prompts] == [("prompt", "prompt")] * 3
    assert found.left_out == [NO_SESSIONS]


def test_the_recorded_server_gets_the_advice_of_its_log(db: Database, run1: Path) -> None:
    """175 requests of a real vLLM: six of them salted, nine with shuffled tools, 28 with a clock."""
    logged = sorted(read_logs([run1 / "requests.jsonl"]).prompts, key=lambda one: one.time or 0.0)
    model = str(run1.parent / "model")
    put(db.client, logged, tokenizer=read_tokenizer(Path(model)), block_size=32, labels=lambda _: {})
    found = read_prompts(db.client, "2026-11-29T00:00/2026-11-30T00:00")
    assert (len(found.prompts), found.capture, found.block_size) == (175, "full", 32)
    from_store, from_log = advised(found.prompts, model, 32), advised(logged, model, 32)
    assert {one.slot.cause for one in from_store.suggestions} >= {Cause.CLOCK, Cause.TOOL_ORDER}
    assert told(from_store) == told(from_log)


def test_where_no_text_is_kept_chains_tell_where_prompts_part(db: Database) -> None:
    prompts = log([at_top(clock("Now: %H:%M:%S"))], 40)
    put(db.client, prompts, Capture.HASHES)
    found = read_prompts(db.client, DAY)
    assert (found.prompts, found.capture, found.left_out) == ([], "", [CAPTURE])
    first, *others = found.partings
    assert first.start < 16, "the clock stands in the first line"
    assert (first.requests, first.of) == (39, 40)
    assert "a clock" in first.behaviour
    assert first.lost > first.behind / 2
    assert str(first).startswith(f"template {first.template}, token {first.start}")
    assert not [one for one in others if one.end <= 100]


def test_prompts_that_part_in_their_questions_only_lose_nothing(db: Database) -> None:
    put(db.client, log([], 40), Capture.HASHES)
    assert read_prompts(db.client, DAY).partings == []


def test_a_variant_is_seldom_new(db: Database) -> None:
    put(
        db.client,
        log([at_top(lambda made: f"Branch {'ABC'[made.last.index % 3]} opens late.")], 60),
        Capture.HASHES,
    )
    early = [one for one in read_prompts(db.client, DAY).partings if one.start < 16]
    assert early
    assert {one.behaviour.partition(" (")[0] for one in early} == {"seldom new"}


def test_of_many_chains_one_in_some_is_read(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    put(db.client, log([at_top(clock("Now: %H:%M:%S"))], 120), Capture.HASHES)
    whole = read_prompts(db.client, DAY).partings[0]
    monkeypatch.setattr(stored_chains, "MOST_BLOCKS", 1200)
    some = read_prompts(db.client, DAY).partings[0]
    assert some.sampled > 1
    assert some.requests == pytest.approx(whole.requests, rel=0.5)
    assert "about " in str(some)


def test_what_redaction_hides_is_said_and_the_rest_is_found(db: Database) -> None:
    prompts = log([at_top(planted.request_id), after_first_line(clock("Now: %H:%M:%S"))])
    put(db.client, prompts, Capture.REDACTED)
    found = read_prompts(db.client, DAY)
    assert found.capture == "redacted"
    assert found.left_out[0] == REDACTED
    assert {one.slot.cause for one in advised(prompts).suggestions} == {Cause.NONCE, Cause.CLOCK}
    assert {one.slot.cause for one in advised(found.prompts).suggestions} == {Cause.CLOCK}


def test_a_value_behind_a_placeholder_that_breaks_prefixes_is_told_of(db: Database) -> None:
    put(db.client, log([at_top(lambda made: f"Mail: u{made.random.random()}@example.com")]), Capture.REDACTED)
    found = read_prompts(db.client, DAY)
    assert advised(found.prompts).suggestions == ()
    (sentence,) = [one for one in found.left_out if one.startswith("59 requests part")]
    assert "role system" in sentence
    assert "<email>" in sentence
    put(db.client, log([]), Capture.REDACTED, server="b")
    assert not [one for one in read_prompts(db.client, f"{DAY},server=b").left_out if "part from all" in one]


def test_the_newest_are_read_and_the_rest_is_counted(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = log([], 30)
    put(db.client, prompts)
    monkeypatch.setattr(stored_rows, "LOOKED", 2)
    found = read_prompts(db.client, DAY, most=10)
    assert [one.request_id for one in found.prompts] == [one.request_id for one in prompts[-10:]]
    assert found.left_out == [
        "10 older requests were not looked at: the newest 20 were",
        "10 older requests with texts were not read: the newest 10 were",
    ]


def test_texts_that_are_too_much_are_left_out(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = log([at_top(clock("Now: %H:%M:%S"))], 30)
    put(db.client, prompts)
    monkeypatch.setattr(stored_rows, "MOST_BYTES", 12_000)
    found = read_prompts(db.client, DAY)
    texts = {part.text for one in found.prompts for part in one.parts}
    assert 0 < len(found.prompts) < 30
    assert 8_000 < sum(len(text.encode()) for text in texts) <= 12_000
    assert found.prompts[-1].request_id == prompts[-1].request_id
    assert "older requests with texts were not read" in found.left_out[0]


def test_a_text_that_is_gone(db: Database) -> None:
    put(db.client, log([], 10))
    gone = db.client.query("SELECT segments[2] FROM prompts ORDER BY time LIMIT 1").result_rows[0][0]
    db.client.command(f"DELETE FROM segments WHERE segment = {gone}")
    found = read_prompts(db.client, DAY)
    assert len(found.prompts) == 9
    assert found.left_out == ["1 requests: a text of theirs is no longer in the store"]


def test_requests_without_text_beside_those_with_some(db: Database) -> None:
    prompts = log([], 20)
    put(db.client, prompts[:10], Capture.HASHES)
    put(db.client, prompts[10:], server="b")
    found = read_prompts(db.client, DAY)
    assert len(found.prompts) == 10
    assert found.left_out == ["10 requests: no text of their prompts is in the store"]


def test_conditions_on_requests_choose_prompts(db: Database) -> None:
    prompts = log([], 20)
    put(
        db.client,
        prompts,
        labels=lambda one: {"phase": "even" if int(one.request_id[1:]) % 2 == 0 else "odd"},
    )
    found = read_prompts(db.client, f"{DAY},phase=even")
    assert [one.request_id for one in found.prompts] == [one.request_id for one in prompts[::2]]
    assert found.requests == 10


def test_nothing_that_matches_says_what_there_is(db: Database) -> None:
    put(db.client, log([], 5))
    with pytest.raises(UserError, match="no request matches"):
        read_prompts(db.client, f"{DAY},server=elsewhere")


def test_a_request_that_is_told_of_twice_is_one_prompt(db: Database) -> None:
    prompts = log([], 5)
    put(db.client, prompts, Capture.REDACTED)
    put(db.client, prompts)
    found = read_prompts(db.client, DAY)
    assert len(found.prompts) == 5
    assert found.requests == 5


def test_hostile_texts_come_back_as_they_were(db: Database) -> None:
    hostile = "\x1b[31m<script>\x00 \u202e 'quotes' \\n {x:String} \U0001f600"
    sent = [
        Prompt(
            request_id=f"r'{n}",
            parts=(),
            time=planted.START.timestamp() + n,
            body={
                "messages": [
                    {"role": "system", "content": hostile},
                    {"role": "user", "content": json.dumps([n])},
                ]
            },
        )
        for n in range(2)
    ]
    put(db.client, sent)
    found: list[Prompt] = read_prompts(db.client, DAY).prompts
    assert [one.body["messages"] for one in found if one.body] == [
        one.body["messages"] for one in sent if one.body
    ]
    assert [one.request_id for one in found] == ["r'0", "r'1"]


def test_a_reader_may_ask_it(db: Database, store_server: Embedded) -> None:
    put(db.client, log([at_top(clock("Now: %H:%M:%S"))], 20))
    name = db.dsn.rpartition("/")[2]
    with connect(f"{store_server.reader_dsn.rpartition('/')[0]}/{name}") as reader:
        found = read_prompts(reader, DAY)
    assert len(found.prompts) == 20
    assert found.partings
