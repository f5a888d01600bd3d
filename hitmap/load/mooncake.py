"""Mooncake's trace form: arrival in milliseconds, lengths in tokens, ids of the prompt's 512-token blocks.

Source: kvcache-ai/Mooncake, FAST25-release. An id stands for its block and all before it; the last block of a prompt
has an id too, although it is seldom full.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec

from hitmap.load.blocks import Prompts, scaled, split
from hitmap.load.files import decoded
from hitmap.load.plan import Plan, Planned
from hitmap.load.trace import Count, completion

BLOCK_SIZE = 512


class Line(msgspec.Struct):
    """One request."""

    timestamp: Annotated[float, msgspec.Meta(ge=0)]
    input_length: Count
    output_length: Count
    hash_ids: list[Count]


def plan(path: Path, prompts: Prompts, *, speed: float = 1.0, scale: float = 1.0) -> Plan:
    """The trace as token completions. speed: 2 sends it in half the time. scale: of all lengths, blocks included.

    Raises UserError.
    """
    trace = sorted(decoded(path, Line), key=lambda line: line.timestamp)
    size = scaled(BLOCK_SIZE, scale)
    begin = trace[0].timestamp if trace else 0.0

    def requests() -> Iterator[Planned]:
        for number, line in enumerate(trace):
            parts = partial(split, "mooncake", line.hash_ids, BLOCK_SIZE, size, line.input_length, number)
            due_s = (line.timestamp - begin) / 1e3 / speed
            yield completion(due_s, parts, prompts, line.output_length * scale, "mooncake")

    return Plan(f"Mooncake trace {path.name}", requests)
