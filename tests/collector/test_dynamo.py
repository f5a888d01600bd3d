"""Dynamo: its front end, a worker and what that passes on of its engine, KVBM's directions, its spans."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from collector.attach import detect
from collector.detection import Capability
from collector.finaliser import Finaliser
from tests.collector.servers import dynamo, trtllm, vllm
from tests.collector.servers.watched import growth, latest, units, watch
from tests.collector.spans import START_NS, exported, insert, span
from tests.collector.support import Server, text
from tests.conftest import Database


def table(server: Server) -> dict[str, Capability]:
    with server:
        detection = detect(server.url)
    assert detection.kind == "dynamo"
    return {capability.signal: capability for capability in detection.capabilities}


def seen(rows: dict[str, Capability]) -> list[str]:
    return [signal for signal, row in rows.items() if row.seen]


def test_the_front_end_predicts_hits_and_counts_none() -> None:
    with dynamo.frontend() as server:
        detection = detect(server.url)
    assert detection.models == (dynamo.MODEL,)
    assert detection.facts == {
        "role": "front end",
        "kv_cache_block_size": "16",
        "total_kv_blocks": "92962",
    }
    rows = {capability.signal: capability for capability in detection.capabilities}
    assert seen(rows) == [
        "metrics",
        "cached tokens by request",
        "hit ratio the router predicted",
        "KV events the router took in",
    ]
    worker = "DYN_SYSTEM_PORT=8081 in the worker's environment, then hitmap attach http://WORKER:8081"
    assert rows["prefix-cache hits"].flag == worker
    assert rows["the engine's own metrics"].flag == worker
    assert rows["request spans (TTFT, tokens)"].flag.startswith(
        "DYN_LOGGING_JSONL=true OTEL_EXPORT_ENABLED=true "
    )
    assert "http://127.0.0.1:4317" in rows["request spans (TTFT, tokens)"].flag
    assert rows["host and disk tiers (KVBM)"].flag.startswith("DYN_KVBM_METRICS=true")
    assert any(
        note.startswith("router.predicted_hit_ratio: what the router expected") for note in detection.notes
    )


def test_an_old_front_end_without_a_router() -> None:
    rows = table(dynamo.frontend_old())
    assert seen(rows) == ["metrics", "cached tokens by request"]
    assert rows["hit ratio the router predicted"].flag == "--router-mode kv at the front end"


def test_a_worker_is_dynamo_and_its_engine_is_seen_too() -> None:
    rows = table(dynamo.worker())
    assert rows["the engine's own metrics"].evidence == "vLLM's, passed on"
    assert rows["prefix-cache hits"].evidence == "the engine's prefix_cache.hit_tokens"
    assert rows["KV-cache events"].seen is None
    with dynamo.worker() as server:
        notes = detect(server.url).notes
    assert sum(note.startswith("kv_cache.usage") for note in notes) == 1, "of the engine's, which is read"
    old = table(dynamo.worker_sglang())
    assert old["the engine's own metrics"].evidence == "SGLang's, passed on"
    assert old["prefix-cache hits"].evidence == "the engine's prompt_tokens_by_source"
    server = dynamo.worker()
    server.answers["/metrics"] = text(dynamo.worker_metrics(1, trtllm.all_metrics()))
    third = table(server)
    assert third["the engine's own metrics"].evidence == "TensorRT-LLM's, passed on"
    assert third["prefix-cache hits"].seen


def test_a_worker_whose_engine_is_not_up_yet_passes_nothing_on() -> None:
    server = dynamo.kvbm()
    server.answers["/metrics"] = text(dynamo.worker_metrics(0))
    row = table(server)["the engine's own metrics"]
    assert (row.seen, row.evidence) == (
        False,
        "none passed on yet: they come a while after the engine is up",
    )
    assert row.flag == (
        "vLLM: the worker without --disable-log-stats; SGLang: --enable-metrics at the worker;"
        " TensorRT-LLM: --publish-events-and-metrics at the worker"
    )


@pytest.mark.parametrize(
    ("family", "flag"),
    [
        ("vllm:num_requests_running", "--enable-prefix-caching at the worker, without --disable-log-stats"),
        ("sglang:num_running_reqs", "--enable-metrics at the worker, without --disable-radix-cache"),
        (
            "trtllm_request_success_total",
            "--publish-events-and-metrics at the worker, and return_perf_metrics",
        ),
    ],
)
def test_an_engine_that_counts_no_hits_is_told_its_own_flag(family: str, flag: str) -> None:
    server = dynamo.worker()
    server.answers["/metrics"] = text(dynamo.worker_metrics(1, f"{family} 1\n"))
    row = table(server)["prefix-cache hits"]
    assert row.seen is False
    assert row.flag.startswith(flag)


@pytest.mark.parametrize("old", [False, True])
def test_figures_of_a_front_end(old: bool, db: Database, tmp_path: Path) -> None:
    server = dynamo.frontend_old() if old else dynamo.frontend()
    watch(db.dsn, tmp_path, server, [dynamo.frontend_metrics(n, old=old) for n in (2, 5)])
    grown = growth(db.client)
    assert grown["request.cached_tokens.sum"] == 3 * 800
    assert grown["request.prompt_tokens.sum"] == 3 * 1000
    assert grown["completion_tokens"] == 3 * 50
    assert grown["requests.finished"] == 3
    assert (grown["ttft.sum"], grown["e2e.sum"]) == (3 * 0.25, 3 * 1.25)
    assert latest(db.client)["requests.active"] == [3.0], "under its old and its new name at once: once"
    told = units(db.client)
    assert not {"prefix_cache.hit_tokens", "prefix_cache.hit_ratio_gauge", "cached_tokens"} & told.keys()
    if not old:
        assert grown["router.predicted_hit_ratio.count"] == 3
        assert grown["kv_events.applied"] == 3 * 40
        assert grown["router.overhead.sum"] == 3 * 1.5
        assert told["router.overhead.sum"] == "ms"


def test_a_worker_passes_on_its_engine_under_the_engines_names(db: Database, tmp_path: Path) -> None:
    before, after = (
        (vllm.RUN1 / "metrics" / name).read_text()
        for name in ("r1_04_after_tsend.txt", "r1_10_after_mixed.txt")
    )
    bodies = [dynamo.worker_metrics(2, before), dynamo.worker_metrics(5, after)]
    watch(db.dsn, tmp_path, dynamo.worker(), bodies)
    grown = growth(db.client)

    def recorded(name: str) -> float:
        values = [
            sum(float(line.rsplit(" ", 1)[1]) for line in body.splitlines() if line.startswith(name + "{"))
            for body in (before, after)
        ]
        return values[1] - values[0]

    assert grown["prompt_tokens"] == recorded("vllm:prompt_tokens_total") > 0
    assert grown["prefix_cache.hit_tokens"] == recorded("vllm:prefix_cache_hits_total") > 0
    assert grown["component.requests"] == 3
    gauges = latest(db.client)
    assert gauges["kv_cache.blocks"] == [2048.0]
    assert gauges["kv_cache.usage"] == [0.0], "the engine's own; Dynamo's says the same again"


@pytest.mark.parametrize("old", [False, True])
def test_what_only_dynamo_says_of_a_worker(old: bool, db: Database, tmp_path: Path) -> None:
    watch(db.dsn, tmp_path, dynamo.worker(), [dynamo.worker_metrics(1, old=old)])
    gauges = latest(db.client)
    assert gauges["kv_cache.usage"] == [0.25]
    assert gauges["kv_cache.blocks"] == [2048.0]
    assert gauges.get("prefix_cache.hit_ratio_gauge") == ([0.5] if old else None)


def test_directions_of_kvbm_are_spelled_out(db: Database, tmp_path: Path) -> None:
    detection = watch(db.dsn, tmp_path, dynamo.kvbm(), [dynamo.kvbm_metrics(n) for n in (2, 5)])
    assert any(note.startswith("kvbm.matched_tokens: there is no counter") for note in detection.notes)
    assert growth(db.client) == {
        "kvbm.matched_tokens": 3 * 64,
        "kvbm.offload_blocks.device_to_host": 3 * 5,
        "kvbm.offload_blocks.host_to_disk": 3 * 3,
        "kvbm.onboard_blocks.host_to_device": 3 * 2,
        "kvbm.onboard_blocks.disk_to_device": 3 * 1,
    }
    told = units(db.client)
    assert (told["kvbm.onboard_blocks.host_to_device"], told["kvbm.matched_tokens"]) == ("blocks", "tokens")
    assert latest(db.client) == {"kvbm.host_hit_ratio": [0.75], "up": [1.0]}


# -- spans

RID = "7c0ffee0-0000-4000-8000-000000000001"
CALL = {
    **{"uri": "/v1/chat/completions", "method": "POST", "request_id": RID, "model": dynamo.MODEL},
    **{"input_tokens": 1000, "output_tokens": 50, "ttft_ms": "251.5"},
}
ENGINE = {
    **{"gen_ai.request.id": RID, "gen_ai.usage.prompt_tokens": 1000, "gen_ai.latency.e2e": 1.2},
    **{"gen_ai.latency.time_to_first_token": 0.24, "gen_ai.latency.time_in_queue": 0.01},
}


def finalised(db: Database, batch: str, *requests: object) -> list[dict[str, object]]:
    insert(db.client, "traces", batch, exported(*requests))  # type: ignore[arg-type]
    Finaliser(db.client).finalise("traces", batch)
    return list(db.client.query("SELECT * FROM requests ORDER BY span_id").named_results())


def part(name: str, number: int, **attributes: str | int | float) -> object:
    return span(attributes, name=name, scope="dynamo-frontend", service="dynamo-frontend", span_id=number)


def test_a_call_of_the_front_end_is_a_request_and_its_parts_are_not(db: Database) -> None:
    (row,) = finalised(
        db,
        "b1",
        part("http-request", 1, **CALL),
        part("kv_router.route_request", 2, request_id=RID),
        part("handle_payload", 3, request_id=RID),
        part("http-request", 4, uri="/health", request_id="another"),
    )
    expected = {
        **{"dialect": "dynamo", "server": "dynamo-frontend", "request_id": RID, "model": dynamo.MODEL},
        **{"ttft_us": 251_500, "e2e_us": 2_000_000, "prompt_tokens": 1000, "completion_tokens": 50},
        **{"queue_us": None, "prefill_us": None, "cached_tokens": None, "other_us": None},
    }
    assert {column: row[column] for column in expected} == expected


def test_an_older_front_end_names_the_request_otherwise_and_says_less(db: Database) -> None:
    (row,) = finalised(
        db, "b1", part("http-request", 1, uri="http://h:8000/v1/completions", x_dynamo_request_id=RID)
    )
    assert (row["request_id"], row["ttft_us"], row["prompt_tokens"]) == (RID, None, None)


@pytest.mark.parametrize("first", ["front end", "engine"])
def test_where_the_engine_tells_of_a_request_too_it_stands_once(first: str, db: Database) -> None:
    told: dict[str, Callable[[], object]] = {
        "front end": lambda: part("http-request", 1, **CALL),
        "engine": lambda: span(ENGINE, span_id=2, start_ns=START_NS + 5_000_000, service="worker"),
    }
    second = next(name for name in told if name != first)
    finalised(db, "b1", told[first]())
    (row,) = finalised(db, "b2", told[second]())
    assert (row["dialect"], row["server"], row["queue_us"]) == ("vllm", "worker", 10_000)
