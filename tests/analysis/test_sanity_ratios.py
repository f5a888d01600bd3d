"""Which ratio is right: each request once, of the same tiers, never above 1; and hits told in other words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from clickhouse_connect.driver.client import Client

from analysis.sanity.examine import examine
from analysis.sanity.model import Rule
from analysis.sanity.words import figures
from tests.analysis.sanity_bench import BEGIN, END, Bench
from tests.databases import Databases
from tests.field_reports.form import KvEvents, Responses, Scrapes, Server
from tests.field_reports.texts import TWICE, VLLM, metrics, response

LOOKED_UP, FOUND = "vllm:prefix_cache_queries", "vllm:prefix_cache_hits"
ASKED, FOUND_OUTSIDE = "vllm:external_prefix_cache_queries", "vllm:external_prefix_cache_hits"
PROMPT, CACHED = "vllm:prompt_tokens", "vllm:prompt_tokens_cached"


@pytest.fixture(scope="module")
def shared(databases: Databases) -> Iterator[Client]:
    with databases.migrated() as database:
        yield database.client


@pytest.fixture
def bench(shared: Client, request: pytest.FixtureRequest) -> Bench:
    return Bench(shared, request.node.name)


def vllm(version: str, counters: Mapping[str, float]) -> tuple[Server, Scrapes]:
    """A vLLM of this version with these counters."""
    return Server("vllm", version, VLLM), Scrapes(metrics(counters=counters))


def by_source(computed: float, device: float, external: float) -> dict[str, float]:
    """vLLM's counter of prompt tokens by source, each request once."""
    parts = {"local_compute": computed, "local_cache_hit": device, "external_kv_transfer": external}
    return {f'vllm:prompt_tokens_by_source{{source="{source}"}}': value for source, value in parts.items()}


# -- no corrected ratio above 1


@pytest.mark.parametrize(
    ("corrected", "unit", "given"),
    [
        ("2.0", "ratio", None),
        ("1.0001", "ratio", None),
        ("-0.1", "ratio", None),
        ("nan", "ratio", None),
        ("inf", "tokens", None),
        ("1", "ratio", 1.0),
        ("0", "ratio", 0.0),
        ("0.667", "ratio", 0.667),
        ("2.0", "tokens", 2.0),
    ],
)
def test_a_ratio_that_cannot_be_is_never_called_right(
    bench: Bench, corrected: str, unit: str, given: float | None
) -> None:
    sql = f"SELECT arrayJoin({{servers:Array(String)}}) AS server, 0.667 AS said, {corrected} AS corrected"
    made = Rule("made", "It is.", "wrong", sql, "", "Do.", unit=unit, said="hit ratio", corrected="how")
    (finding,) = examine(bench.client, ["s"], BEGIN, END, [made]).findings
    assert finding.corrected == given
    assert ("right unknown" in figures(finding)) == (given is None)


# -- external hits that are counted again


def test_external_hits_that_may_be_counted_again_correct_nothing(bench: Bench) -> None:
    counters = {LOOKED_UP: 30_000, FOUND: 0, ASKED: 90_000, FOUND_OUTSIDE: 60_000}
    bench.put("s", *vllm("0.20.0", counters))
    finding = bench.only("external-lookups-recounted")
    assert (finding.said, finding.corrected) == (pytest.approx(2 / 3), None)


def test_external_hits_by_source_are_right(bench: Bench) -> None:
    counters = {LOOKED_UP: 30_000, FOUND: 6000, PROMPT: 30_000, ASKED: 90_000, FOUND_OUTSIDE: 60_000}
    bench.put("s", *vllm("0.20.0", counters | by_source(8000, 6000, 16_000)))
    finding = bench.only("external-lookups-recounted")
    assert (finding.evidence["left_over"], finding.corrected) == (24_000, pytest.approx(2 / 3))


@pytest.mark.parametrize(
    ("version", "asked", "corrected"),
    [
        ("0.12.0", 30_000, 0.5),  # all of every prompt, once
        ("0.12.0", 60_000, None),  # more than once
        ("0.20.0", 30_000, None),  # what was left over, three times
        ("", 30_000, None),  # either
    ],
)
def test_whether_external_lookups_hold_local_hits_or_tries(
    bench: Bench, version: str, asked: int, corrected: float | None
) -> None:
    counters = {LOOKED_UP: 30_000, FOUND: 20_000, PROMPT: 30_000, ASKED: asked, FOUND_OUTSIDE: 5000}
    bench.put("s", *vllm(version, counters))
    assert bench.only("external-lookups-recounted").corrected == corrected


# -- the ratio of the device is not that of all tiers

RECOUNTED = {LOOKED_UP: 90_000, FOUND: 45_000, PROMPT: 30_000, ASKED: 45_000, FOUND_OUTSIDE: 27_000}
TIERS = {
    'vllm:prompt_tokens_cached_by_source{source="device"}': 12_000,
    'vllm:prompt_tokens_cached_by_source{source="host"}': 9000,
}


@pytest.mark.parametrize(
    ("told", "corrected"),
    [
        ({CACHED: 21_000}, None),  # 70% of all tiers
        ({CACHED: 21_000} | by_source(9000, 12_000, 9000), 0.4),
        (TIERS, 0.4),
        ({CACHED: 12_000, FOUND_OUTSIDE: 0}, 0.4),  # nothing outside, so all is the device's
    ],
)
def test_lookups_of_the_device_are_not_corrected_by_all_tiers(
    bench: Bench, told: dict[str, float], corrected: float | None
) -> None:
    bench.put("s", *vllm("0.20.0", RECOUNTED | told))
    finding = bench.only("lookups-recounted")
    assert (finding.said, finding.corrected) == (0.5, corrected)


@pytest.mark.parametrize(("outside", "corrected"), [(0, 0.7), (9000, None)])
def test_nor_by_responses_which_tell_of_all_tiers(
    bench: Bench, outside: int, corrected: float | None
) -> None:
    responses = Responses([response(f"tiers-{outside}-{n}", 1000, 700) for n in range(5)])
    counters = {LOOKED_UP: 5000, FOUND: 6000, FOUND_OUTSIDE: outside}
    bench.put("s", *vllm("0.10.2", counters | {"vllm:num_preemptions": 1}), responses)
    assert bench.only("hits-above-lookups").corrected == corrected
    assert bench.only("preemptions-read-as-hits").corrected == corrected
    bench.put("all", *vllm("0.10.2", counters | {FOUND: 5000}), responses)
    (finding,) = bench.find("every-lookup-hits", "all")
    assert finding.corrected == corrected


# -- hits that only the connector has

OUTSIDE = {LOOKED_UP: 50_000, FOUND: 0, ASKED: 50_000, FOUND_OUTSIDE: 40_000}


def test_hits_of_the_connector_are_hits(bench: Bench) -> None:
    bench.put("s", *vllm("0.20.0", OUTSIDE))
    bench.put("none", *vllm("0.20.0", OUTSIDE | {FOUND_OUTSIDE: 0}))
    (finding,) = bench.find("no-hit-at-all", "s", "none")
    assert finding.server == "none"


def test_hits_of_the_connector_where_prompts_come_again(bench: Bench) -> None:
    bench.put("s", *vllm("0.20.0", OUTSIDE), KvEvents(TWICE))
    bench.put("none", *vllm("0.20.0", OUTSIDE | {FOUND_OUTSIDE: 0}), KvEvents(TWICE))
    (finding,) = bench.find("no-hit-though-repeated", "s", "none")
    assert finding.server == "none"


@pytest.mark.parametrize(
    ("more", "corrected"),
    [
        ({PROMPT: 50_000}, 0.8),
        ({PROMPT: 10_000}, None),  # looked up five times over
        ({PROMPT: 50_000, CACHED: 38_000}, 0.76),
        ({}, None),
    ],
)
def test_responses_that_say_none_while_the_connector_hits(
    bench: Bench, more: dict[str, float], corrected: float | None
) -> None:
    responses = Responses([response(f"none-{len(more)}-{n}-{corrected}", 1000, 0) for n in range(5)])
    bench.put("s", *vllm("0.20.0", OUTSIDE | more), responses)
    finding = bench.only("responses-say-none")
    assert (finding.said, finding.corrected) == (0, corrected)
    assert finding.evidence["counted"] == 40_000


# -- other servers' words for the same

CACHED_OF = {
    "sglang": ('sglang:cached_tokens{cache_source="device"}', "sglang:prompt_tokens"),
    "trtllm": ("trtllm_prompt_cached_tokens", "trtllm_prompt_tokens"),
}


@pytest.mark.parametrize("kind", ["sglang", "trtllm"])
def test_more_cached_than_prompts_have(bench: Bench, kind: str) -> None:
    cached, prompt = CACHED_OF[kind]
    scrapes = Scrapes(metrics(counters={cached: 99_000, prompt: 90_000}), kind=kind)
    bench.put("s", scrapes, Responses([response(f"above-{kind}", 1000, 400)]))
    finding = bench.only("hits-above-lookups")
    assert (finding.said, finding.corrected) == (1.1, 0.4)
    assert finding.evidence["cache"] == "all tiers"


@pytest.mark.parametrize(
    ("kind", "counters"),
    [
        ("sglang", dict.fromkeys(CACHED_OF["sglang"], 5000)),
        ("trtllm", dict.fromkeys(CACHED_OF["trtllm"], 5000)),
        ("llama_cpp", {"llamacpp:prompt_tokens": 0, "llamacpp:prompt_tokens_cached": 5000}),
    ],
)
def test_all_of_all_prompts_cached(bench: Bench, kind: str, counters: dict[str, float]) -> None:
    bench.put("s", Scrapes(metrics(counters=counters), kind=kind))
    finding = bench.only("every-lookup-hits")
    assert (finding.said, finding.corrected, finding.evidence["what"]) == (1, None, "cached tokens")
    assert bench.find("hits-above-lookups") == []


@pytest.mark.parametrize(
    ("kind", "gauge", "counters"),
    [
        ("sglang", "sglang:cache_hit_rate", dict(zip(CACHED_OF["sglang"], (3000, 10_000), strict=True))),
        ("trtllm", "trtllm_kv_cache_hit_rate", dict(zip(CACHED_OF["trtllm"], (3000, 10_000), strict=True))),
        ("trtllm", "trtllm_kv_cache_iter_reuse_rate", {}),
        ("dynamo", "dynamo_component_kvstats_gpu_prefix_cache_hit_rate", {}),
    ],
)
def test_a_gauge_of_any_server_stuck_at_one(
    bench: Bench, kind: str, gauge: str, counters: dict[str, float]
) -> None:
    bench.put("s", Scrapes(metrics(counters=counters, gauges={gauge: 1}, scrapes=5), kind=kind))
    moving = (1, 1, 0.98, 1, 1)
    bench.put("moving", Scrapes(metrics(counters=counters, gauges={gauge: moving}, scrapes=5), kind=kind))
    (finding,) = bench.find("every-lookup-hits", "s", "moving")
    assert (finding.server, finding.evidence["what"]) == ("s", gauge)
    assert finding.corrected == (0.3 if counters else None)


def test_a_gauge_is_not_corrected_by_counters_that_cannot_be(bench: Bench) -> None:
    counters = dict(zip(CACHED_OF["sglang"], (99_000, 90_000), strict=True))
    gauges = {"sglang:cache_hit_rate": (0.1, 0.9)}
    bench.put("s", Scrapes(metrics(counters=counters, gauges=gauges), kind="sglang"))
    finding = bench.only("hit-gauge-differs")
    assert (finding.said, finding.corrected) == (0.9, None)
