"""Laws of reading: what a body says is said by its parts, in its order, and nothing that JSON can hold breaks it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from cachemodel.prompts.decode import SharedDecoder
from cachemodel.prompts.model import Kind, Prompt
from cachemodel.prompts.plain import are_tokens
from cachemodel.prompts.read import TOO_DEEP, read, read_value
from cachemodel.prompts.text import at, spelled

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
ARGUMENTS = st.dictionaries(TEXT, TEXT, max_size=2)
OPENAI_BLOCK = st.one_of(
    st.builds(lambda text: {"type": "text", "text": text}, TEXT),
    st.builds(lambda text: {"type": "refusal", "refusal": text}, TEXT),
)
CALL = st.builds(
    lambda name, told: {
        "id": "c",
        "type": "function",
        "function": {"name": name, "arguments": json.dumps(told)},
    },
    TEXT,
    ARGUMENTS,
)
OPENAI = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "developer", "user", "assistant", "tool"])},
    optional={
        "content": st.one_of(TEXT, st.lists(OPENAI_BLOCK, min_size=1, max_size=3), st.none()),
        "name": TEXT,
        "reasoning_content": TEXT,
        "tool_calls": st.lists(CALL, max_size=2),
    },
)
ANTHROPIC_BLOCK = st.one_of(
    st.builds(lambda text: {"type": "text", "text": text}, TEXT),
    st.builds(lambda text: {"type": "thinking", "thinking": text}, TEXT),
    st.builds(
        lambda name, told: {"type": "tool_use", "id": "c", "name": name, "input": told}, TEXT, ARGUMENTS
    ),
    st.builds(lambda text: {"type": "tool_result", "tool_use_id": "c", "content": text}, TEXT),
    st.builds(
        lambda text: {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": text}]},
        TEXT,
    ),
)
ANTHROPIC = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["user", "assistant"]),
        "content": st.one_of(TEXT, st.lists(ANTHROPIC_BLOCK, min_size=1, max_size=3)),
    }
)
TOOLS = st.lists(
    st.fixed_dictionaries({"name": TEXT, "description": TEXT, "input_schema": ARGUMENTS}), max_size=3
)
BODIES = st.fixed_dictionaries(
    {
        "messages": st.one_of(
            st.lists(OPENAI, min_size=1, max_size=4), st.lists(ANTHROPIC, min_size=1, max_size=4)
        )
    },
    optional={
        "tools": TOOLS,
        "system": st.one_of(TEXT, st.lists(OPENAI_BLOCK, min_size=1, max_size=2)),
        "documents": st.lists(TEXT, max_size=2),
    },
)
NOT_SAID = ("role", "type", "id", "tool_use_id")
NAMES = st.sampled_from(
    [
        *(
            "messages",
            "role",
            "content",
            "type",
            "text",
            "body",
            "request",
            "response",
            "prompt",
            "input",
            "tools",
        ),
        *(
            "contents",
            "parts",
            "conversations",
            "from",
            "value",
            "system",
            "tool_calls",
            "function",
            "usage",
        ),
        *(
            "attributes",
            "resourceSpans",
            "resourceLogs",
            "scopeSpans",
            "scopeLogs",
            "spans",
            "logRecords",
            "events",
        ),
        *(
            "key",
            "gen_ai.input.messages",
            "gen_ai.prompt",
            "gen_ai.user.message",
            "name",
            "eventName",
            "source",
        ),
        *(
            "image",
            "image_url",
            "url",
            "data",
            "metadata",
            "headers",
            "error",
            "status",
            "choices",
            "lora",
            "time",
        ),
        *(
            "toolResult",
            "inlineData",
            "json",
            "summary",
            "documents",
            "response_format",
            "json_schema",
            "functions",
        ),
        *(
            "gen_ai.system_instructions",
            "gen_ai.tool.definitions",
            "gen_ai.prompt.0.content",
            "sent_unix_ns",
        ),
    ]
)
JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), TEXT
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=4)),
    max_leaves=12,
)


def leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for one in value:
            yield from leaves(one)
    elif isinstance(value, dict):
        for name, one in value.items():
            if name not in NOT_SAID:
                yield from leaves(one)


def one(record: dict[str, Any]) -> Prompt | None:
    told = read(record, "log:1")
    assert not isinstance(told, list) or len(told) == 1
    return told[0] if isinstance(told, list) else None


@given(BODIES)
def test_no_text_of_a_body_is_lost(body: dict[str, Any]) -> None:
    prompt = one(body)
    said = [leaf for name in ("tools", "system", "documents", "messages") for leaf in leaves(body.get(name))]
    if prompt is None:
        assert not said
        return
    whole = "".join(part.text for part in prompt.parts)
    for text in said:
        assert text in whole or msgspec.json.encode(text).decode()[1:-1] in whole


@given(BODIES)
def test_texts_stand_in_their_places_and_in_the_order_of_the_conversation(body: dict[str, Any]) -> None:
    prompt = one(body)
    if prompt is None:
        return
    indices = [part.message for part in prompt.parts]
    assert indices == sorted(indices)
    for part in prompt.parts:
        told = at(body, part.path)
        if isinstance(told, str):
            assert part.text == told
        if part.message >= 0:
            assert part.path.startswith(f"messages[{part.message}]")
            assert part.role == body["messages"][part.message]["role"]
    order = ["tools", "documents", "system"]
    before = [order.index(part.role) for part in prompt.parts if part.message < 0]
    assert before == sorted(before)


@given(BODIES, st.randoms(use_true_random=False))
def test_a_longer_conversation_begins_with_the_parts_of_the_shorter(body: dict[str, Any], rng: Any) -> None:
    shorter = {**body, "messages": body["messages"][: rng.randint(1, len(body["messages"]))]}
    first, second = one(shorter), one(body)
    if first and second:
        assert second.parts[: len(first.parts)] == first.parts


@settings(max_examples=500)
@given(JSON)
def test_nothing_breaks_the_reader(value: Any) -> None:
    told = read_value(value, "log:1")
    assert isinstance(told, str) or all(prompt.parts and prompt.request_id for prompt in told)


def test_depth_is_a_reason() -> None:
    deep: Any = "x"
    for _ in range(20_000):
        deep = [{"type": "tool_result", "content": deep}]
    assert read({"messages": [{"role": "user", "content": deep}]}, "log:1") == TOO_DEEP


@given(st.lists(JSON.filter(lambda value: isinstance(value, dict)), max_size=6))
def test_shared_decoding_gives_what_plain_decoding_gives(values: list[Any]) -> None:
    decoder = SharedDecoder(most_bytes=256)
    for value in values * 2:
        line = msgspec.json.encode(value)
        assert decoder.decode(line) == msgspec.json.decode(line)


def test_what_many_requests_have_is_kept_once() -> None:
    decoder = SharedDecoder()
    system = {"role": "system", "content": "Be brief. " * 20}
    tool = {"type": "function", "function": {"name": "f", "description": "d" * 80}}

    def asked(text: str) -> Prompt:
        body = {"messages": [system, {"role": "user", "content": text}], "tools": [tool]}
        (prompt,) = read_value(decoder.decode(msgspec.json.encode({"body": body})), "log:1")
        assert isinstance(prompt, Prompt)
        return prompt

    first, second = asked("a"), asked("b")
    assert first.body is not None
    assert second.body is not None
    assert first.body["messages"][0] is second.body["messages"][0]
    assert first.body["tools"][0] is second.body["tools"][0]
    for left, right in zip(first.parts[:2], second.parts[:2], strict=True):
        assert left.text is right.text
        assert left.path is right.path
    assert [part.kind for part in first.parts] == [Kind.TOOL, Kind.TEXT, Kind.TEXT]


@given(st.binary(max_size=40))
def test_broken_utf8_is_mended_and_counted(noise: bytes) -> None:
    text = noise.translate(None, b'"\\' + bytes(range(32)))
    decoder = SharedDecoder()
    told = decoder.decode(b'{"text": "' + text + b'"}')
    assert told == {"text": text.decode(errors="replace")}
    assert decoder.mended == (told["text"].encode() != text)


def test_half_a_surrogate_pair_is_mended_and_a_whole_one_stays() -> None:
    decoder = SharedDecoder()
    assert decoder.decode(rb'{"text": "\ud83d\ude00 \ud83d \\ud83d \udc00"}') == {"text": "😀 � \\ud83d �"}
    assert decoder.mended == 1


def test_ids_of_tokens_are_kept_once() -> None:
    decoder = SharedDecoder()
    first, second = (decoder.decode(b'{"prompt": [70000, 3, 70001]}')["prompt"] for _ in range(2))
    assert first == second == [70000, 3, 70001]
    assert all(one is other for one, other in zip(first, second, strict=True))
    assert decoder.decode(b'{"prompt": [1, true, 1.0, "1"], "stop": []}') == {
        "prompt": [1, True, 1.0, "1"],
        "stop": [],
    }


@given(st.lists(st.integers(-2, 2**32 + 2) | st.booleans() | st.floats() | st.text(max_size=1), max_size=6))
def test_what_tokens_are(value: list[object]) -> None:
    assert are_tokens(value) == (bool(value) and all(type(one) is int and 0 <= one < 2**32 for one in value))


@given(st.lists(st.integers(0, 2**32), max_size=20))
def test_tokens_are_spelled_as_numbers(ids: list[int]) -> None:
    assert spelled(ids) == " ".join(str(one) for one in ids)
