"""Advice from KV events alone: the recorded vLLM's events say what its request log says, at the right token."""

from __future__ import annotations

import json
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models

from analysis.advisor.advice import Advice, advise
from analysis.advisor.learning.cause import Cause
from analysis.advisor.learning.learn import learn
from analysis.advisor.report import AdviceReport, Told, report
from analysis.advisor.rewriting.rules import Action, Rule, apply
from analysis.prefix_replay.rules import BlockRule
from cachemodel.errors import UserError
from cachemodel.kv_events import BlockStored, KVEventBatch
from cachemodel.prompts.model import Kind
from hitmap.advise.inputs import Positions, Read, read_logs
from hitmap.prompt_files import PromptFiles
from hitmap.prompt_tokens import BodyTokens, body_tokens
from tests.cachemodel.prompts.kv_world import START, Sent, Server, line, recording

DATA = Path(__file__).parents[1] / "data/vllm-0.32"
EVENTS, REQUESTS, MODEL = DATA / "run1/kv_events.jsonl", DATA / "run1/requests.jsonl", DATA / "model"
LIBRARY = Tokenizer.from_file(str(MODEL / "tokenizer.json"))


def advised(log: Path, tokenizer: Path | str) -> tuple[Read, Advice, AdviceReport]:
    """As the command does it."""
    tokens = body_tokens(str(tokenizer))
    read = read_logs([log], tokens)
    rule = BlockRule(block_size=read.block_size or 32)
    told_by = read.tokens_by or tokens.name
    advice = advise(read.prompts, tokens, rule, cache_name="vLLM", tokens_by=told_by)
    return read, advice, report(advice, read.left_out, None, Positions(read.prompts, tokens))


@pytest.fixture(scope="module")
def of_events() -> tuple[Read, Advice, AdviceReport]:
    return advised(EVENTS, MODEL)


@pytest.fixture(scope="module")
def of_requests() -> tuple[Read, Advice, AdviceReport]:
    return advised(REQUESTS, MODEL)


@pytest.fixture(scope="module")
def without_text() -> tuple[Read, Advice, AdviceReport]:
    return advised(EVENTS, "approximate")


def of_cause(told: AdviceReport, cause: str) -> list[Told]:
    """The suggestions of a cause, those of most requests first."""
    found = [one for one in told.suggestions if one.cause == cause]
    assert found, [one.cause for one in told.suggestions]
    return sorted(found, key=lambda one: -one.requests)


def clock_at() -> int:
    """The token at which the clock begins in the requests that have it in front, by the log and the tokenizer."""
    bodies = [json.loads(text)["body"] for text in REQUESTS.open()]
    said = next(
        body["messages"][0]["content"] for body in bodies if "Current time" in body["messages"][0]["content"]
    )
    rendered = f"<|im_start|>system\n{said}<|im_end|>\n"
    encoded = LIBRARY.encode(rendered, add_special_tokens=False)
    begin = rendered.index("Current time")
    return next(at for at, (_, end) in enumerate(encoded.offsets) if end > begin)


def test_events_alone_say_what_the_request_log_says(
    of_events: tuple[Read, Advice, AdviceReport], of_requests: tuple[Read, Advice, AdviceReport]
) -> None:
    ours, theirs = of_events[2], of_requests[2]
    key = attrgetter("cause", "path", "role", "safety", "requests", "token", "values")
    assert sorted(map(key, ours.suggestions)) == sorted(map(key, theirs.suggestions))
    assert {one.cause for one in ours.suggestions} == {"clock", "tool order"}
    assert [one.cause for one in ours.beside] == [one.cause for one in theirs.beside] == ["isolation"]
    # A request that was cached as a whole computes nothing, and is all that events leave out.
    assert ours.prompts < theirs.prompts
    for one, same in zip(sorted(ours.suggestions, key=key), sorted(theirs.suggestions, key=key), strict=True):
        assert one.at_most == pytest.approx(same.at_most, rel=0.1)
        if one.saves:
            assert one.saves == pytest.approx(same.saves, rel=0.05)


def test_the_clock_is_named_at_its_token(of_events: tuple[Read, Advice, AdviceReport]) -> None:
    clock, *_ = of_cause(of_events[2], "clock")
    assert (clock.path, clock.token) == ("messages[0].content", clock_at())
    assert f"from token {clock_at()} on" in clock.evidence
    assert all(value.startswith("Current time: 2026-11-29T12:05:") for value in clock.values)
    assert "-Current time: 2026-11-29T12:05:" in clock.diff


def test_shuffled_tools_are_named_and_the_salt_is_isolation_alone(
    of_events: tuple[Read, Advice, AdviceReport],
) -> None:
    read, advice, told = of_events
    (tools,) = of_cause(told, "tool order")
    assert (tools.token, tools.safety) == (clock_at(), "canonicalise")  # in front of the same text
    assert {one.isolation for one in read.prompts} == {"", "tenant-0", "tenant-1"}
    (isolation,) = told.beside
    assert (isolation.cause, isolation.requests) == ("isolation", 6)
    salted = {at for at, one in enumerate(read.prompts) if one.isolation}
    for one in advice.suggestions:  # what salted prompts have in a slot is what most have
        unusual = {seen.request for seen in one.slot.seen if seen.value.startswith("Current time")}
        assert not unusual & salted
    assert "tenant" not in json.dumps([one.values for one in told.suggestions])


def test_what_is_replayed_are_the_tokens_of_the_events(of_events: tuple[Read, Advice, AdviceReport]) -> None:
    raw = {one.request_id: one for one in PromptFiles([EVENTS])}
    tokens = body_tokens(str(MODEL))
    read = read_logs([EVENTS], tokens)
    assert read.block_size == 32
    for prompt in read.prompts:
        own = raw[prompt.request_id].parts[0].tokens
        told = tokens(prompt.body or {})
        assert tuple(told) == own[: len(told)]
        assert prompt.response is not None or len(own) - len(told) < 4  # what is cut off is the answer


def test_where_events_began_is_told(of_events: tuple[Read, Advice, AdviceReport]) -> None:
    read = of_events[0]
    lines = EVENTS.read_text().splitlines()
    assert set(read.places) == {one.request_id for one in read.prompts}
    clocked = next(one for one in read.prompts if "Current time" in one.parts[0].text[:20])
    place = read.places[clocked.request_id]
    assert place.file == EVENTS
    assert place.line is not None
    assert "BlockStored" in str(lines[place.line - 1]) or "frames_b64" in lines[place.line - 1]
    assert any("KV events do not tell of them" in one for one in read.left_out)


def test_without_a_tokenizer_position_and_behaviour_are_told(
    without_text: tuple[Read, Advice, AdviceReport],
) -> None:
    read, advice, told = without_text
    assert {(one.path, one.token) for one in told.suggestions} == {("prompt", clock_at())}
    clocks = of_cause(told, "unknown volatile slot")
    assert [one.requests for one in clocks] == [28, 12]
    assert all("nobody sends one twice" in one.evidence for one in clocks)
    found = {(slot.cause, slot.token, slot.requests) for slot in learn(read.prompts)}
    assert found == {
        (Cause.UNKNOWN, clock_at(), 28),
        (Cause.UNKNOWN, clock_at(), 12),
        (Cause.ITEM_ORDER, clock_at(), 12),
    }
    assert [one.cause for one in told.beside] == ["isolation"]
    assert told.prompt_tokens == sum(len(one.parts[0].tokens) for one in read.prompts)
    assert any("--tokenizer tells" in one for one in read.left_out)
    assert all(one.gain is None for one in advice.suggestions)


def test_slots_of_request_logs_have_their_token_too(of_requests: tuple[Read, Advice, AdviceReport]) -> None:
    assert {one.token for one in of_requests[2].suggestions} == {clock_at()}
    _, _, told = advised(REQUESTS, "approximate")
    assert {one.token for one in told.suggestions} == {None}
    assert not any("from token" in one.evidence for one in told.suggestions)


# -- rewrites


ANSWER = "It is on the second shelf behind the door, next to the window and the lamp"


def read_of(*texts: str, tokenizer: Path | str = MODEL, folder: Path) -> tuple[Read, BodyTokens]:
    """Of a server that was sent these rendered prompts, and answered each of them."""
    server = Server()
    for text in texts:
        sent = Sent(tuple(LIBRARY.encode(text + ANSWER, add_special_tokens=False).ids))
        while server.compute(sent, 1000):
            pass
    file = folder / "events.jsonl"
    file.write_text(recording(server.batches))
    tokens = body_tokens(str(tokenizer))
    return read_logs([file], tokens), tokens


CHAT = (
    "<|im_start|>system\n{}Be kind to all.<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
)
MOVE = Rule(Action.MOVE, "system", pattern=r"^Now \d+\.$")


def test_a_rewritten_message_is_tokenised_between_its_marks_and_others_keep_their_tokens(
    tmp_path: Path,
) -> None:
    read, tokens = read_of(CHAT.format("Now 12.\n", "Where is the book?"), folder=tmp_path)
    (prompt,) = read.prompts
    assert prompt.body is not None
    assert prompt.response
    assert ANSWER.startswith(prompt.response)
    after = apply([MOVE], prompt.body)
    told = LIBRARY.decode(tokens(after).tolist(), skip_special_tokens=False)
    assert told == CHAT.format("", "Where is the book?\n\nNow 12.")
    assert LIBRARY.decode(tokens(prompt.body).tolist(), skip_special_tokens=False) == CHAT.format(
        "Now 12.\n", "Where is the book?"
    )


def test_tokens_that_no_tokenizer_would_choose_stay_as_they_were(tmp_path: Path) -> None:
    """A model may answer in pieces that its tokenizer would join; what was stored of them is what is found again."""
    word = [LIBRARY.token_to_id(one) for one in "kind"]
    assert LIBRARY.encode("kind", add_special_tokens=False).ids != word
    begin, end = (
        LIBRARY.encode(one, add_special_tokens=False).ids
        for one in (
            "<|im_start|>system\nNow 5.\nHello<|im_end|>\n<|im_start|>assistant\n",
            "<|im_end|>\n<|im_start|>user\nHi there<|im_end|>\n",
        )
    )
    server = Server()
    server.compute(Sent((*begin, *word, *end, *[1] * 4)), 1000)
    file = tmp_path / "events.jsonl"
    file.write_text(recording(server.batches))
    tokens = body_tokens(str(MODEL))
    (prompt,) = read_logs([file], tokens).prompts
    assert prompt.body is not None
    assert [part.text for part in prompt.parts[:2]] == ["Now 5.\nHello", "kind"]
    after = tokens(apply([MOVE], prompt.body)).tolist()
    assert any(after[at : at + 4] == word for at in range(len(after)))


def test_a_prompt_without_marks_is_a_text(tmp_path: Path) -> None:
    read, tokens = read_of(
        "Once upon a time in the west there was a cache that nobody read. ", folder=tmp_path
    )
    (prompt,) = read.prompts
    assert (prompt.parts[0].path, prompt.parts[0].kind) == ("prompt", Kind.TEXT)
    assert prompt.parts[0].text.startswith("Once upon a time")
    assert prompt.body is not None
    assert tokens.position(prompt, "prompt", prompt.parts[0].text.index("upon")) == 2  # On|ce| up|on
    changed = {**prompt.body, "prompt": "Once upon"}
    assert tokens(changed).tolist() == LIBRARY.encode("Once upon", add_special_tokens=False).ids


def test_logs_of_token_ids_are_read_too(tmp_path: Path) -> None:
    ids = LIBRARY.encode(CHAT.format("", "Hello"), add_special_tokens=False).ids
    file = tmp_path / "ids.jsonl"
    file.write_text(json.dumps({"prompt": ids}) + "\n")
    tokens = body_tokens(str(MODEL))
    read = read_logs([file], tokens)
    (prompt,) = read.prompts
    assert [(part.role, part.text) for part in prompt.parts] == [
        ("system", "Be kind to all."),
        ("user", "Hello"),
    ]
    assert np.array_equal(tokens(prompt.body or {}), ids)
    assert (read.tokens_by, read.block_size) == ("", None)


# -- what is broken, or of two kinds


def test_events_and_requests_together_are_refused(tmp_path: Path) -> None:
    both = tmp_path / "both.jsonl"
    both.write_text(REQUESTS.read_text() + EVENTS.read_text())
    for logs in ([both], [REQUESTS, EVENTS]):
        with pytest.raises(UserError, match="give one log or the other"):
            read_logs(logs)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"frames_b64": ["AA=="]}\n', "frames of no KV-event message"),
        ('{"frames_b64": ["AA==", "AAAAAAAAAAE=", "wQ=="]}\n', "message tells no KV events"),
        (line(KVEventBatch(START, []), 0), "no block was stored"),
        (line(KVEventBatch(START, [BlockStored([1], 9, [1, 2], 2)]), 0), "before the recording began"),
        (line(KVEventBatch(START, [BlockStored([1], None, [], 2)]), 0), "without their tokens"),
    ],
)
def test_a_recording_without_prompts_says_why(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "kv.jsonl"
    file.write_text(text)
    with pytest.raises(UserError, match=words):
        read_logs([file])


def test_what_is_left_out_is_told(tmp_path: Path) -> None:
    good = EVENTS.read_text().splitlines(keepends=True)
    file = tmp_path / "kv.jsonl"
    file.write_text("".join([*good[20:60], "{}\n", '{"frames_b64": [7]}\n', good[30], *good[70:]]))
    told = " | ".join(read_logs([file]).left_out)
    assert "1 lines: frames of no KV-event message, the first at" in told
    assert "1 lines: message told before" in told
    assert "1 lines: no prompt in the line" in told
    assert "blocks: hang on blocks that were stored before the recording began" in told
    assert "10 messages are missing" in told


def test_the_tokenizer_of_another_model_is_noticed(tmp_path: Path) -> None:
    settings: dict[str, Any] = json.loads((MODEL / "tokenizer.json").read_text())
    few = {piece: number for piece, number in settings["model"]["vocab"].items() if number < 300}
    settings["model"]["vocab"], settings["model"]["merges"] = few, []
    other = tmp_path / "tokenizer.json"
    other.write_text(json.dumps(settings))
    read, _, told = advised(EVENTS, other)
    assert any("beyond the vocabulary of this tokenizer" in one for one in read.left_out)
    assert told.prompts == len(read.prompts)


def test_a_tokenizer_that_has_no_words_is_refused(tmp_path: Path) -> None:
    empty = tmp_path / "tokenizer.json"
    Tokenizer(models.BPE()).save(str(empty))
    with pytest.raises(UserError, match="has no vocabulary"):
        advised(EVENTS, empty)


def test_a_packed_recording_is_read_like_any_log(tmp_path: Path) -> None:
    import gzip

    packed = tmp_path / "kv.jsonl.gz"
    packed.write_bytes(gzip.compress(EVENTS.read_bytes()))
    assert len(read_logs([packed]).prompts) == len(list(PromptFiles([EVENTS])))
