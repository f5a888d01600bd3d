"""The recorded vLLM server: where its clock stands is where reuse ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from clickhouse_connect.driver.client import Client

from analysis.heatmap.build import build
from store.embedded import Embedded
from store.migrate import migrate
from tests.analysis.misses.captured import database, take_in

DAY = "2026-11-29T00:00/2026-11-30T00:00"
BLOCK = 32


@pytest.fixture(scope="module")
def taken(store_server: Embedded, run1: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with database(store_server, "heatmap_capture") as dsn:
        from store.client import connect

        with connect(dsn) as client:
            migrate(client)
        yield take_in(dsn, run1, tmp_path_factory.mktemp("capture"))


def test_a_timestamp_in_front_leaves_nothing_to_reuse(taken: Client) -> None:
    (row,) = build(taken, f"{DAY},phase=tsfront").rows
    blocks = [cell for cell in row.cells if cell.requests]
    assert {cell.reuse for cell in blocks} == {0.0}
    assert blocks[0].volatility == max(cell.volatility or 0 for cell in blocks)
    assert all(cell.rewrite for cell in blocks)


def test_a_timestamp_at_the_end_leaves_all_before_it(taken: Client) -> None:
    found = build(taken, f"{DAY},phase=tsend")
    (row,) = found.rows
    blocks = [cell for cell in row.cells if cell.requests]
    assert {cell.zone for cell in blocks[:-1]} == {"hot"}
    assert blocks[-1].reuse == 0.0
    assert [mark.start for mark in found.marks] == [blocks[-1].start]


def test_nothing_was_served_that_had_not_been_sent(taken: Client) -> None:
    """But in conversations: there the server also holds what it generated itself, which was part of no prompt."""
    served = taken.query(
        "SELECT cached_tokens, known * block_size, startsWith(labels['phase'], 'multiturn') FROM requests AS r"
        " INNER JOIN chain_depths AS c ON c.request = sipHash64(r.server, r.request_id)"
        " WHERE cached_tokens IS NOT NULL"
    ).result_rows
    assert len(served) == 173
    assert all(cached <= sent for cached, sent, talked in served if not talked)
    assert all(cached <= sent + BLOCK for cached, sent, talked in served if talked)
    assert sum(cached > 0 for cached, *_ in served) > 50


def test_tokens_computed_add_up_to_what_usage_says(taken: Client) -> None:
    found = build(taken, DAY)
    (computed,) = taken.query("SELECT sum(prompt_tokens - cached_tokens) FROM requests").result_rows[0]
    assert sum(cell.computed or 0 for row in found.rows for cell in row.cells) == computed
