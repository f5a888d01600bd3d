"""Worlds whose reuse, volatility and cost are known at every position."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise

import pytest
from clickhouse_connect.driver.client import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analysis.heatmap.build import build
from analysis.heatmap.model import Cell, Heatmap, Row
from cachemodel.errors import UsageError, UserError
from store.migrate import known
from tests.analysis.heatmap.worlds import BLOCK, START, Prompt, clock, put
from tests.conftest import Database
from tests.databases import Databases

ALL = "2026-11-29T11:00/2026-11-29T14:00"
FINDING = ["time", "origin", "run", "server", "name", "subject", "value", "low", "high", "unit", "samples", "inputs",
           "detail"]  # fmt: skip
A, B = 0xAAAAAAAA << 32, 0xBBBBBBBB << 32


def row(found: Heatmap, key: int | str) -> Row:
    name = key if isinstance(key, str) else f"{key:016x}"[:8]
    return next(row for row in found.rows if row.key == name)


def told(cells: Sequence[Cell], name: str) -> list[float]:
    return [getattr(cell, name) for cell in cells]


def test_a_clock_breaks_what_stands_behind_it(db: Database) -> None:
    put(db.client, clock(64, A), batches=4)
    found = build(db.client, ALL)
    cells = row(found, A).cells
    assert [(cell.start, cell.end) for cell in cells] == [(n * BLOCK, (n + 1) * BLOCK) for n in range(10)]
    assert told(cells, "reuse") == [63 / 64] * 4 + [0.0] * 6
    assert told(cells, "volatility") == pytest.approx([0.0] * 4 + [6.0] + [0.0] * 5)
    assert told(cells, "zone") == ["hot"] * 4 + ["cold"] * 6
    assert told(cells, "computed") == [BLOCK] * 4 + [64 * BLOCK] * 6
    (mark,) = found.marks
    assert (mark.key, mark.start, mark.end, mark.volatile) == ("aaaaaaaa", 64, 160, (64, 80))
    assert mark.bits == pytest.approx(6.0)
    assert "template aaaaaaaa at tokens 64-160" in found.answer
    assert found.reuse == 63 * 4 / 640
    assert [one.zone for one in found.treatments] == ["hot", "hot"], "no position that most come by is warm"


@pytest.mark.parametrize("k", [1, 2, 3, 8])
def test_k_equally_likely_variants_are_log2_k_bits(db: Database, k: int) -> None:
    put(db.client, [Prompt([1, 2, 100 + n % k, 3], A) for n in range(24)])
    cells = row(build(db.client, ALL), A).cells
    assert told(cells, "volatility") == pytest.approx([0, 0, math.log2(k), 0], abs=1e-9)
    assert told(cells, "reuse") == pytest.approx([23 / 24] * 2 + [(24 - k) / 24] * 2)


def test_a_variant_in_a_fifth_of_the_requests(db: Database) -> None:
    put(db.client, [Prompt([1, 9 if n % 5 == 4 else 2, 3], A) for n in range(100)])
    cells = row(build(db.client, ALL), A).cells
    entropy = -(0.2 * math.log2(0.2) + 0.8 * math.log2(0.8))
    assert told(cells, "volatility") == pytest.approx([0, entropy, 0], abs=1e-9)
    assert told(cells, "reuse") == pytest.approx([0.99, 0.98, 0.98])


def test_templates_are_rows_and_lengths_are_frequencies(db: Database) -> None:
    long = [Prompt(range(1, 9), A)] * 10
    short = [Prompt(range(1, 5), A)] * 30
    put(db.client, [*long, *short, *[Prompt([50, 51], B)] * 7])
    found = build(db.client, ALL)
    assert [(row.key, row.requests, len(row.cells)) for row in found.rows] == [
        ("aaaaaaaa", 40, 8),
        ("bbbbbbbb", 7, 2),
    ]
    assert told(found.rows[0].cells, "frequency") == [1.0] * 4 + [0.25] * 4
    assert told(found.rows[0].cells, "requests") == [40] * 4 + [10] * 4


def test_what_another_server_or_salt_was_sent_is_new(db: Database) -> None:
    same = [Prompt([1, 2], A, server=server, isolation=salt) for server in "ab" for salt in (0, 7)]
    put(db.client, same + same)
    assert told(row(build(db.client, ALL), A).cells, "reuse") == [0.5, 0.5]


def test_what_only_requests_tell_chooses_prompts_too(db: Database) -> None:
    put(db.client, [Prompt([1, n % 2 + 5], A, phase="even" if n % 2 == 0 else "odd") for n in range(20)])
    found = build(db.client, f"{ALL},phase=even")
    assert (found.requests, found.rows[0].requests) == (10, 10)
    assert told(found.rows[0].cells, "volatility") == pytest.approx([0, 0])
    assert told(found.rows[0].cells, "reuse") == [0.9, 0.9]


def test_rows_by_time(db: Database) -> None:
    put(db.client, clock(120, A))
    found = build(db.client, ALL, by="time")
    assert found.width_s == 10
    assert [row.key for row in found.rows[:2]] == ["2026-11-29T12:00:00+00:00", "2026-11-29T12:00:10+00:00"]
    assert [row.requests for row in found.rows] == [10] * 12
    assert [found.rows[n].cells[0].reuse for n in (0, 1)] == [0.9, 1.0]


def test_cost_is_what_was_computed_to_the_token_and_unknown_where_nobody_tells(db: Database) -> None:
    put(db.client, [Prompt([1, 2, 3], A, more=5, cached=20), Prompt([1, 2, 3], A, more=7, cached=200),
                    Prompt([7, 8], B)])  # fmt: skip
    found = build(db.client, ALL)
    assert told(row(found, A).cells, "computed") == [0, 12, 16, 5]
    assert told(row(found, B).cells, "computed") == [None, None]
    assert told(row(found, A).cells, "computed_ms") == [0.0, None, None, None]
    assert any("2 of 3 requests" in warning for warning in found.warnings)
    assert row(found, A).cells[3].reuse is None


def test_milliseconds_are_the_servers_own(db: Database) -> None:
    put(db.client, [Prompt([1], A, "a", cached=0), Prompt([1, 2], A, "b", cached=0)])
    finding = [
        START,
        "canary",
        "1",
        "a",
        "prefill.ms_per_token",
        "",
        0.5,
        None,
        None,
        "ms/{token}",
        3,
        "",
        "",
    ]
    names = [
        "time",
        "origin",
        "run",
        "server",
        "name",
        "subject",
        "value",
        "low",
        "high",
        "unit",
        "samples",
        "inputs",
        "detail",
    ]
    db.client.insert("findings", [finding], column_names=names)
    cells = row(build(db.client, f"{ALL},server=a"), A).cells
    assert told(cells, "computed_ms") == [8.0]
    assert told(row(build(db.client, ALL), A).cells, "computed_ms") == [None, None]


def test_prompts_shorter_than_a_block_are_counted(db: Database) -> None:
    put(db.client, [Prompt([], A, more=3), Prompt([1], A)])
    assert row(build(db.client, ALL), A).requests == 2
    assert told(row(build(db.client, ALL), A).cells, "frequency") == [0.5]


def test_block_sizes_side_by_side(db: Database) -> None:
    put(db.client, [Prompt([1, 2], A, size=16), Prompt([1], A, size=32)])
    found = build(db.client, ALL)
    assert found.block_sizes == [16, 32]
    assert told(row(found, A).cells, "requests") == [2, 1]


def test_the_last_hour_with_requests_is_asked_for_by_default(db: Database) -> None:
    put(db.client, clock(3, A))
    assert build(db.client, "").name.startswith("the last hour with requests")


def test_errors_say_what_to_do(db: Database) -> None:
    with pytest.raises(UserError, match="the store has no requests yet"):
        build(db.client, "")
    put(db.client, clock(3, A))
    db.client.command("TRUNCATE TABLE chain_depths")
    with pytest.raises(UserError, match="no prompt is known: read their log with hitmap attach"):
        build(db.client, ALL)
    with pytest.raises(UserError, match="no request matches 'server=z'"):
        build(db.client, "server=z")
    with pytest.raises(UsageError, match="by template or time"):
        build(db.client, ALL, by="server")


def test_prompts_stored_before_the_table_was_there_are_taken_in(db: Database) -> None:
    put(db.client, clock(20, A), batches=3)
    before = build(db.client, ALL)
    (file,) = [file for file in known() if file.name == "chain_depths"]
    for statement in file.statements:
        db.client.command(statement)
    assert build(db.client, ALL) == before


def test_a_sample_is_told_and_close(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 4,000 prompts some 16 in 320: from the table that holds a sixteenth of them."""
    monkeypatch.setattr("analysis.heatmap.reader.contents.__defaults__", (500,))
    monkeypatch.setattr("analysis.heatmap.reader.costs.__defaults__", (500,))
    put(db.client, [Prompt([1, 2 + n % 2, 5, 6], A, cached=16) for n in range(4000)])
    found = build(db.client, ALL)
    cells = row(found, A).cells
    assert found.sampled == {"reuse": 1, "cost": 8, "volatility": 32, "stability": 1}
    assert told(cells, "requests") == [4000] * 4
    assert told(cells, "volatility") == pytest.approx([0, 1, 0, 0], abs=0.03)
    assert told(cells, "computed") == pytest.approx([0] + [64_000] * 3, rel=0.15)


def brute(prompts: Sequence[Prompt]) -> dict[tuple[int, int], tuple[int, float, float]]:
    """By template and place: requests, reuse, volatility, block by block as they are defined."""
    seen: set[tuple[object, ...]] = set()
    visits: Counter[tuple[int, int]] = Counter()
    old: Counter[tuple[int, int]] = Counter()
    children: dict[tuple[int, int], dict[tuple[int, ...], Counter[int]]] = defaultdict(
        lambda: defaultdict(Counter)
    )
    for prompt in prompts:
        for place, block in enumerate(prompt.blocks):
            before = tuple(prompt.blocks[:place])
            where = (prompt.template, place)
            key = (prompt.server, prompt.isolation, *before, block)
            visits[where] += 1
            old[where] += key in seen
            seen.add(key)
            children[where][before][block] += 1
    return {
        where: (n, old[where] / n, sum(_bits(counts) for counts in children[where].values()) / n)
        for where, n in visits.items()
    }


def _bits(counts: Counter[int]) -> float:
    n = counts.total()
    return sum(c * math.log2(n / c) for c in counts.values())


PROMPTS = st.builds(
    Prompt,
    st.lists(st.integers(0, 2), max_size=6),
    st.sampled_from([A, B]),
    st.sampled_from("ab"),
    st.sampled_from([0, 7]),
    st.integers(0, BLOCK - 1),
    st.one_of(st.none(), st.integers(0, 120)),
)


@pytest.fixture(scope="module")
def shared(databases: Databases):  # type: ignore[no-untyped-def]
    with databases.migrated() as database:
        yield database.client


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(prompts=st.lists(PROMPTS, min_size=1, max_size=40), batches=st.integers(1, 4))
def test_any_prompts_block_by_block(
    shared: Client, databases: Databases, prompts: list[Prompt], batches: int
) -> None:
    databases.empty(str(shared.database))
    put(shared, prompts, batches=batches)
    found = build(shared, ALL)
    cells = {(r.key, cell.start // BLOCK): cell for r in found.rows for cell in r.cells if cell.requests}
    expected = {(f"{key:016x}"[:8], place): value for (key, place), value in brute(prompts).items()}
    assert cells.keys() == expected.keys()
    for where, (requests, reuse, bits) in expected.items():
        assert cells[where].requests == requests
        assert cells[where].reuse == pytest.approx(reuse)
        assert cells[where].volatility == pytest.approx(bits, abs=1e-9)
    for one in found.rows:
        assert all(a.requests >= b.requests for a, b in pairwise(one.cells)), (
            "whoever is here was there before"
        )
        told_of = [p for p in prompts if f"{p.template:016x}"[:8] == one.key and p.cached is not None]
        computed = sum(p.tokens - min(p.cached or 0, p.tokens) for p in told_of)
        assert sum(cell.computed or 0 for cell in one.cells) == computed


LONG = st.builds(
    lambda length, turn, split: Prompt([0] * turn + [1] * max(0, length - turn), A, split=split),
    st.integers(0, 150),
    st.integers(0, 150),
    st.integers(0, 160),
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(prompts=st.lists(LONG, min_size=1, max_size=12), batches=st.integers(1, 4))
def test_known_blocks_are_found_whatever_the_collector_remembers(
    shared: Client, databases: Databases, prompts: list[Prompt], batches: int
) -> None:
    databases.empty(str(shared.database))
    put(shared, prompts, batches=batches)
    rows = shared.query("SELECT depth, known FROM chain_depths ORDER BY time").result_rows
    for at, (prompt, told_of) in enumerate(zip(prompts, rows, strict=True)):
        shared_blocks = [_common(prompt.blocks, before.blocks) for before in prompts[:at]]
        assert told_of == (len(prompt.blocks), max(shared_blocks, default=0))


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    return next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
