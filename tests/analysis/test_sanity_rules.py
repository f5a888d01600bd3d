"""One contradiction after the other, from both sides: the rule fires with the right figures, or it does not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

import pytest
from clickhouse_connect.driver.client import Client

from analysis.sanity.sources import sources
from analysis.sanity.words import because, sentence
from tests.analysis.sanity_bench import BEGIN, END, Bench
from tests.databases import Databases
from tests.field_reports.form import START, KvEvents, Responses, Scrapes, Server, ServerLog, Spans
from tests.field_reports.texts import llm_request, metrics, removed, response, stored


@pytest.fixture(scope="module")
def shared(databases: Databases) -> Iterator[Client]:
    with databases.migrated() as database:
        yield database.client


@pytest.fixture
def bench(shared: Client, request: pytest.FixtureRequest) -> Bench:
    return Bench(shared, request.node.name)


def test_hits_above_lookups(bench: Bench) -> None:
    counters = {"vllm:prefix_cache_queries": 1000, "vllm:prefix_cache_hits": 1200}
    bench.put("s", Scrapes(metrics(counters=counters)), Responses([response("a", 1000, 400)]))
    finding = bench.only("hits-above-lookups")
    assert (finding.said, finding.corrected) == (1.2, 0.4)
    assert sentence(finding) == "prefix_cache: 1,200 found, but only 1,000 looked up"


def test_hits_equal_to_lookups_are_a_fault_too(bench: Bench) -> None:
    bench.put(
        "s",
        Scrapes(metrics(counters={"vllm:prefix_cache_queries": 5000, "vllm:prefix_cache_hits": 5000})),
    )
    finding = bench.only("every-lookup-hits")
    assert (finding.said, finding.corrected) == (1, None)
    assert bench.find("hits-above-lookups") == []


@pytest.mark.parametrize(
    ("values", "fires"), [((1, 1, 1, 1, 1), True), ((1, 1, 0.99, 1, 1), False), ((1, 1), False)]
)
def test_a_gauge_stuck_at_one(bench: Bench, values: Sequence[float], fires: bool) -> None:
    gauge = {"vllm:gpu_prefix_cache_hit_rate": values}
    bench.put("s", Scrapes(metrics(gauges=gauge, scrapes=len(values))))
    assert bool(bench.find("every-lookup-hits")) == fires


def test_a_counter_that_is_not_there_is_no_zero(bench: Bench) -> None:
    bench.put(
        "s",
        Scrapes(metrics(counters={"vllm:prefix_cache_queries": 50_000, "vllm:num_preemptions": 0})),
    )
    assert bench.find("no-hit-at-all") == []
    assert bench.find("hits-above-lookups") == []
    assert bench.find("lookups-recounted") == []


def test_a_fall_without_a_restart(bench: Bench) -> None:
    bench.put(
        "s",
        Scrapes(
            metrics(
                counters={"lmcache:num_lookup_tokens": (100, 900, 50, 250)},
                gauges={"process_start_time_seconds": 1000},
                scrapes=4,
            ),
            kind="lmcache",
        ),
    )
    finding = bench.only("counter-fell")
    assert (finding.said, finding.corrected) == (250 - 100, 800 + 50 + 200)
    assert "lmcache:num_lookup_tokens_total" in sentence(finding)


def test_a_fall_at_a_restart_is_none(bench: Bench) -> None:
    gauges = {"process_start_time_seconds": (1000, 1000, 5000)}
    bench.put(
        "s",
        Scrapes(metrics(counters={"vllm:prompt_tokens": (100, 900, 50)}, gauges=gauges, scrapes=3)),
    )
    assert bench.find("counter-fell") == []


def test_a_counter_of_six_digits(bench: Bench) -> None:
    values = tuple(1_234_560 + step * 10 for step in (0, 1, 3, 4, 7, 9, 12))
    exact = tuple(value + 3 for value in values)
    names = {"llamacpp:prompt_tokens": values}
    bench.put(
        "s",
        Server("llama_cpp", "b11434"),
        Scrapes(metrics(counters=names, scrapes=7), kind="llama_cpp"),
    )
    bench.put(
        "exact",
        Scrapes(metrics(counters={"llamacpp:prompt_tokens": exact}, scrapes=7), kind="llama_cpp"),
    )
    (finding,) = bench.find("counter-of-six-digits", "s", "exact")
    assert (finding.server, finding.said, finding.corrected) == ("s", 120, None)
    assert (
        sentence(finding) == "llamacpp:prompt_tokens_total moves in steps of 10 and no finer (1 such series)"
    )
    assert "six significant digits" in because(finding.causes[0])


def test_seconds_that_are_milliseconds(bench: Bench) -> None:
    text = "# TYPE vllm:time_to_first_token_seconds histogram\n" + "\n".join(
        f"vllm:time_to_first_token_seconds_{part} {{}}" for part in ("sum", "count")
    )
    texts = [text.format(0, 0), text.format(1000, 10)]
    spans = Spans([llm_request(f"ms-{n}", 100, prefill_s=0.1) for n in range(10)])
    bench.put("s", Scrapes(texts), spans)
    finding = bench.only("milliseconds-for-seconds")
    assert (finding.said, finding.corrected) == (100.0, pytest.approx(0.1))
    bench.put("right", Scrapes([text.format(0, 0), text.format(1, 10)]), spans)
    assert bench.find("milliseconds-for-seconds", "right") == []


def test_prompts_on_their_way_are_not_counted_twice(bench: Bench) -> None:
    """Looked up when admitted, counted as prompts later: with long prompts in flight that is a difference."""
    counters = {
        "vllm:prefix_cache_queries": 400_000,
        "vllm:prompt_tokens": 300_000,
        'vllm:request_success{finished_reason="stop"}': 3,
    }
    bench.put("s", Scrapes(metrics(counters=counters, gauges={"vllm:num_requests_running": 1})))
    assert bench.find("lookups-recounted") == []
    bench.put("idle", Scrapes(metrics(counters=counters, gauges={"vllm:num_requests_running": 0})))
    assert len(bench.find("lookups-recounted", "idle")) == 1


def test_requests_that_nothing_told_of(bench: Bench) -> None:
    spans = Spans([llm_request(f"seen-{n}", 1000) for n in range(10)])
    bench.put(
        "s",
        Server("vllm", "0.32.0"),
        Scrapes(metrics(counters={"vllm:prompt_tokens": 14_000})),
        spans,
    )
    finding = bench.only("counted-beyond-requests")
    assert finding.evidence == {"counted": 14_000, "known": 10_000, "requests": 10, "unseen": 4000}
    assert "gave up" in finding.causes[0].text


def test_a_few_tokens_on_their_way_are_no_finding(bench: Bench) -> None:
    spans = Spans([llm_request(f"seen-{n}", 1000) for n in range(10)])
    bench.put("s", Scrapes(metrics(counters={"vllm:prompt_tokens": 12_000})), spans)
    assert bench.find("counted-beyond-requests") == []


@pytest.mark.parametrize(
    ("kind", "told", "said"),
    [
        (
            "vllm",
            "published to tcp://a:1, replay at tcp://a:2",
            "its replay endpoint did not have them either",
        ),
        (
            "engine",
            "published to tcp://a:1, replay at tcp://a:2",
            "its replay endpoint did not have them either",
        ),
        (
            "vllm",
            "published to tcp://a:1, without replay: what is lost stays lost",
            "it tells of no replay endpoint",
        ),
    ],
)
def test_gone_kv_events(bench: Bench, kind: str, told: str, said: str) -> None:
    signals = [("KV-cache events", True, told, "")]
    bench.put("s", Server(kind, signals=signals), KvEvents([[stored(1)], [stored(2)]], numbers=(0, 4)))
    finding = bench.only("kv-event-gaps")
    assert sentence(finding).startswith("1 gap, 3 messages lost, the last at ")
    assert sentence(finding).endswith(f" UTC; {said}")
    assert "buffer_steps" in finding.rule.do
    assert [cause.text.partition(":")[0] for cause in finding.causes] == (
        ["the fault lose_events is injected"] if kind == "engine" else []
    )


def test_a_tier_that_evicts_and_does_not_say_so(bench: Bench) -> None:
    scrapes = Scrapes(metrics(counters={"lmcache:local_cpu_evict_keys_count": 40}), kind="lmcache")
    host = [[stored(n, tokens=n, medium="cpu", size=256)] for n in range(1, 6)]
    bench.put("s", scrapes, KvEvents(host))
    bench.put("tells", scrapes, KvEvents([*host, [removed(1, medium="cpu")]]))
    (finding,) = bench.find("tier-without-removals", "s", "tells")
    assert (finding.server, finding.said, finding.evidence["evicted"]) == ("s", 5, 40)


def test_no_hit_is_told_but_repeats_are_faster(bench: Bench) -> None:
    lines = [
        {**response(f"fast-{n}", 4000, 0, template="t"), "ttft_s": 2.0 if n == 0 else 0.1} for n in range(5)
    ]
    spans = Spans([llm_request(f"fast-{n}", 4000, prefill_s=2.0 if n == 0 else 0.1) for n in range(5)])
    bench.put("s", spans, Responses(lines))
    finding = bench.only("no-hit-though-faster")
    assert (finding.evidence["first_ms"], finding.evidence["again_ms"]) == (2000, 100)
    assert (finding.said, finding.corrected) == (0, None)


def test_a_mean_of_ratios(bench: Bench) -> None:
    text = (
        "# TYPE lmcache:request_cache_hit_rate histogram\nlmcache:request_cache_hit_rate_sum {}\n"
        "lmcache:request_cache_hit_rate_count {}\n# TYPE lmcache:num_lookup_tokens counter\n"
        "lmcache:num_lookup_tokens_total {}\n# TYPE lmcache:num_lookup_hits counter\nlmcache:num_lookup_hits_total {}"
    )
    texts = [
        text.format(0, 0, 0, 0),
        text.format(9, 10, 10_900, 900),
    ]  # nine short ones hit, a long one does not
    bench.put("s", Scrapes(texts, kind="lmcache"))
    finding = bench.only("mean-of-ratios")
    assert (finding.said, finding.corrected) == (pytest.approx(0.9), pytest.approx(900 / 10_900))


def test_a_prediction_is_no_hit(bench: Bench) -> None:
    parts = (
        ("dynamo_component_router_kv_hit_rate", 8, 10),
        ("dynamo_frontend_cached_tokens", 3000, 10),
        ("dynamo_frontend_input_sequence_tokens", 10_000, 10),
    )
    text = "\n".join(
        f"# TYPE {name} histogram\n{name}_sum {{{n}[0]}}\n{name}_count {{{n}[1]}}"
        for n, (name, *_) in enumerate(parts)
    )
    texts = [text.format(*([(0, 0)] * 3)), text.format(*((total, count) for _, total, count in parts))]
    bench.put("s", Server("dynamo", "0.7.0"), Scrapes(texts, kind="dynamo"))
    finding = bench.only("predicted-hits")
    assert (finding.said, finding.corrected) == (pytest.approx(0.8), pytest.approx(0.3))


def test_a_ratio_without_counters(bench: Bench) -> None:
    gauge = Scrapes(metrics(gauges={"vllm:gpu_prefix_cache_hit_rate": (0.2, 0.6)}))
    bench.put("s", Server("vllm", "0.6.3"), gauge)
    finding = bench.only("ratio-without-counters")
    assert (finding.said, finding.corrected) == (0.6, None)
    assert [cause.source for cause in finding.causes] == ["vLLM pull request 15458"]


@pytest.mark.parametrize(("hits", "corrected"), [(None, None), (500, 0.05)])
def test_the_hit_rate_of_log_lines(bench: Bench, hits: int | None, corrected: float | None) -> None:
    written = datetime.fromtimestamp(START).strftime("%m-%d %H:%M:%S")
    line = (
        f"(APIServer pid=1) INFO {written} [loggers.py:1] Engine 000: Avg prompt throughput: 1.0 tokens/s, "
        "Avg generation throughput: 1.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%,"
        " Prefix cache hit rate: 80.0%"
    )
    bench.put("s", ServerLog([line], kind="vllm"))
    if hits is not None:
        counters = {"vllm:prefix_cache_queries": 10_000, "vllm:prefix_cache_hits": hits}
        bench.put("s", Scrapes(metrics(counters=counters)))
    finding = bench.only("log-hit-rate")
    assert (finding.said, finding.corrected) == (0.8, corrected)


def test_scrapes_that_failed(bench: Bench) -> None:
    texts = [*metrics(counters={"vllm:prompt_tokens": 10}), None, "vllm:prompt_tokens_total 20"]
    bench.put("s", Scrapes(texts))
    evidence = bench.only("scrapes-failed").evidence
    assert (evidence["failed"], evidence["samples"]) == (1, 4)


def test_a_server_that_ended_has_no_gap(bench: Bench) -> None:
    texts = metrics(counters={"vllm:prompt_tokens": 10})
    bench.put("gone", Scrapes([*texts, None]))
    bench.put("back and gone", Scrapes([*texts, None, "vllm:prompt_tokens_total 20", None]))
    found = bench.find("scrapes-failed", "gone", "back and gone")
    assert [(finding.server, finding.evidence["failed"]) for finding in found] == [("back and gone", 1)]


def test_versions_choose_causes(bench: Bench) -> None:
    counters = {
        "vllm:prefix_cache_queries": 20_000,
        "vllm:prefix_cache_hits": 9000,
        "vllm:prompt_tokens": 10_000,
    }
    for name, version in (("old", "0.10.2"), ("new", "0.20.0"), ("newest", "0.40.0"), ("hidden", "")):
        bench.put(name, Server("vllm", version), Scrapes(metrics(counters=counters)))
    found = bench.find("lookups-recounted", "old", "new", "newest", "hidden")
    assert {finding.server: len(finding.causes) for finding in found} == {
        "old": 2,
        "new": 1,
        "newest": 0,
        "hidden": 2,
    }


def test_what_could_not_be_asked_for_and_came_is_not_unseen(bench: Bench) -> None:
    untold = ("request spans (latency by layer)", "cached tokens by request", "KV-cache events")
    signals = [(name, None, "cannot be asked", "--flag") for name in untold]
    bench.put(
        "s",
        Server("vllm", "0.32.0", {}, signals),
        Responses([response("came", 100, 50)]),
        KvEvents([[stored(1)]]),
    )
    (server,) = sources(bench.client, [f"{bench.test} s"], BEGIN, END)
    assert [signal.signal for signal in server.unseen] == ["request spans (latency by layer)"]


def test_reuse_in_blocks_and_of_lmcache(bench: Bench) -> None:
    blocks = {"trtllm_kv_cache_reused_blocks": 300, "trtllm_kv_cache_missed_blocks": 100}
    bench.put("s", Scrapes(metrics(counters=blocks), kind="trtllm"))
    tokens = {"lmcache:num_lookup_tokens": 1000, "lmcache:num_lookup_hits": 250}
    bench.put("cache", Scrapes(metrics(counters=tokens), kind="lmcache"))
    names = [f"{bench.test} s", f"{bench.test} cache"]
    trtllm, lmcache = sources(bench.client, names, BEGIN, END)
    assert [(line.ratio, line.unit) for line in trtllm.reuse] == [(0.75, "blocks")]
    assert [(line.ratio, line.unit) for line in lmcache.reuse] == [(0.25, "tokens")]
