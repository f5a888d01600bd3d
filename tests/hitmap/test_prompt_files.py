"""Log files as they lie about: compressed or not, lines or an array, in any order, with anything in them."""

from __future__ import annotations

import gzip
import json
import random
import sys
import tracemalloc
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachemodel.errors import UserError
from cachemodel.prompts import split
from cachemodel.prompts.model import Prompt
from cachemodel.prompts.read import NO_PROMPT, NO_RECORD, REFUSED, TOO_DEEP
from cachemodel.prompts.split import NOT_JSON, TOO_LONG, pieces
from hitmap.prompt_files import CUT, DAMAGED, FORMS, PromptFiles

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CASES = Path(__file__).parents[3] / "shared/cases/prompts"


def asked(text: str, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], **more}


def lines(records: Iterable[Any]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def texts(prompts: Iterable[Prompt]) -> list[str]:
    return [prompt.parts[-1].text for prompt in prompts]


def written(folder: Path, data: bytes, name: str = "log.jsonl") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


ABC = [asked("a"), asked("b"), asked("c")]
FILES = {
    "lines": lines(ABC),
    "no line break at the end": lines(ABC).rstrip(),
    "CRLF": lines(ABC).replace(b"\n", b"\r\n"),
    "blank lines": b"\n\n" + lines(ABC).replace(b"\n", b"\n \t\n\n"),
    "byte order mark": b"\xef\xbb\xbf" + lines(ABC),
    "NUL bytes of a rotated log": b"\0" * 4096 + lines(ABC),
    "array": json.dumps(ABC).encode(),
    "array over lines": json.dumps(ABC, indent=2).encode(),
    "array with CRLF and a mark": b"\xef\xbb\xbf"
    + json.dumps(ABC, indent=2).encode().replace(b"\n", b"\r\n"),
    "array of texts": b'["a", "b" , "c"]',
    "texts": b'"a"\n"b"\n"c"\n',
    "lists of messages": lines([record["messages"] for record in ABC]),
    "array of lists of messages": json.dumps([record["messages"] for record in ABC], indent=1).encode(),
}


@pytest.mark.parametrize("packed", [bytes, gzip.compress, zstd.compress], ids=["plain", "gzip", "zstd"])
@pytest.mark.parametrize("form", FILES)
def test_files(form: str, packed: Any, tmp_path: Path) -> None:
    files = PromptFiles([written(tmp_path, packed(FILES[form]))])
    assert texts(files) == ["a", "b", "c"]
    assert (files.lines, files.prompts, files.left_out, files.mended) == (3, 3, {}, 0)


def test_one_conversation_alone_is_one_request(tmp_path: Path) -> None:
    messages = [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]
    (prompt,) = PromptFiles([written(tmp_path, json.dumps(messages).encode())])
    assert [part.text for part in prompt.parts] == ["S", "U"]


def test_token_ids_in_lines(tmp_path: Path) -> None:
    told = list(PromptFiles([written(tmp_path, b"[1, 2]\n[3]\n")]))
    assert [prompt.parts[0].tokens for prompt in told] == [(1, 2), (3,)]


def test_requests_without_an_id_are_named_by_file_and_line(tmp_path: Path) -> None:
    log = written(tmp_path, b"\n" + lines(ABC))
    assert [prompt.request_id for prompt in PromptFiles([log])] == [f"{log}:{line}" for line in (2, 3, 4)]
    array = written(tmp_path, json.dumps(ABC).encode())
    assert [prompt.request_id for prompt in PromptFiles([array])] == [
        f"{array}[{index}]" for index in (0, 1, 2)
    ]


def test_what_is_left_out_is_counted_with_its_first_line(tmp_path: Path) -> None:
    deep = b'{"messages": ' + b"[" * 100_000 + b"}"
    log = written(
        tmp_path,
        b"\n".join(
            [
                b"not JSON",
                lines(ABC).rstrip(),
                b"{}",
                b"{",
                b"17",
                json.dumps(asked("x", status=400)).encode(),
                deep,
                b'{"prompt": "a\0b"}',
                b'"' + b"x" * (split.MAX_BYTES + 1) + b'"',
                json.dumps(asked("d")).encode(),
            ]
        ),
    )
    files = PromptFiles([log])
    assert texts(files) == ["a", "b", "c", "d"]
    assert {reason: (told.first, told.count) for reason, told in files.left_out.items()} == {
        NOT_JSON: (f"{log}:1", 3),
        NO_PROMPT: (f"{log}:5", 1),
        NO_RECORD: (f"{log}:7", 1),
        REFUSED: (f"{log}:8", 1),
        TOO_DEEP: (f"{log}:9", 1),
        TOO_LONG: (f"{log}:11", 1),
    }
    assert files.lines == 12


def test_long_lines_and_long_items_are_read(tmp_path: Path) -> None:
    long = [asked('a"]}{[\\' * (1 << 20)), asked("b")]
    for data in (lines(long), json.dumps(long, indent=1).encode()):
        assert texts(PromptFiles([written(tmp_path, data)])) == [long[0]["messages"][0]["content"], "b"]


def test_broken_text_is_read_and_counted(tmp_path: Path) -> None:
    log = written(tmp_path, lines(ABC).replace(b'"b"', b'"b\xff\xc3"') + rb'{"text": "\ud800"}')
    files = PromptFiles([log])
    assert texts(files) == ["a", "b��", "c", "�"]
    assert files.mended == 2


@pytest.mark.parametrize("pack", [gzip.compress, zstd.compress], ids=["gzip", "zstd"])
def test_a_compressed_file_that_ends_too_early(pack: Any, tmp_path: Path) -> None:
    rng = random.Random(1)
    whole = lines(asked(rng.randbytes(800).hex()) for _ in range(2000))
    packed = pack(whole)
    files = PromptFiles([written(tmp_path, packed[: len(packed) // 2])])
    assert 0 < len(list(files)) < 2000
    assert CUT in files.left_out
    spoilt = packed[: len(packed) // 2] + rng.randbytes(len(packed))
    files = PromptFiles([written(tmp_path, spoilt)])
    assert 0 < len(list(files)) < 2000
    assert DAMAGED in files.left_out


def test_an_array_that_ends_too_early(tmp_path: Path) -> None:
    log = written(tmp_path, json.dumps(ABC, indent=1).encode()[:-20])
    files = PromptFiles([log])
    assert texts(files) == ["a", "b"]
    assert files.left_out[NOT_JSON].first == f"{log}[2]"


def test_prompts_come_in_the_order_of_time(tmp_path: Path) -> None:
    times = list(range(200))
    random.Random(2).shuffle(times)
    log = written(tmp_path, lines(asked(str(time), time=1e9 + time) for time in times))
    files = PromptFiles([log])
    assert texts(files) == [str(time) for time in range(200)]
    assert files.late == 0


def test_files_are_merged_by_time(tmp_path: Path) -> None:
    logs = [
        written(tmp_path, lines(asked(str(t), time=1e9 + t) for t in range(start, 30, 3)), f"{start}.jsonl")
        for start in (2, 0, 1)
    ]
    assert texts(PromptFiles(logs)) == [str(time) for time in range(30)]


def test_a_prompt_without_a_time_stays_behind_the_one_before_it(tmp_path: Path) -> None:
    told = [asked("x"), asked("c", time=1e9 + 3), asked("y"), asked("a", time=1e9 + 1), asked("z")]
    assert texts(PromptFiles([written(tmp_path, lines(told))])) == ["x", "a", "z", "c", "y"]


def test_disorder_beyond_the_window_is_counted_and_loses_nothing(tmp_path: Path) -> None:
    log = written(tmp_path, lines(asked(str(time), time=1e9 + time) for time in reversed(range(50))))
    files = PromptFiles([log], window=10)
    assert sorted(map(int, texts(files))) == list(range(50))
    assert files.late == 39


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_progress_adds_up_to_the_size_of_the_files(pack: Any, tmp_path: Path) -> None:
    logs = [written(tmp_path, pack(lines(ABC * 1000)), name) for name in ("a", "b")]
    steps: list[int] = []
    assert len(list(PromptFiles(logs, progress=steps.append))) == 6000
    assert sum(steps) == sum(log.stat().st_size for log in logs)


def test_messages_told_a_line_each_are_put_together(tmp_path: Path) -> None:
    def said(name: str, content: str) -> dict[str, Any]:
        ids = {"TraceId": "t", "SpanId": "s", "LogAttributes": {"gen_ai.system": "openai"}}
        return {"EventName": name, "Body": json.dumps({"content": content}), "Timestamp": 1e9, **ids}

    log = lines([said("gen_ai.system.message", "S"), said("gen_ai.user.message", "U"), {"text": "other"}])
    first, second = PromptFiles([written(tmp_path, log)])
    assert [part.text for part in second.parts] == ["S", "U"]
    assert texts([first]) == ["other"]


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("gone.jsonl", None, "no such file"),
        (".", None, "is a folder"),
        ("utf16.jsonl", "{}".encode("utf-16"), "UTF-16"),
        ("empty.jsonl", b"", "empty"),
        ("blank.jsonl", b"\n\n", "empty"),
        ("other.jsonl", b'{"level": "info"}\n{"level": "info"}\nx\n', "no prompt in 3 lines"),
    ],
)
def test_what_cannot_be_read_is_said_with_what_can(
    name: str, data: bytes | None, said: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(UserError, match=said) as caught:
        list(PromptFiles([path]))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    if data and not data.startswith(b"\xff"):
        assert "ShareGPT" in FORMS
        assert FORMS in str(caught.value)


def test_many_requests_with_one_system_prompt_stay_small(tmp_path: Path) -> None:
    system = {"role": "system", "content": "Follow the policy. " * 400}
    tools = [{"type": "function", "function": {"name": f"f{i}", "description": "d" * 500}} for i in range(10)]
    log = written(
        tmp_path,
        lines(
            {"body": {"messages": [system, {"role": "user", "content": f"question {i}"}], "tools": tools}}
            for i in range(1000)
        ),
    )
    assert log.stat().st_size > 12_000_000
    tracemalloc.start()
    try:
        held = list(PromptFiles([log]))
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(held) == 1000
    assert size / len(held) < 4096  # of 13 KB as they lie there


@settings(max_examples=100)
@given(
    values=st.lists(
        st.one_of(
            st.dictionaries(
                st.text('a"\\[]{},: ', max_size=4), st.text('b"\\[]{},\n', max_size=6), max_size=3
            ),
            st.text('c"\\[]{},', max_size=8),
            st.lists(st.text('d"\\]', max_size=3), max_size=2),
        ),
        min_size=1,
        max_size=6,
    ),
    indent=st.sampled_from([None, 1]),
    cut=st.integers(1, 40),
)
def test_an_array_is_split_into_its_items_wherever_the_stretches_end(
    values: list[Any], indent: int | None, cut: int
) -> None:
    data = b" " + json.dumps(values, indent=indent).encode() + b"\n"
    start, rest = data[:200], data[200:]
    if len(values) == 1 and isinstance(values[0], dict) and {"role", "from"} & values[0].keys():
        return
    stretches = [rest[i : i + cut] for i in range(0, len(rest), cut)]
    assert [json.loads(piece.data) for piece in pieces("f", start, iter(stretches))] == values


@settings(max_examples=100)
@given(st.binary(max_size=200), st.integers(1, 50))
def test_no_bytes_break_the_splitting(data: bytes, cut: int) -> None:
    stretches = [data[i : i + cut] for i in range(0, len(data), cut)]
    for piece in pieces("f", b"".join(stretches[:1]), iter(stretches[1:])):
        assert piece.fault or piece.data


@pytest.mark.skipif(
    not CASES.is_dir(), reason="the planted cases lie beside the checkout, in ../shared/cases"
)
@pytest.mark.parametrize(
    "case",
    [
        *("clean", "doc_shuffle", "sliding_window", "timestamp", "tool_added", "tool_keyorder"),
        *("user_in_system", "whitespace"),
    ],
)
def test_the_planted_cases_are_read_whole(case: str) -> None:
    log = CASES / f"{case}.jsonl"
    files = PromptFiles([log])
    told = list(files)
    records = [json.loads(line) for line in log.read_bytes().splitlines()]
    assert (len(told), files.left_out) == (30, {})
    for prompt, record in zip(told, records, strict=True):
        assert (prompt.request_id, prompt.session) == (record["request_id"], record["session_id"])
        tools = [part.text for part in prompt.parts if part.role == "tools"]
        assert [json.loads(text) for text in tools] == record.get("tools", [])
        said = [part.text for part in prompt.parts if part.role != "tools"]
        assert said == [message["content"] for message in record["messages"]]
        assert prompt.body == record


def test_the_recorded_log_is_read_whole(run1: Path) -> None:
    files = PromptFiles([run1 / "requests.jsonl"])
    told = list(files)
    assert (len(told), files.left_out, files.late) == (175, {}, 0)
    assert len([prompt for prompt in told if prompt.prompt_tokens is not None]) == 173
    assert sum(prompt.prompt_tokens or 0 for prompt in told) == 94_499
    assert sum(prompt.cached_tokens or 0 for prompt in told) == 56_480
    assert len({prompt.request_id for prompt in told}) == 175
    times = [prompt.time for prompt in told if prompt.time is not None]
    assert len(times) == 175
    assert times == sorted(times)
    assert {prompt.isolation.partition("=")[0] for prompt in told} == {"", "cache_salt"}
