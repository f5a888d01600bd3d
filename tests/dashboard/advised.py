"""Prompts with known faults, in a store."""

from __future__ import annotations

from clickhouse_connect.driver.client import Client

from collector.chains.settings import Capture
from tests.analysis.advisor import planted
from tests.analysis.advisor.planted import after_first_line, at_top, clock, log
from tests.analysis.advisor.stored_world import put
from tests.dashboard.made import HOSTILE

DAY = {"from": "2026-11-03T00:00", "to": "2026-11-05T00:00"}


def greeting(made: planted.Log) -> str:
    """Tones that a hostile hand wrote."""
    return f"{HOSTILE} ``` </code> \x1b[31m \u202e {('be warm', 'be brief', 'be exact')[made.last.index % 3]}"


def fill(client: Client, capture: Capture = Capture.FULL) -> None:
    """80 requests with a clock, an id, a user's name, tools in any order and tones full of markup."""
    changes = [
        at_top(clock("Now: %H:%M:%S")),
        after_first_line(planted.user_name),
        after_first_line(greeting),
        at_top(planted.request_id),
        planted.tools_shuffled,
    ]
    put(client, log(changes, 80, tools=True), capture)
