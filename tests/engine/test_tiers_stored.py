"""What the collector stores of a live engine whose KV is spread over device, host and disk, in too small a pool: loads
and preemptions, counted from every side."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from analysis.sanity.examine import examine
from cachemodel.layers import SERVING_LAYERS, Tier
from engine.telemetry.names import SPANS
from store.embedded import Embedded
from tests.engine.serving.live import settings
from tests.engine.stored import Driver, Stored, database, played

STORY = "The library keeps every book that was ever printed in this town, and a few that never were. " * 6
LOADED = (Tier.HOST, Tier.REMOTE)


def drive(driver: Driver) -> None:
    """Six long prompts to and fro through a device that holds three of them, then all at once until it preempts."""
    for number in (*range(6), *reversed(range(6)), *range(6)):
        driver.ask(f"{number}: {STORY}", 4)
    driver.ask_all([f"{number % 6}: {STORY} Again, {number}." for number in range(18)], 60)


@pytest.fixture(scope="module")
def stored(store_server: Embedded, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stored]:
    config = settings(
        device_blocks=36, host_blocks=12, disk_blocks=400, max_num_batched_tokens=64, max_load_blocks=4
    )
    with database(store_server, "engine_tiers") as dsn:
        yield played(dsn, tmp_path_factory.mktemp("tiers"), config, drive)


def test_the_pool_was_too_small(stored: Stored) -> None:
    """Else nothing here was tested."""
    told = stored.counters
    assert told["preemptions_total"] > 0
    assert all(told[f"kv_loaded_blocks_total{{tier={tier}}}"] > 20 for tier in LOADED)


def test_preemptions_and_what_they_cost_are_on_the_rows(stored: Stored) -> None:
    counted = stored.counters["preemptions_total"], stored.counters["recomputed_tokens_total"]
    told = stored.one(
        "SELECT sum(preemptions), sum(recomputed_tokens), countIf(preemptions = 0) FROM requests"
    )
    assert told[:2] == counted
    assert told[2] >= 18  # those that came one after the other


@pytest.mark.parametrize("tier", LOADED)
def test_who_has_tokens_of_a_tier_has_waited_for_it(stored: Stored, tier: Tier) -> None:
    rows = stored.rows(f"SELECT {tier}_us AS us FROM requests WHERE {tier}_tokens > 0")
    assert len(rows) >= 4
    assert all(row["us"] > 0 for row in rows)


@pytest.mark.parametrize("tier", LOADED)
def test_blocks_of_load_spans_are_the_blocks_counted_and_scraped(stored: Stored, tier: Tier) -> None:
    for attribute, metric, canonical in (
        ("blocks", "kv_loaded_blocks", "kv_load.blocks"),
        ("bytes", "kv_loaded_bytes", "kv_load.bytes"),
    ):
        (spans,) = stored.one(
            f"SELECT sum(toUInt64OrZero(SpanAttributes['hitmap.{attribute}'])) FROM otel_traces"
            f" WHERE SpanName = '{SPANS[tier]}'"
        )
        (scraped,) = stored.one(
            "SELECT max(value) FROM samples JOIN (SELECT DISTINCT fingerprint, metric, labels FROM series"
            f" WHERE metric = '{canonical}') AS known USING (fingerprint)"
            f" WHERE metric = '{canonical}' AND labels['tier'] = '{tier}'"
        )
        assert spans == scraped == stored.counters[f"{metric}_total{{tier={tier}}}"]


def test_the_layers_add_up_to_the_microsecond(stored: Stored) -> None:
    layers = " + ".join(layer.column for layer in SERVING_LAYERS if layer.name != "response")
    assert stored.one(f"SELECT count(), countIf({layers} = e2e_us) FROM requests") == (36, 36)


def test_usage_rows_and_counters_agree_to_the_token(stored: Stored) -> None:
    rows = {row["request_id"]: row for row in stored.rows("SELECT * FROM requests")}
    assert set(rows) == set(stored.driver.usages)
    for request_id, answer in stored.driver.usages.items():
        tiers, row = answer["sglext"]["cached_tokens_details"], rows[request_id]
        told = (tiers["device"], tiers["host"], tiers["storage"], answer["usage"]["prompt_tokens"])
        columns = ("device_tokens", "host_tokens", "remote_tokens", "prompt_tokens")
        assert told == tuple(row[column] for column in columns)
    for tier in Tier:
        by_source = stored.counters[f"prompt_tokens_by_source_total{{source={tier}}}"]
        assert by_source == sum(row[f"{tier}_tokens"] for row in rows.values())


def test_every_computed_token_is_in_one_step_also_those_of_the_preempted(stored: Stored) -> None:
    """A decode that is resumed begins with a prefill, in which the token comes that a decode step would have given."""
    told = stored.counters
    prefill, decode = (told[f"step_tokens_total{{phase={phase}}}"] for phase in ("prefill", "decode"))
    computed = told["prompt_tokens_by_source_total{source=computed}"] + told["recomputed_tokens_total"]
    generated = told["generation_tokens_total"] - 36  # the first comes with the last token of its prompt
    assert prefill + decode == computed + generated
    assert 0 <= prefill - computed <= told["preemptions_total"]


def test_no_sanity_rule_finds_anything_wrong(stored: Stored) -> None:
    """Nor that nobody says who was preempted: the spans do."""
    now = datetime.now(UTC)
    examination = examine(stored.client, ["e"], now - timedelta(hours=1), now + timedelta(minutes=1))
    assert examination.unanswered == ()
    assert [(finding.rule.id, finding.evidence) for finding in examination.findings] == []
