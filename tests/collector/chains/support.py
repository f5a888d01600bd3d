"""What the tests of chains share: prompts made by hand, the prompts of the recording, a source on a log."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from collector.chains.capture import Texts
from collector.chains.memory import ChainMemory
from collector.chains.prompt import Prompt, read_prompt
from collector.chains.prompt_log import Known, PromptLog
from collector.chains.row import ChainMaker
from collector.chains.settings import Capture
from collector.chains.source import ChainTail, Tokens
from collector.chains.tokens import Tokenizer
from collector.otlp.check import DEFAULT_WINDOW
from collector.request_log import Rejected, decode_line, usage_row
from collector.sink import Sink
from tests.collector.support import HASHER

RECORDED_S = 1_795_954_000.0


def prompt(**told: Any) -> Prompt:
    """A prompt that says no more than a test wants."""
    plain: dict[str, Any] = {"time": 1.0, "seconds": 0.0, "server": "s", "model": "m", "request_id": "r"}
    return Prompt(**(plain | {"counted": None} | told))


def read(record: dict[str, Any]) -> Prompt | str:
    """What the line of a log that holds this record gives."""
    row = usage_row({"response_id": "r", "time": RECORDED_S} | record, "s", RECORDED_S)
    assert not isinstance(row, Rejected), row
    return read_prompt(record, row)


def recorded(run: Path) -> list[tuple[str, Prompt]]:
    """Phase and prompt of each request of a recording, in the order in which they were sent."""
    found = []
    for line in (run / "requests.jsonl").read_bytes().splitlines():
        record = decode_line(line)
        assert isinstance(record, dict)
        row = usage_row(record, "s", RECORDED_S)
        assert not isinstance(row, Rejected)
        told = read_prompt(record, row)
        assert isinstance(told, Prompt)
        found.append((str(record["phase"]), told))
    return sorted(found, key=lambda one: one[1].time)


def logged(number: int, words: str = "", **more: Any) -> dict[str, Any]:
    """A line of a log: request `number`, sent that many seconds after a fixed moment, done at once."""
    sent = 1_700_000_000 if "old" in more else int(time.time()) - 1000
    return {
        "response_id": f"r{number}",
        "sent_unix_ns": (sent + number) * 10**9,
        "total_s": 0.01,
        "body": {"prompt": words or f"prompt {number}"},
    } | more


def write(path: Path, records: Sequence[dict[str, Any]]) -> None:
    """Append lines to a log."""
    with path.open("ab") as file:
        file.write(b"".join(json.dumps(record).encode() + b"\n" for record in records))


def tail(
    path: Path,
    sink: Sink,
    tokenizer: Tokenizer | None,
    *,
    capture: Capture = Capture.HASHES,
    known: Known | None = None,
    block_size: int = 16,
) -> ChainTail:
    """A source on the log of server s that looks often."""
    return ChainTail(
        PromptLog(path, "s", DEFAULT_WINDOW, known),
        "s",
        sink,
        ChainMaker(HASHER, ChainMemory(), block_size),
        Texts(capture, HASHER),
        Tokens(tokenizer),
        poll_s=0.02,
    )
