"""Which form a workload or trace file has, by its first line, and its plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum, auto
from pathlib import Path

import msgspec

from cachemodel.errors import UserError
from hitmap.load import agents, azure, mooncake, workload
from hitmap.load.blocks import Prompts
from hitmap.load.files import lines
from hitmap.load.plan import Plan


class Form(Enum):
    """REQUESTS: requests themselves, or a log of them; the others tell lengths only."""

    REQUESTS = auto()
    MOONCAKE = auto()
    AGENTS = auto()
    AZURE = auto()


@dataclass(frozen=True, slots=True)
class Replay:
    """How a file is sent. speed: 2 in half the time. scale: of a trace's lengths. gap_s: between the starts of agent
    sessions, seconds. untimed: when the requests of a file without times are due. prompts: called for a trace, which
    tells no text."""

    prompts: Callable[[], Prompts]
    untimed: Iterator[float]
    speed: float = 1.0
    scale: float = 1.0
    gap_s: float = agents.SESSION_GAP_S

    def plan(self, path: Path) -> Plan:
        """The plan of a file of any form. Raises UserError."""
        speed, scale = self.speed, self.scale
        match form(path):
            case Form.MOONCAKE:
                plan = mooncake.plan(path, self.prompts(), speed=speed, scale=scale)
            case Form.AGENTS:
                plan = agents.plan(path, self.prompts(), gap_s=self.gap_s, speed=speed, scale=scale)
            case Form.AZURE:
                plan = azure.plan(path, self.prompts(), speed=speed, scale=scale)
            case _:
                return workload.plan(path, self.untimed, speed=speed)
        return replace(plan, own_times=True)


def form(path: Path) -> Form:
    """Which of the forms it is. Raises UserError for none."""
    _, line = next(lines(path), (0, b""))
    if line.removeprefix(b"\xef\xbb\xbf").startswith(b"TIMESTAMP,"):
        return Form.AZURE
    try:
        first = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        first = None
    if not isinstance(first, dict):
        raise UserError(
            f"{path} holds no requests: give JSON lines of requests, or a trace in a form hitmap knows"
        )
    if first.keys() >= {"timestamp", "hash_ids"}:
        return Form.MOONCAKE
    return Form.AGENTS if first.keys() >= {"block_size", "requests"} else Form.REQUESTS
