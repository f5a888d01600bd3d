"""Prompts whose reuse and volatility are known at every position, put into a store as collectors put them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from clickhouse_connect.driver.client import Client

from cachemodel.content import ContentHasher

START = datetime(2026, 11, 29, 12, tzinfo=UTC)
BLOCK = 16
HASHER = ContentHasher(b"prompts of the heatmap's tests")
CHAIN = ("time", "server", "model", "request_id", "told_by", "prompt_tokens", "block_size", "isolation", "template",
         "split_depth", "blocks")  # fmt: skip
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


@dataclass(frozen=True)
class Prompt:
    """blocks: what each block holds, any number. more: tokens past the last full block. split: blocks that an earlier
    prompt had as the collector remembers it, which can be wrong either way."""

    blocks: Sequence[int]
    template: int = 1 << 60
    server: str = "a"
    isolation: int = 0
    more: int = 0
    cached: int | None = None
    size: int = BLOCK
    phase: str = ""
    split: int = 0

    @property
    def tokens(self) -> int:
        """Of the whole prompt."""
        return len(self.blocks) * self.size + self.more


def put(client: Client, prompts: Sequence[Prompt], *, batches: int = 1, apart_s: float = 1.0) -> None:
    """One prompt every so many seconds from START on; chains in so many inserts, in order."""
    chains, requests = [], []
    for number, prompt in enumerate(prompts):
        at, name = START + timedelta(seconds=number * apart_s), f"r{number}"
        contents = list(HASHER.chain(list(prompt.blocks), 1))
        chains.append([at, prompt.server, "m", name, "tokenizer", prompt.tokens, prompt.size, prompt.isolation,
                       prompt.template, prompt.split, contents])  # fmt: skip
        requests.append([at, prompt.server, "m", "vllm", name, number + 1, prompt.tokens, prompt.cached,
                         {"phase": prompt.phase}])  # fmt: skip
    step = -(-len(chains) // batches)
    for begin in range(0, len(chains), step):
        insert(client, "request_chains", CHAIN, chains[begin : begin + step])
    insert(client, "requests", REQUEST, requests)


def insert(client: Client, table: str, names: Sequence[str], rows: list[list[Any]]) -> None:
    """Rows of a table."""
    client.insert(table, rows, column_names=list(names))


def clock(count: int, template: int = 1 << 60, size: int = BLOCK) -> list[Prompt]:
    """A system prompt of 4 blocks, a block that never repeats, and 5 blocks that always say the same."""
    return [
        Prompt([1, 2, 3, 4, 1000 + n, 5, 6, 7, 8, 9], template, size=size, cached=4 * size if n else 0)
        for n in range(count)
    ]
