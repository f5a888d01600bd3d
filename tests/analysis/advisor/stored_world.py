"""Requests in a store as a collector puts them there: chains, texts by level of capture, and what servers said."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from clickhouse_connect.driver.client import Client

from cachemodel.prompts.model import Prompt
from collector.chains.approximate import Approximation
from collector.chains.capture import Texts
from collector.chains.memory import ChainMemory
from collector.chains.prompt import Prompt as Sent
from collector.chains.prompt import read_body
from collector.chains.row import ChainMaker
from collector.chains.settings import Capture
from collector.chains.tokens import Tokenizer
from tests.collector.support import HASHER

REQUEST = (
    "time",
    "server",
    "model",
    "dialect",
    "request_id",
    "span_id",
    "prompt_tokens",
    "cached_tokens",
    "labels",
)
Labels = Callable[[Prompt], dict[str, str]]


def whose(prompt: Prompt) -> dict[str, str]:
    """As `--label-field session_id --label-field user` keeps them."""
    told = {"session_id": prompt.session, "user": prompt.user, "phase": "p"}
    return {name: value for name, value in told.items() if value}


def put(
    client: Client,
    prompts: Sequence[Prompt],
    capture: Capture = Capture.FULL,
    *,
    server: str = "a",
    tokenizer: Tokenizer | None = None,
    labels: Labels = whose,
    block_size: int = 16,
) -> None:
    """The prompts as requests to one server, in their order."""
    tokenizer = tokenizer or Approximation()
    chains, texts = ChainMaker(HASHER, ChainMemory(), block_size), Texts(capture, HASHER)
    rows: dict[str, list[bytes]] = {"request_chains": [], "segments": [], "prompts": []}
    requests: list[list[Any]] = []
    for number, prompt in enumerate(prompts):
        sent = _sent(prompt, server)
        told = tokenizer.tokens(sent, with_text=True)
        rows["request_chains"].append(chains.entry(sent, told.ids, tokenizer.told_by, "").payload)
        entries, new = texts.entries(sent, told)
        texts.stored(new)
        for entry in entries:
            rows[entry.kind].append(entry.payload)
        requests.append([datetime.fromtimestamp(sent.time, UTC), server, "m", "vllm", prompt.request_id, number + 1,
                         len(told.ids), prompt.cached_tokens, labels(prompt)])  # fmt: skip
    for table, lines in rows.items():
        if lines:
            client.raw_insert(table, insert_block=b"".join(lines), fmt="JSONEachRow")
    client.insert("requests", requests, column_names=list(REQUEST))


def _sent(prompt: Prompt, server: str) -> Sent:
    """As the collector reads it."""
    sent = read_body(prompt.body or {})
    assert isinstance(sent, Sent)
    assert prompt.time
    return replace(
        sent,
        time=prompt.time,
        server=server,
        model="m",
        request_id=prompt.request_id,
        salt=prompt.isolation,
        reads_off=prompt.reads_off,
    )
