"""What the collector stores of a live engine: every layer, and to the token what the engine itself counted."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from analysis.misses.explain import explain
from analysis.misses.parts import HITS
from analysis.misses.report import build
from analysis.sanity.examine import examine
from analysis.sanity.sources import sources
from cachemodel.layers import SERVING_LAYERS
from cachemodel.observed import SPAN_COUNTERS
from engine.telemetry.names import PARTS, SPANS
from store.embedded import Embedded
from tests.engine.serving.live import settings
from tests.engine.stored import Driver, Stored, database, played

BLOCK = 16
SHARED = "You are a patient assistant who answers in short and plain sentences. " * 6
TOKENS = (
    "prompt_tokens",
    "cached_tokens",
    "device_tokens",
    "host_tokens",
    "remote_tokens",
    "completion_tokens",
)


def drive(driver: Driver) -> None:
    """One after the other with clients that leave, then all at once; prompts share beginnings."""
    for number in range(6):
        driver.ask(f"{SHARED} Question {number % 3}: what is {number} times {number}?", 5 + number)
        driver.leave(f"Left alone {number}. {SHARED if number % 2 else ''}")
    driver.server.engine.reset_prefix_cache()
    driver.ask_all([f"{SHARED} At once, question {number % 5}." for number in range(20)])


@pytest.fixture(scope="module")
def stored(store_server: Embedded, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stored]:
    with database(store_server, "engine_stored") as dsn:
        yield played(dsn, tmp_path_factory.mktemp("stored"), settings(), drive)


def test_attach_recognises_it_and_sees_everything_that_is_switched_on(stored: Stored) -> None:
    assert (stored.detection.kind, stored.detection.models) == ("engine", ("tiny",))
    assert stored.detection.facts["block_size"] == "16"
    seen = {row.signal: row.seen for row in stored.detection.capabilities}
    assert [signal for signal, told in seen.items() if not told] == ["time to load KV from disk"]


def test_every_request_is_one_row_also_those_that_were_left(stored: Stored) -> None:
    assert stored.one("SELECT count(), uniqExact(request_id) FROM requests WHERE dialect = 'engine'") == (
        32,
        32,
    )
    assert stored.one("SELECT count() FROM requests WHERE server != 'e' OR model != 'tiny'") == (0,)
    reasons = "SELECT finish_reason, count() AS n FROM requests GROUP BY finish_reason ORDER BY n"
    assert [tuple(row.values()) for row in stored.rows(reasons)] == [("abort", 6), ("length", 26)]


def test_the_layers_are_all_there_and_add_up_to_the_microsecond(stored: Stored) -> None:
    layers = [layer.column for layer in SERVING_LAYERS if layer.name != "response"]
    whole = f"SELECT count() FROM requests WHERE {' + '.join(layers)} = e2e_us"
    assert stored.one(whole) == (32,)
    in_ttft = [layer.column for layer in SERVING_LAYERS if layer.in_ttft and layer.name != "response"]
    assert stored.one(f"SELECT count() FROM requests WHERE {' + '.join(in_ttft)} = ttft_us") == (32,)
    assert stored.one(
        "SELECT countIf(prefill_us > 0), countIf(decode_us > 0), min(other_us) >= 0 FROM requests"
    ) == (32, 32, True)


def test_children_and_gaps_add_up_to_their_request(stored: Stored) -> None:
    sums = """
        SELECT TraceId, anyIf(Duration, SpanName = 'llm_request') AS whole,
            sumIf(Duration, ParentSpanId != '') AS parts, groupUniqArrayIf(SpanName, ParentSpanId != '') AS names
        FROM otel_traces GROUP BY TraceId"""
    traces = stored.rows(sums)
    assert len(traces) == 32
    assert [trace["parts"] for trace in traces] == [trace["whole"] for trace in traces]
    for trace in traces:
        assert set(trace["names"]) <= set(SPANS.values())
        assert {"frontend", "queue", "prefix_lookup", "prefill", "decode", "deliver"} <= set(trace["names"])


def test_usage_and_spans_agree_to_the_token(stored: Stored) -> None:
    """The response each client got, against the row made of its span and the attributes of the span itself."""
    rows = {
        row["request_id"]: row for row in stored.rows("SELECT * FROM requests WHERE finish_reason = 'length'")
    }
    spans = {
        row["id"]: row["a"]
        for row in stored.rows(
            "SELECT SpanAttributes['gen_ai.request.id'] AS id, SpanAttributes AS a FROM otel_traces"
            " WHERE ParentSpanId = ''"
        )
    }
    assert set(rows) == set(stored.driver.usages)
    for request_id, answer in stored.driver.usages.items():
        usage, tiers = answer["usage"], answer["sglext"]["cached_tokens_details"]
        told = (
            usage["prompt_tokens"],
            usage["prompt_tokens_details"]["cached_tokens"],
            tiers["device"],
            tiers["host"],
            tiers["storage"],
            usage["completion_tokens"],
        )
        assert tuple(rows[request_id][column] for column in TOKENS) == told
        names = (
            "gen_ai.usage.input_tokens",
            "gen_ai.usage.cache_read.input_tokens",
            "hitmap.tokens.device",
            "hitmap.tokens.host",
            "hitmap.tokens.remote",
            "gen_ai.usage.output_tokens",
        )
        assert tuple(int(spans[request_id][name]) for name in names) == told
        assert int(spans[request_id]["hitmap.tokens.computed"]) == told[0] - told[1]


def test_counters_and_spans_agree_to_the_token(stored: Stored) -> None:
    sums = ", ".join(f"sum({column})" for column in TOKENS)
    prompt, cached, device, host, remote, completion = stored.one(f"SELECT {sums} FROM requests")
    told = stored.counters
    by_source = [told[f"prompt_tokens_by_source_total{{source={s}}}"] for s in ("device", "host", "remote")]
    assert by_source == [device, host, remote]
    assert sum(by_source) == cached > 0
    assert told["prompt_tokens_total"] == prompt
    assert told["generation_tokens_total"] == completion
    assert told["prompt_tokens_by_source_total{source=computed}"] == prompt - cached
    # Counted step by step: what was computed for prompts, and a token a step once the first was there.
    assert told["step_tokens_total{phase=prefill}"] == prompt - cached + told["recomputed_tokens_total"]
    assert told["step_tokens_total{phase=decode}"] == completion - 32


def test_the_collector_scraped_the_same_counters(stored: Stored) -> None:
    newest = """
        SELECT metric, labels['source'] AS source, argMax(value, time) AS value
        FROM samples
        JOIN (SELECT DISTINCT fingerprint, metric, labels FROM series WHERE metric != '') AS known USING (fingerprint)
        WHERE metric IN ('prompt_tokens_by_source', 'completion_tokens', 'prompt_tokens')
        GROUP BY metric, source, fingerprint"""
    found = {(row["metric"], row["source"]): row["value"] for row in stored.rows(newest)}
    assert found == {
        ("prompt_tokens", ""): stored.counters["prompt_tokens_total"],
        ("completion_tokens", ""): stored.counters["generation_tokens_total"],
        **{
            ("prompt_tokens_by_source", source): stored.counters[
                f"prompt_tokens_by_source_total{{source={source}}}"
            ]
            for source in ("device", "host", "remote", "computed")
        },
    }


def test_kv_events_tell_every_block_that_was_computed(stored: Stored) -> None:
    """Of requests one after the other each full block they computed is stored once: cached ones were there before."""
    alone = """
        SELECT sum(intDiv(prompt_tokens + completion_tokens - 1, 16) * 16 - cached_tokens)
        FROM requests WHERE time < (SELECT time FROM kv_events WHERE action = 'cleared')"""
    events = """
        SELECT sum(token_count) FROM kv_events
        WHERE action = 'stored' AND time < (SELECT time FROM kv_events WHERE action = 'cleared')"""
    assert stored.one(events) == stored.one(alone)
    assert stored.one("SELECT count() FROM kv_events WHERE action = 'gap'") == (0,)


def test_what_is_cached_is_what_the_events_leave(stored: Stored) -> None:
    resident = "SELECT count() FROM kv_residency WHERE server = 'e' AND tier = 'device' AND resident = 1"
    assert stored.one(resident) == (stored.counters["kv_cached_blocks{tier=device}"],)


def test_cached_blocks_of_a_span_were_stored_before(stored: Stored) -> None:
    """Its block hashes are those of the events: that ties a request to what was in the cache."""
    known = {
        row["block"] for row in stored.rows("SELECT DISTINCT block FROM kv_events WHERE action = 'stored'")
    }
    spans = stored.rows(
        "SELECT SpanAttributes['hitmap.block_hashes'] AS hashes,"
        " toUInt32(SpanAttributes['gen_ai.usage.cache_read.input_tokens']) AS cached"
        " FROM otel_traces WHERE ParentSpanId = '' AND cached > 0"
    )
    assert spans
    for span in spans:
        blocks = [int(block) for block in span["hashes"].split(",")]
        assert len(blocks[: span["cached"] // BLOCK]) == span["cached"] // BLOCK
        assert set(blocks) <= known


def test_its_spans_and_kv_events_are_prompts_without_a_log(stored: Stored) -> None:
    """The hashes on a span stand for contents that the events tell, so that no prompt of full blocks is unknown."""
    assert stored.one("SELECT count() FROM request_chains") == (0,)
    report = build(stored.client, "")
    prompt, cached = stored.one("SELECT sum(prompt_tokens), sum(cached_tokens) FROM requests")
    assert (report.total.requests, report.total.prompt) == (32, prompt)
    assert sum(report.total.parts.get(name, 0) for name in HITS) == cached
    assert build(stored.client, "finish_reason=length").unknown_needs == []
    row = stored.rows(
        "SELECT request_id, prompt_tokens, cached_tokens FROM requests WHERE finish_reason = 'length'"
        " AND time > (SELECT time FROM kv_events WHERE action = 'cleared') ORDER BY time DESC LIMIT 1"
    )[0]
    found = explain(stored.client, row["request_id"])
    assert (found.told_by, found.block_size, found.prompt) == ("span", BLOCK, row["prompt_tokens"])
    assert sum(run.end - run.start for run in found.runs if run.part in HITS) == row["cached_tokens"]
    assert found.runs[-1].end == found.prompt


def test_no_sanity_rule_finds_anything_wrong(stored: Stored) -> None:
    now = datetime.now(UTC)
    examination = examine(stored.client, ["e"], now - timedelta(hours=1), now + timedelta(minutes=1))
    assert examination.unanswered == ()
    assert [(finding.rule.id, finding.evidence) for finding in examination.findings] == []


def test_every_source_tells_the_same_reuse(stored: Stored) -> None:
    """Requests, counters of tokens and counters of the cache, as `hitmap sources` shows them side by side."""
    now = datetime.now(UTC)
    told = next(
        s
        for s in sources(stored.client, [], now - timedelta(hours=1), now + timedelta(minutes=1))
        if s.server == "e"
    )
    prompt, cached = stored.one("SELECT sum(prompt_tokens), sum(cached_tokens) FROM requests")
    assert {reuse.told_by: (reuse.found, reuse.whole) for reuse in told.reuse} == {
        "32 of 32 requests": (cached, prompt),
        "counters of cached and prompt tokens": (cached, prompt),
        "counters of the device cache": (cached, prompt),
        "counters of the KV connector": (0, prompt - cached),
    }


def test_no_text_is_stored(stored: Stored) -> None:
    assert SHARED[:20] not in repr(stored.rows("SELECT * FROM otel_traces"))


def test_every_attribute_of_a_child_span_is_in_the_table(stored: Stored) -> None:
    names = stored.rows(
        "SELECT DISTINCT arrayJoin(mapKeys(SpanAttributes)) AS name FROM otel_traces WHERE ParentSpanId != ''"
    )
    counted = {counter.name.removeprefix("hitmap.") for counter in SPAN_COUNTERS}
    assert {row["name"].removeprefix("hitmap.") for row in names} <= {*PARTS, *counted}


def test_what_its_thread_counted_stands_on_the_root_as_the_sum_and_in_the_row(stored: Stored) -> None:
    """Of each request, to the thousandths in which spans tell it."""
    rows = stored.rows(
        """
        SELECT mapFilter((k, _) -> startsWith(k, 'hitmap.thread.'), any(root.SpanAttributes)) AS told,
               any(r.observed) AS observed,
               sumMap(mapApply((k, v) -> (toString(k), toFloat64OrZero(v)),
                      mapFilter((k, _) -> startsWith(k, 'hitmap.thread.'), child.SpanAttributes))) AS summed,
               count() AS parts
        FROM otel_traces AS child
        JOIN otel_traces AS root ON child.ParentSpanId = root.SpanId
        JOIN requests AS r ON root.SpanAttributes['gen_ai.request.id'] = r.request_id
        WHERE root.SpanName = 'llm_request'
        GROUP BY root.SpanId
        """
    )
    assert len(rows) == stored.rows("SELECT count() AS n FROM requests")[0]["n"]
    for row in rows:
        told = {name: float(value) for name, value in row["told"].items()}
        assert told == row["observed"]
        assert told.keys() == row["summed"].keys()
        assert told == pytest.approx(row["summed"], abs=0.001 * row["parts"])
