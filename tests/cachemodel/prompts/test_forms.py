"""One table of records, a row a form, with the parts that have to come out, in the order in which they are rendered."""

from __future__ import annotations

import base64
from hashlib import sha256
from typing import Any

import pytest

from cachemodel.prompts.model import Kind, Prompt
from cachemodel.prompts.read import NO_PROMPT, NO_RECORD, read, read_value
from cachemodel.prompts.text import at

PNG = b"\x89PNG\r\n"
PNG64 = base64.b64encode(PNG).decode()
IMAGE = f"image sha256:{sha256(PNG).hexdigest()}"
URL = "https://example.com/a.png"
AT_URL = f"image sha256:{sha256(URL.encode()).hexdigest()}"
TOOL = {"type": "function", "function": {"name": "search", "parameters": {"b": 1, "a": 2}}}
TOOL_TEXT = '{"type":"function","function":{"name":"search","parameters":{"b":1,"a":2}}}'
SCHEMA = {"name": "answer", "schema": {"type": "object"}}

Row = tuple[str, str, str, str]  # path, role, kind, text
FORMS: dict[str, tuple[dict[str, Any], list[Row]]] = {
    "openai chat": (
        {
            "messages": [
                {"role": "developer", "content": "Be brief."},
                {
                    "role": "user",
                    "name": "ann",
                    "content": [
                        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG64}"}},
                        {"type": "text", "text": "What is it?"},
                        {"type": "image_url", "image_url": {"url": URL}},
                    ],
                },
                {
                    "role": "assistant",
                    "reasoning_content": "Hm.",
                    "content": None,
                    "tool_calls": [
                        {"id": "call_1", "type": "function", "function": {"name": "search", "arguments": '{"q":1}'}}
                    ],
                },
                {"role": "tool", "tool_call_id": "call_1", "content": "found"},
            ],
            "response_format": {"type": "json_schema", "json_schema": SCHEMA},
            "tools": [TOOL],
        },
        [
            ("tools[0]", "tools", "tool", TOOL_TEXT),
            ("response_format.json_schema", "format", "format", '{"name":"answer","schema":{"type":"object"}}'),
            ("messages[0].content", "developer", "text", "Be brief."),
            ("messages[1].name", "user", "text", "ann"),
            ("messages[1].content[0]", "user", "image", IMAGE),
            ("messages[1].content[1].text", "user", "text", "What is it?"),
            ("messages[1].content[2]", "user", "image", AT_URL),
            ("messages[2].reasoning_content", "assistant", "reasoning", "Hm."),
            (
                "messages[2].tool_calls[0].function",
                "assistant",
                "call",
                '{"name":"search","arguments":"{\\"q\\":1}"}',
            ),
            ("messages[3].content", "tool", "result", "found"),
        ],
    ),
    "anthropic": (
        {
            "system": [{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}],
            "tools": [{"name": "t", "input_schema": {}, "cache_control": {"type": "ephemeral"}}],
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG64}},
                        {"type": "document", "source": {"type": "text", "data": "A page."}, "title": "Doc"},
                    ],
                },
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "Let me see.", "signature": "sig"},
                        {"type": "tool_use", "id": "toolu_1", "name": "t", "input": {"b": 1, "a": 2}},
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "tool_result",
                            "tool_use_id": "toolu_1",
                            "content": [{"type": "text", "text": "42"}],
                            "cache_control": {"type": "ephemeral"},
                        }
                    ],
                },
            ],
        },
        [
            ("tools[0]", "tools", "tool", '{"name":"t","input_schema":{}}'),
            ("system[0].text", "system", "text", "Be kind."),
            ("messages[0].content[0]", "user", "image", IMAGE),
            ("messages[0].content[1].title", "user", "text", "Doc"),
            ("messages[0].content[1].source.data", "user", "text", "A page."),
            ("messages[1].content[0].thinking", "assistant", "reasoning", "Let me see."),
            ("messages[1].content[1]", "assistant", "call", '{"name":"t","input":{"b":1,"a":2}}'),
            ("messages[2].content[0].content[0].text", "user", "result", "42"),
        ],
    ),
    "responses": (
        {
            "instructions": "Be exact.",
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
                {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "thought"}]},
                {"type": "function_call", "id": "fc", "call_id": "c", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c", "output": "done"},
            ],
            "text": {"format": {"type": "json_schema", "name": "n", "schema": {}}},
        },
        [
            ("text.format", "format", "format", '{"type":"json_schema","name":"n","schema":{}}'),
            ("instructions", "system", "text", "Be exact."),
            ("input[0].content[0].text", "user", "text", "Hi"),
            ("input[1].summary[0].text", "assistant", "reasoning", "thought"),
            ("input[2]", "assistant", "call", '{"name":"f","arguments":"{}"}'),
            ("input[3].output", "tool", "result", "done"),
        ],
    ),
    "responses, input as text": (
        {"instructions": "Be exact.", "input": "Hi"},
        [("instructions", "system", "text", "Be exact."), ("input", "user", "text", "Hi")],
    ),
    "gemini": (
        {
            "systemInstruction": {"parts": [{"text": "Be fair."}]},
            "tools": [{"functionDeclarations": [{"name": "f"}]}],
            "contents": [
                {"role": "user", "parts": [{"text": "Hi"}, {"inlineData": {"mimeType": "image/png", "data": PNG64}}]},
                {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {"x": 1}}}]},
                {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"y": 2}}}]},
            ],
        },
        [
            ("tools[0].functionDeclarations[0]", "tools", "tool", '{"name":"f"}'),
            ("systemInstruction.parts[0].text", "system", "text", "Be fair."),
            ("contents[0].parts[0].text", "user", "text", "Hi"),
            ("contents[0].parts[1].inlineData", "user", "image", IMAGE),
            ("contents[1].parts[0].functionCall", "model", "call", '{"name":"f","args":{"x":1}}'),
            ("contents[2].parts[0].functionResponse", "user", "result", '{"name":"f","response":{"y":2}}'),
        ],
    ),
    "bedrock": (
        {
            "system": [{"text": "Be fair."}, {"cachePoint": {"type": "default"}}],
            "toolConfig": {"tools": [{"toolSpec": {"name": "f"}}]},
            "messages": [
                {"role": "user", "content": [{"image": {"format": "png", "source": {"bytes": PNG64}}}]},
                {"role": "assistant", "content": [{"toolUse": {"toolUseId": "i", "name": "f", "input": {}}}]},
                {"role": "user", "content": [{"toolResult": {"toolUseId": "i", "content": [{"json": {"a": 1}}]}}]},
            ],
        },
        [
            ("toolConfig.tools[0]", "tools", "tool", '{"toolSpec":{"name":"f"}}'),
            ("system[0].text", "system", "text", "Be fair."),
            ("messages[0].content[0].image", "user", "image", IMAGE),
            ("messages[1].content[0].toolUse", "assistant", "call", '{"name":"f","input":{}}'),
            ("messages[2].content[0].toolResult.content[0].json", "user", "result", '{"a":1}'),
        ],
    ),
    "ollama": (
        {"messages": [{"role": "user", "content": "Look", "images": [PNG64]}]},
        [("messages[0].content", "user", "text", "Look"), ("messages[0].images[0]", "user", "image", IMAGE)],
    ),
    "completion": ({"prompt": "Once", "suffix": "end"}, [
        ("prompt", "prompt", "text", "Once"), ("suffix", "prompt", "text", "end")]),
    "completion of one": ({"prompt": ["Once"]}, [("prompt[0]", "prompt", "text", "Once")]),
    "completion of tokens": ({"prompt": [1, 2, 3]}, [("prompt", "prompt", "tokens", "1 2 3")]),
    "tokens and text mixed": (
        {"prompt": [1, 2, "x", 3]},
        [
            ("prompt[0]", "prompt", "tokens", "1 2"),
            ("prompt[2]", "prompt", "text", "x"),
            ("prompt[3]", "prompt", "tokens", "3"),
        ],
    ),
    "raw text": ({"text": "Once"}, [("text", "prompt", "text", "Once")]),
    "raw input": ({"input": "Once"}, [("input", "prompt", "text", "Once")]),
    "token ids": ({"token_ids": [7, 8]}, [("token_ids", "prompt", "tokens", "7 8")]),
    "input ids": ({"input_ids": [7, 8]}, [("input_ids", "prompt", "tokens", "7 8")]),
    "ids in the response": (
        {"body": {"model": "m"}, "response": {"id": "r", "prompt_token_ids": [7]}},
        [("response.prompt_token_ids", "prompt", "tokens", "7")],
    ),
}  # fmt: skip


def rows(prompt: Prompt) -> list[Row]:
    return [(part.path, part.role, part.kind.value, part.text) for part in prompt.parts]


def one(record: Any) -> Prompt:
    told = read_value(record, "log:1")
    assert isinstance(told, list), told
    (prompt,) = told
    return prompt


@pytest.mark.parametrize("form", FORMS)
def test_parts_of_a_form(form: str) -> None:
    record, expected = FORMS[form]
    assert rows(one(record)) == expected


@pytest.mark.parametrize("name", ["body", "request", "request_body"])
@pytest.mark.parametrize(
    "form", ["openai chat", "anthropic", "responses", "gemini", "completion", "token ids"]
)
def test_the_request_may_stand_in_a_record(form: str, name: str) -> None:
    record, expected = FORMS[form]
    prompt = one({name: record, "request_id": "r-1"})
    assert (rows(prompt), prompt.request_id, prompt.body) == (expected, "r-1", record)


@pytest.mark.parametrize("form", [form for form in FORMS if form != "ids in the response"])
def test_each_part_has_a_place_of_its_own_in_the_body(form: str) -> None:
    prompt = one(FORMS[form][0])
    assert len({part.path for part in prompt.parts}) == len(prompt.parts)
    for part in prompt.parts:
        told = at(prompt.body, part.path)
        if part.kind is Kind.TEXT:
            assert told == part.text


def test_message_indices_tell_what_stands_outside_of_the_conversation() -> None:
    prompt = one(FORMS["openai chat"][0])
    assert [part.message for part in prompt.parts] == [-1, -1, 0, 1, 1, 1, 1, 2, 2, 3]


def test_marks_are_the_places_of_breakpoints() -> None:
    assert one(FORMS["anthropic"][0]).marks == ("tools[0]", "system[0]", "messages[2].content[0]")
    assert one(FORMS["bedrock"][0]).marks == ("system[1]",)
    assert one({**FORMS["anthropic"][0], "cache_control": {"type": "ephemeral"}}).marks[-1] == "cache_control"


def test_a_moved_breakpoint_changes_no_part() -> None:
    def tools(*marks: bool) -> dict[str, Any]:
        more = [{"cache_control": {"type": "ephemeral"}} if mark else {} for mark in marks]
        told = [{"name": "a", **more[0]}, {"name": "b", **more[1]}]
        return {"tools": told, "messages": [{"role": "user", "content": "x"}]}

    assert rows(one(tools(True, False))) == rows(one(tools(False, True)))


def test_the_same_image_has_one_name_in_all_forms() -> None:
    told = [part.text for form in FORMS for part in one(FORMS[form][0]).parts if part.kind is Kind.IMAGE]
    assert set(told) == {IMAGE, AT_URL}
    assert told.count(IMAGE) == 5


@pytest.mark.parametrize(
    "block",
    [
        {"type": "hologram", "data": "x"},
        {"type": "text"},
        {"type": 7, "data": "x"},
        {"type": ["text"], "a": 1},
        {"something": "else"},
        17,
        ["nested"],
        True,
    ],
)
def test_a_block_of_unknown_type_stays_as_a_file(block: Any) -> None:
    told = [{"type": "text", "text": "a"}, block, {"type": "text", "text": "b"}]
    parts = one({"messages": [{"role": "user", "content": told}]}).parts
    assert [part.kind for part in parts] == [Kind.TEXT, Kind.FILE, Kind.TEXT]
    assert parts[1].path == "messages[0].content[1]"
    assert parts[1].text.startswith("file sha256:")


def test_several_prompts_are_several_requests_that_share_no_count() -> None:
    record = {"request_id": "r", "prompt": ["a", [1, 2]], "usage": {"prompt_tokens": 9}}
    told = read(record, "log:1")
    assert isinstance(told, list)
    assert [(p.request_id, rows(p), p.prompt_tokens) for p in told] == [
        ("r[0]", [("prompt[0]", "prompt", "text", "a")], None),
        ("r[1]", [("prompt[1]", "prompt", "tokens", "1 2")], None),
    ]
    assert told[1].parts[0].tokens == (1, 2)


def test_a_conversation_is_a_request_for_each_turn_that_is_answered() -> None:
    turns = [
        {"from": "system", "value": "S"},
        {"from": "human", "value": "A"},
        {"from": "gpt", "value": "B"},
        {"from": "human", "value": "C"},
        {"from": "function_call", "value": "F"},
        {"from": "observation", "value": "O"},
        {"from": "gpt", "value": "D"},
        {"from": "human", "value": "E"},
    ]
    told = read({"id": "talk", "conversations": turns, "tools": "[T]"}, "log:1")
    assert isinstance(told, list)
    assert [(p.request_id, "".join(part.text for part in p.parts), p.response) for p in told] == [
        ("talk/1", "[T]SA", "B"),
        ("talk/3", "[T]SABC", "F"),
        ("talk/5", "[T]SABCFO", "D"),
        ("talk/7", "[T]SABCFODE", None),
    ]
    assert {p.session for p in told} == {"talk"}
    assert [part.kind.value for part in told[2].parts[-2:]] == ["call", "result"]
    assert [(part.path, part.role, part.message) for part in told[0].parts] == [
        ("tools", "tools", -1),
        ("conversations[0].value", "system", 0),
        ("conversations[1].value", "human", 1),
    ]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Once", [("prompt", "prompt", "text", "Once")]),
        ([1, 2], [("prompt", "prompt", "tokens", "1 2")]),
        ([{"role": "user", "content": "Hi"}], [("messages[0].content", "user", "text", "Hi")]),
        ([{"from": "human", "value": "Hi"}], [("conversations[0].value", "human", "text", "Hi")]),
    ],
)
def test_a_line_may_be_the_prompt_itself(line: Any, expected: list[Row]) -> None:
    assert rows(one(line)) == expected


@pytest.mark.parametrize("line", [None, 1, True, [], [None], [1, "x", None], 1.5])
def test_what_is_no_record(line: Any) -> None:
    assert read_value(line, "log:1") == NO_RECORD


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"messages": []},
        {"messages": "x"},
        {"messages": [{"role": "user", "content": ""}]},
        {"prompt": ""},
        {"prompt": []},
        {"prompt": [True]},
        {"prompt": [-1]},
        {"body": {}},
        {"id": "chatcmpl-1", "object": "chat.completion", "choices": []},
        {"conversations": []},
        {"conversations": [{"from": "gpt", "value": "only the model"}]},
        {"attributes": {"http.route": "/"}},
    ],
)
def test_what_holds_no_prompt(record: dict[str, Any]) -> None:
    assert read(record, "log:1") == NO_PROMPT
