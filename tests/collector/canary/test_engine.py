"""Canaries on the live engine: what they find, against what the engine is set to and what its own spans tell."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from collector.canary import Budget, HttpTransport, Options, Report, robust, run
from collector.request_log import CANARY_MARK
from engine.config import EngineConfig
from engine.serve import EngineServer
from store.embedded import Embedded
from tests.collector.canary.fakes import finding
from tests.engine.serving.live import serving, settings, tiny
from tests.engine.stored import Driver, Stored, database, played

BUDGET = Budget(requests=5_000, tokens=2_000_000, seconds=250, rate=1000)
HOST_MS, REMOTE_MS = 60.0, 100.0
CHUNK, CHUNK_MS = 64, 16.0


def canary(server: EngineServer, *measures: str, **options: Any) -> Report:
    transport = HttpTransport(server.url)
    try:
        return run(transport, server.url, measures, Options(**options), BUDGET)
    finally:
        transport.close()


def long_engine(**changes: Any) -> EngineConfig:
    """With room for a prompt of 8,192 tokens, twice."""
    return settings(max_model_len=8300, device_blocks=2048, max_num_batched_tokens=4096, **changes)


@pytest.mark.parametrize(
    ("block", "unit", "drop", "longest"),
    [
        *((16, 0, False, 1024), (32, 0, False, 1024), (64, 0, True, 1024), (24, 0, False, 1024)),
        *((16, 128, True, 1024), (16, 528, False, 2200), (16, 1072, True, 3300), (16, 2144, False, 4400)),
    ],
)
def test_the_unit_of_the_engine_is_recovered_exactly(block: int, unit: int, drop: bool, longest: int) -> None:
    config = long_engine(block_size=block, cache_unit=unit, drop_last_unit=drop)
    model = tiny()
    model = replace(model, config=replace(model.config, max_position_embeddings=8400))
    with serving(replace(config, device_blocks=32_768 // block), loaded=model) as server:
        report = canary(server, "alignment", longest=longest)
    assert finding(report, "alignment.unit").value == (unit or block)
    assert finding(report, "alignment.dropped_units").value == drop


def test_the_engine_keeps_salts_apart_and_is_one_cache() -> None:
    with serving() as server:
        report = canary(server, "salt", "replicas", longest=512, repeats=4)
    assert finding(report, "salt.isolates").value == 1
    assert finding(report, "replicas.caches").value == 1
    assert finding(report, "replicas.hit_share").value == 1


@pytest.mark.alone
def test_an_entry_that_expires() -> None:
    with serving(settings(cache_ttl=1.0)) as server:
        found = finding(canary(server, "lifetime", longest=256, waits_s=(0.2, 2.5)), "entry.lifetime_s")
    assert found.low is not None
    assert found.high is not None
    assert found.low < 1.0 < found.high


@dataclass
class Told:
    """prefill: with CHUNK_MS more for a chunk of CHUNK tokens; tiers: with HOST_MS and REMOTE_MS more for a load."""

    stored: Stored
    prefill: Report
    tiers: Report


@pytest.fixture(scope="module")
def told(store_server: Embedded, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    reports: list[Report] = []

    def drive(driver: Driver) -> None:
        driver.ask("Somebody's own question.", 4)
        driver.inject(f"layer=prefill,delay_ms={CHUNK_MS:g}")
        reports.append(canary(driver.server, "prefill", longest=768))
        driver.clear()
        driver.inject(f"layer=host,delay_ms={HOST_MS:g}")
        driver.inject(f"layer=remote,delay_ms={REMOTE_MS:g}")
        reports.append(canary(driver.server, "tiers", longest=256))
        driver.clear()

    config = settings(
        device_blocks=64, host_blocks=192, disk_blocks=2048, max_num_batched_tokens=CHUNK, max_model_len=1024
    )
    with database(store_server, "canaries") as dsn:
        stored = played(dsn, tmp_path_factory.mktemp("canaries"), config, drive)
        yield Told(stored, *reports)


@pytest.mark.alone
def test_they_are_no_traffic(told: Told) -> None:
    rows = told.stored.rows("SELECT request_id FROM requests")
    assert [row["request_id"] for row in rows] == list(told.stored.driver.usages)
    sent = told.prefill.requests + told.tiers.requests
    spans = told.stored.one(
        "SELECT count() FROM otel_traces WHERE SpanAttributes['gen_ai.request.id'] LIKE '%hitmap-canary-%'"
    )[0]
    assert sent - 10 <= spans <= sent, "their spans came, and asked of models and tokens have none"


@pytest.mark.alone
def test_prefill_is_what_the_spans_say(told: Told) -> None:
    found = finding(told.prefill, "prefill.ms_per_token")
    truth = robust.slope(_prefills(told.stored, told.prefill))
    assert truth is not None
    assert found.value == pytest.approx(truth.value, rel=0.1)
    assert found.value is not None
    assert found.value > CHUNK_MS / CHUNK * 0.9, "the planted delay alone is more"


@pytest.mark.alone
@pytest.mark.parametrize(("tier", "planted_ms"), [("host", HOST_MS), ("remote", REMOTE_MS)])
def test_loads_are_what_the_spans_say(told: Told, tier: str, planted_ms: float) -> None:
    per_token = finding(told.tiers, "tier.load_ms_per_token", tier).value
    fixed = finding(told.tiers, "tier.load_fixed_ms", tier).value
    whole = finding(told.tiers, "tier.load_ms", tier).value
    assert per_token is not None
    assert fixed is not None
    rows = told.stored.rows(
        f"SELECT toFloat64OrZero(SpanAttributes['hitmap.tokens.{tier}']) AS tokens,"
        f" 1e3 * toFloat64OrZero(SpanAttributes['hitmap.latency.{tier}']) AS ms FROM otel_traces"
        f" WHERE SpanAttributes['gen_ai.request.id'] LIKE '%{CANARY_MARK}-{told.tiers.run}-%' AND tokens > 0"
    )
    assert len(rows) >= 9
    ratios = [(fixed + per_token * row["tokens"]) / row["ms"] for row in rows]
    assert statistics.median(ratios) == pytest.approx(1, rel=0.2)
    longest = max(row["tokens"] for row in rows)
    truth = statistics.median(row["ms"] for row in rows if row["tokens"] == longest)
    assert whole == pytest.approx(truth, rel=0.2)
    assert fixed + per_token * 128 == pytest.approx(planted_ms, rel=0.25)


@pytest.mark.alone
def test_the_device_is_as_large_as_it_is(told: Told) -> None:
    found = finding(told.tiers, "tier.device_tokens")
    assert found.low is not None
    assert found.high is not None
    assert found.low <= 64 * 16 <= found.high


def _prefills(stored: Stored, report: Report) -> list[list[robust.Point]]:
    """Computed tokens and milliseconds of prefill by the spans, in the rounds in which they were sent."""
    rows = stored.rows(
        "SELECT toFloat64(SpanAttributes['hitmap.tokens.computed']) AS tokens,"
        " 1e3 * toFloat64(SpanAttributes['gen_ai.latency.time_in_model_prefill']) AS ms FROM otel_traces"
        f" WHERE SpanAttributes['gen_ai.request.id'] LIKE '%{CANARY_MARK}-{report.run}-%' ORDER BY Timestamp"
    )
    cold = [(row["tokens"], row["ms"]) for row in rows][2:]  # after the introduction and the warm-up
    return [cold[first : first + 5] for first in range(0, len(cold), 5)]
