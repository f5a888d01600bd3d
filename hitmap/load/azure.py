"""Azure's arrivals: a CSV of TIMESTAMP, ContextTokens, GeneratedTokens.

Times and lengths are the trace's, content is not: every prompt is its own, since nothing tells what was shared.

Source: Azure/AzurePublicDataset, AzureLLMInferenceDataset2023.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from pathlib import Path

from cachemodel.errors import UserError
from hitmap.load.blocks import Prompts, split
from hitmap.load.files import lines
from hitmap.load.plan import Plan, Planned
from hitmap.load.trace import completion

HEADER = ["TIMESTAMP", "ContextTokens", "GeneratedTokens"]
MAX_TOKENS = 1 << 32


def plan(path: Path, prompts: Prompts, *, speed: float = 1.0, scale: float = 1.0) -> Plan:
    """The trace as completions. speed and scale as in mooncake.plan. Raises UserError."""
    trace = sorted(_rows(path))

    def requests() -> Iterator[Planned]:
        for number, (time_s, context, generated) in enumerate(trace):
            parts = partial(split, "azure", (), 1, 1, int(context * scale), number)
            due_s = (time_s - trace[0][0]) / speed
            yield completion(due_s, parts, prompts, generated * scale, "azure")

    return Plan(f"Azure trace {path.name}", requests)


def _rows(path: Path) -> Iterator[tuple[float, int, int]]:
    for number, line in lines(path):
        try:
            cells = next(csv.reader([line.decode("utf-8-sig", "replace")]))
            if number == 1 and cells == HEADER:
                continue
            time, context, generated = cells
            row = (datetime.fromisoformat(time).timestamp(), int(context), int(generated))
        except (ValueError, OverflowError, csv.Error):
            raise UserError(f"{path} line {number} is not {','.join(HEADER)}") from None
        if not (0 <= row[1] <= MAX_TOKENS and 0 <= row[2] <= MAX_TOKENS):
            raise UserError(f"{path} line {number}: a count of tokens is out of range")
        yield row
