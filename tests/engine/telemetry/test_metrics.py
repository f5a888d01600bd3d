"""The metrics: what is counted, and whether the collector's own reader understands the text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemodel.layers import Tier
from collector.dialects.engine.metrics import METRICS
from collector.prometheus import parse
from engine.cache.stats import CacheStats, Counts, TierStats
from engine.config import EngineConfig
from engine.core.stepper import Stats
from engine.faults import Faults
from engine.observer import Step
from engine.request import FinishReason, TokenSources
from engine.telemetry import Telemetry, TelemetryConfig, metrics
from engine.telemetry.exposition import Family
from tests.engine.telemetry.made import request

STEP = Step(0, 4_000_000, 3_000_000, 100, 3, 400, 4, 2, 1, {"host": 2}, {"host": 4096})
TIERS = {Tier.DEVICE: TierStats(8, 2, 5), Tier.REMOTE: TierStats(0, 0, 0)}


def samples(telemetry: Telemetry) -> dict[str, float]:
    """`name{label=value}` without the prefix -> value."""
    found = {}
    for sample in parse(telemetry.exposition()).samples:
        labels = ",".join(f"{name}={value}" for name, value in sample.labels)
        found[sample.name.removeprefix(metrics.PREFIX) + (f"{{{labels}}}" if labels else "")] = sample.value
    return found


def test_a_request_that_ended_is_counted_once_with_all_its_tokens() -> None:
    telemetry = Telemetry(EngineConfig())
    telemetry.request_started(request())
    telemetry.request_finished(request(preemptions=2, sources=TokenSources(32, 16, 16, 36, 9)))
    told = samples(telemetry)
    assert told["requests_received_total"] == 1
    assert told["requests_finished_total{reason=length}"] == 1
    assert told["requests_finished_total{reason=abort}"] == 0
    assert told["prompt_tokens_total"] == told["prefix_cache_queries_total"] == 100
    by_source = [told[f"prompt_tokens_by_source_total{{source={s}}}"] for s in ("device", "host", "remote")]
    assert by_source == [32, 16, 16]
    assert told["prompt_tokens_by_source_total{source=computed}"] == 36
    assert told["prefix_cache_hits_total"] == 32
    assert told["external_prefix_cache_queries_total"] == 68
    assert told["external_prefix_cache_hits_total"] == 32
    assert (told["generation_tokens_total"], told["recomputed_tokens_total"]) == (7, 9)
    assert told["preemptions_total"] == 2
    assert told["time_to_first_token_seconds_count"] == 1
    assert told["e2e_request_latency_seconds_sum"] == pytest.approx(0.126)
    assert told["request_layer_seconds_sum{layer=prefill}"] == pytest.approx(0.031)


def test_a_request_given_up_in_the_queue_asked_no_cache() -> None:
    telemetry = Telemetry(EngineConfig())
    passed = [("frontend", 5), ("queue", 7), ("other", 1)]
    telemetry.request_finished(
        request(passed=passed, output=[], sources=TokenSources(), finish_reason=FinishReason.ABORT)
    )
    told = samples(telemetry)
    assert (told["prompt_tokens_total"], told["prefix_cache_queries_total"]) == (100, 0)
    assert told["requests_finished_total{reason=abort}"] == 1
    assert "time_to_first_token_seconds_count" not in told


def test_a_request_that_reads_no_cache_asked_none() -> None:
    telemetry = Telemetry(EngineConfig())
    telemetry.request_finished(request(sources=TokenSources(computed=100), reads_off=True))
    told = samples(telemetry)
    assert (told["prefix_cache_queries_total"], told["external_prefix_cache_queries_total"]) == (0, 0)


def test_a_step_is_counted() -> None:
    telemetry = Telemetry(EngineConfig())
    for _ in range(3):
        telemetry.step_done(STEP)
    told = samples(telemetry)
    assert told["steps_total"] == told["step_seconds_count"] == told["model_seconds_count"] == 3
    assert (told["step_tokens_total{phase=prefill}"], told["step_tokens_total{phase=decode}"]) == (300, 9)
    assert (told["kv_loaded_blocks_total{tier=host}"], told["kv_loaded_bytes_total{tier=host}"]) == (6, 12288)
    assert told["kv_loaded_blocks_total{tier=remote}"] == 0


def test_what_the_core_knows_is_asked_when_it_is_read() -> None:
    telemetry = Telemetry(EngineConfig())
    counts = Counts(lost=16, load_failures=1, disk_failures=5)
    counts.evictions["device"], counts.dropped["device"] = 3, 2
    stats = [Stats(3, 2, 1, 9, 0, 4, 4096, CacheStats(TIERS, counts))]
    assert "num_requests_running" not in samples(telemetry)
    telemetry.watch(lambda: stats[-1])
    told = samples(telemetry)
    assert [told[f"num_requests_{state}"] for state in ("running", "waiting", "loading")] == [3, 2, 1]
    assert [told[f"kv_{name}blocks{{tier=device}}"] for name in ("", "used_", "cached_")] == [8, 2, 5]
    assert told["kv_cache_usage_perc{tier=device}"] == 0.25
    assert "kv_cache_usage_perc{tier=remote}" not in told  # a tier that is off has no share
    assert told["kv_gathered_bytes_total"] == 4096
    assert (told["kv_evicted_blocks_total{tier=device}"], told["kv_lost_tokens_total"]) == (3, 16)
    assert (told["kv_dropped_blocks_total{tier=device}"], told["kv_disk_failures_total"]) == (2, 5)


def test_what_it_is_and_which_faults_are_on() -> None:
    faults = Faults()
    telemetry = Telemetry(EngineConfig(served_model_name='a"b\\c\nd', block_size=32), faults=faults)
    faults.add("evict=0.5")
    told = samples(telemetry)
    assert (told["faults_active{kind=evict}"], told["faults_active{kind=delay_ms}"]) == (1, 0)
    info = next(s for s in parse(telemetry.exposition()).samples if s.name == f"{metrics.PREFIX}info")
    assert dict(info.labels)["model"] == 'a"b\\c\nd'
    assert dict(info.labels)["block_size"] == "32"


@given(st.lists(st.floats(0, 400, allow_nan=False), max_size=50))
def test_a_histogram_counts_every_value_where_it_belongs(values: list[float]) -> None:
    counted = metrics.Metrics()
    for value in values:
        counted._observe(metrics.E2E, value)
    told = {(s.name, dict(s.labels).get("le")): s.value for s in parse(counted.text({})).samples}
    name = metrics.E2E.name
    for bound in metrics.E2E.buckets if values else ():
        at = next(le for found, le in told if found == f"{name}_bucket" and le and float(le) == bound)
        assert told[f"{name}_bucket", at] == sum(value <= bound for value in values)
    if values:
        assert told[f"{name}_bucket", "+Inf"] == told[f"{name}_count", None] == len(values)
        assert told[f"{name}_sum", None] == pytest.approx(sum(values))


def test_the_collector_knows_every_metric_and_no_other() -> None:
    families = {family.name: family for family in vars(metrics).values() if isinstance(family, Family)}
    known = {alias.raw: metric for metric in METRICS for alias in metric.aliases}
    assert set(known) == set(families)
    assert {name: metric.kind for name, metric in known.items()} == {
        name: family.kind for name, family in families.items()
    }


def test_without_endpoints_nothing_is_opened() -> None:
    telemetry = Telemetry(EngineConfig(), TelemetryConfig())
    telemetry.kv_events([])
    assert telemetry.kv_event_sources() == {}
    assert not any(name.startswith(("traces", "kv_event")) for name in samples(telemetry))
    telemetry.close()
