"""A fault of each kind, switched on and off by the admin call, is visible in the stored rows where it was injected."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from analysis.selection import parse_set
from engine.faults import COMPUTED, LAYERS
from engine.telemetry.names import SPANS
from store.embedded import Embedded
from tests.engine.serving.live import settings
from tests.engine.stored import Driver, Stored, database, played

DELAY_MS = 60
DELAYS = {layer: f"layer={layer},delay_ms={DELAY_MS}" for layer in LAYERS}
SLOWDOWNS = {layer: f"layer={layer},slowdown=20" for layer in COMPUTED}
LOSE, EVICT, POOL = "lose_events=0.5", "evict=1,every_s=0.001", "device_blocks=12"
LONG = "The library keeps every book that was ever printed in this town, and a few that never were. " * 5


def prompt(name: str) -> str:
    return f"{name}: {LONG}"


def down(driver: Driver) -> None:
    """Everything cached leaves the device: the first blocks of a prompt for the host, the others for the disk."""
    driver.inject("evict=1")
    driver.ask("x", 1)
    driver.clear()


def layers(driver: Driver) -> None:
    """A request under each fault of a layer, whose prompt is partly on the device, the host and the disk."""
    for name, spec in [*DELAYS.items(), *SLOWDOWNS.items()]:
        driver.ask(prompt(name), 3, user="before")
        down(driver)
        driver.inject(spec)
        driver.ask(prompt(name), 3, user="under")
        driver.clear()
        driver.ask(prompt(name), 3, user="after")


@pytest.fixture(scope="module")
def by_layer(store_server: Embedded, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stored]:
    config = settings(host_blocks=4, disk_blocks=400, max_num_batched_tokens=64)
    with database(store_server, "engine_layers") as dsn:
        yield played(dsn, tmp_path_factory.mktemp("layers"), config, layers)


@pytest.mark.parametrize(
    ("layer", "spec"), [*DELAYS.items(), *SLOWDOWNS.items()], ids=[*DELAYS, "slow prefill", "slow decode"]
)
def test_a_fault_of_a_layer_shows_there_and_nowhere_else(by_layer: Stored, layer: str, spec: str) -> None:
    """On the row: the label, and its own layer longer by what it waited. On the trace: its own spans marked alone."""
    (row,) = by_layer.rows("SELECT * FROM requests WHERE labels['fault'] = {spec:String}", spec=spec)
    struck = [span for span in by_layer.spans(row["request_id"]) if "hitmap.fault" in span["a"]]
    assert {span["name"] for span in struck} == {SPANS[layer]}
    assert {span["a"]["hitmap.fault"] for span in struck} == {spec}
    waited_us = [int(span["a"]["hitmap.fault_us"]) for span in struck]
    assert row[f"{layer}_us"] >= sum(waited_us)
    assert all(span["ns"] // 1000 >= waited for span, waited in zip(struck, waited_us, strict=True))
    if spec in DELAYS.values():
        assert min(waited_us) >= DELAY_MS * 1000 - 1
        assert all(
            row[f"{other}_us"] <= row["e2e_us"] - DELAY_MS * 1000 for other in LAYERS if other != layer
        )


def test_every_tier_was_loaded_from(by_layer: Stored) -> None:
    """Else the faults of host and remote would have struck nobody."""
    tiers = by_layer.rows("SELECT host_tokens, remote_tokens FROM requests WHERE labels['phase'] = 'under'")
    assert tiers
    assert all(row["host_tokens"] > 0 and row["remote_tokens"] > 0 for row in tiers)


def test_before_and_after_nothing_is_marked(by_layer: Stored) -> None:
    count = "SELECT count(), countIf(mapContains(labels, 'fault')) FROM requests WHERE labels['phase'] = '{}'"
    asked = len(DELAYS) + len(SLOWDOWNS)
    assert by_layer.one(count.format("before")) == by_layer.one(count.format("after")) == (asked, 0)
    assert by_layer.one(count.format("under")) == (asked, asked)


@pytest.mark.parametrize(
    ("named", "found"), [("fault=layer=host*", 1), ("fault=,phase=under", 0), ("fault=,phase=after", 10)]
)
def test_a_report_can_choose_requests_by_their_fault(by_layer: Stored, named: str, found: int) -> None:
    chosen = parse_set(named, now=datetime.now(UTC), labels=["fault", "phase"], prefix="a")
    (row,) = by_layer.rows(f"SELECT count() AS n FROM requests WHERE {chosen.condition}", **chosen.parameters)
    assert row["n"] == found


def cache(driver: Driver) -> None:
    """The same prompts calmly, under a storm, in a small pool, and while events get lost."""
    for phase, spec in (("calm", ""), ("storm", EVICT), ("pool", POOL)):
        driver.server.engine.reset_prefix_cache()
        if spec:
            driver.inject(spec)
        for _ in range(2):
            driver.ask(prompt("again"), 2, user=phase)
        driver.ask_all([f"{name} is a short one" for name in ("A", "B", "C", "D")], 100, user=phase)
        driver.clear()
    driver.inject(LOSE)
    for number in range(30):
        driver.ask(prompt(f"lost {number}"), 1, user="lost")
    driver.clear()
    driver.ask("the end", 1)


@pytest.fixture(scope="module")
def by_cache(store_server: Embedded, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stored]:
    with database(store_server, "engine_cache") as dsn:
        yield played(dsn, tmp_path_factory.mktemp("cache"), settings(host_blocks=0), cache)


def phases(stored: Stored, what: str) -> dict[str, object]:
    """`what` of the repeated prompt's second asking, by phase."""
    rows = stored.rows(
        f"SELECT labels['phase'] AS phase, argMax({what}, time) AS told FROM requests"
        " WHERE prompt_tokens > 100 GROUP BY phase"
    )
    return {row["phase"]: row["told"] for row in rows}


def test_a_storm_takes_cached_tokens_and_says_so_in_the_events(by_cache: Stored) -> None:
    cached = phases(by_cache, "cached_tokens")
    assert cached["calm"] > 0  # type: ignore[operator]
    assert cached["storm"] == 0
    removed = by_cache.rows(
        "SELECT countIf(time < {at:String}) AS before, countIf(time > {at:String}) AS after FROM kv_events"
        " WHERE action = 'removed'",
        at=_first(by_cache, "storm"),
    )
    assert removed[0]["before"] == 0
    assert removed[0]["after"] > 0


def test_a_small_pool_preempts(by_cache: Stored) -> None:
    lost = by_cache.rows(
        "SELECT sum(toUInt32(SpanAttributes['hitmap.preemptions'])) AS n,"
        " countIf(SpanAttributes['hitmap.fault'] != {spec:String}) AS unmarked"
        " FROM otel_traces WHERE SpanName = 'llm_request' AND SpanAttributes['hitmap.preemptions'] != '0'",
        spec=POOL,
    )[0]
    assert lost["n"] == by_cache.counters["preemptions_total"] > 0
    assert lost["unmarked"] == 0
    assert by_cache.counters["recomputed_tokens_total"] > 0


def test_faults_of_the_cache_mark_whoever_ran_under_them(by_cache: Stored) -> None:
    marks = by_cache.rows(
        "SELECT labels['phase'] AS phase, groupUniqArray(labels['fault']) AS marks FROM requests GROUP BY phase"
    )
    assert {row["phase"]: row["marks"] for row in marks} == {
        "calm": [""],
        "storm": [EVICT],
        "pool": [POOL],
        "lost": [""],
        "": [""],
    }


def test_lost_events_are_counted_where_they_were_lost_and_where_they_are_missed(by_cache: Stored) -> None:
    gaps = by_cache.rows("SELECT detail FROM kv_events WHERE action = 'gap'")
    missing = sum(json.loads(gap["detail"])["missing"]["count"] for gap in gaps)
    assert missing == by_cache.counters["kv_event_batches_total{outcome=lost}"] > 5


def _first(stored: Stored, phase: str) -> str:
    return str(stored.one(f"SELECT toString(min(time)) FROM requests WHERE labels['phase'] = '{phase}'")[0])
