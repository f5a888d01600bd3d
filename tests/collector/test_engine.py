"""The engine's spans as rows: every layer, tokens by tier, the mark of a fault beside the labels of a log."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collector.finaliser import Finaliser
from tests.collector.spans import Attributes, exported, insert, insert_usage, only, rows, span, usage
from tests.conftest import Database

SCOPE = "hitmap.engine"
_batches = count()
LAYERS = {
    **{"frontend": "hitmap.latency.frontend", "queue": "gen_ai.latency.time_in_queue"},
    **{"prefix": "hitmap.latency.prefix", "host": "hitmap.latency.host", "remote": "hitmap.latency.remote"},
    **{"prefill": "gen_ai.latency.time_in_model_prefill", "decode": "gen_ai.latency.time_in_model_decode"},
}
WHOLE: dict[str, Any] = {
    **{name: (number + 1) / 100 for number, name in enumerate(LAYERS.values())},
    **{"gen_ai.request.id": "r1", "gen_ai.response.model": "demo", "hitmap.fault": ""},
    **{"gen_ai.response.finish_reasons": '["stop"]', "gen_ai.latency.time_to_first_token": 0.21},
    **{"gen_ai.usage.input_tokens": 100, "gen_ai.usage.output_tokens": 7},
    **{"gen_ai.usage.cache_read.input_tokens": 64, "hitmap.tokens.device": 32},
    **{"hitmap.tokens.host": 16, "hitmap.tokens.remote": 16},
}
COLUMNS = ", ".join(f"{layer}_us" for layer in (*LAYERS, "other"))


def engine(attributes: Attributes, **more: Any) -> Any:
    return span(attributes, scope=SCOPE, service="e", **more)


def finalise(db: Database, batch: str, *requests: Any) -> None:
    insert(db.client, "traces", batch, exported(*requests))
    Finaliser(db.client, grace_s=0).finalise("traces", batch)


def test_a_request_with_all_it_tells(db: Database) -> None:
    finalise(db, "b", engine(WHOLE, duration_ns=300_000_000))
    assert only(db.client, COLUMNS) == (
        *(10_000, 20_000, 30_000, 40_000, 50_000, 60_000, 70_000),
        20_000,
    )
    assert only(db.client, "dialect, model, finish_reason, labels, response_us") == (
        *("engine", "demo", "stop", {}, None),
    )
    assert only(db.client, "ttft_us, e2e_us, prompt_tokens, cached_tokens, completion_tokens") == (
        *(210_000, 300_000, 100, 64, 7),
    )
    assert only(db.client, "device_tokens, host_tokens, remote_tokens") == (32, 16, 16)


def test_one_that_was_given_up_has_no_first_token(db: Database) -> None:
    told = dict.fromkeys(LAYERS.values(), 0.0) | {"gen_ai.latency.time_in_queue": 0.5}
    finalise(db, "b", engine({"gen_ai.request.id": "r1", **told}, duration_ns=600_000_000))
    assert only(db.client, "ttft_us, queue_us, prefill_us, other_us, cached_tokens") == (
        *(None, 500_000, 0, 100_000, None),
    )


def test_what_is_below_the_root_is_no_request(db: Database) -> None:
    part = engine({"hitmap.layer": "prefill", "hitmap.tokens": 64}, name="prefill", span_id=2)
    finalise(db, "b", engine(WHOLE), part)
    assert rows(db.client, "span_id") == [(1,)]


@pytest.mark.parametrize("usage_first", [True, False])
def test_a_fault_is_a_label_beside_those_of_a_log(db: Database, usage_first: bool) -> None:
    mark = "layer=host,delay_ms=5; evict=0.5"
    log = [usage("r1", server="e", labels={"phase": "x"})]
    finaliser = Finaliser(db.client, grace_s=0)
    if usage_first:
        insert_usage(db.client, "u", log)
        finaliser.finalise("usage", "u")
    finalise(db, "b", engine({**WHOLE, "hitmap.fault": mark}))
    if not usage_first:
        assert only(db.client, "labels") == ({"fault": mark},)
        insert_usage(db.client, "u", log)
        finaliser.finalise("usage", "u")
    assert only(db.client, "labels") == ({"fault": mark, "phase": "x"},)
    insert_usage(db.client, "v", [usage("r1", server="e", labels={"arm": "y"})])
    finaliser.finalise("usage", "v")
    assert only(db.client, "labels") == ({"fault": mark, "arm": "y"},)


@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.integers(0, 10**9), min_size=8, max_size=8), min_size=20, max_size=40))
def test_layers_add_up_to_the_microsecond(db: Database, requests: list[list[int]]) -> None:
    """Nanoseconds of the seven layers and of what is left, each rounded for itself."""
    db.client.command("TRUNCATE TABLE requests")
    spans = []
    for number, (*spent_ns, other_ns) in enumerate(requests):
        told = {name: spent / 1e9 for name, spent in zip(LAYERS.values(), spent_ns, strict=True)}
        told |= {"gen_ai.request.id": f"r{number:03}"}
        spans.append(engine({**WHOLE, **told}, span_id=number + 1, duration_ns=sum(spent_ns) + other_ns))
    finalise(db, f"b{next(_batches)}", *spans)
    found = rows(db.client, f"request_id, e2e_us, {COLUMNS}")
    assert len(found) == len(requests)
    for (_, e2e, *layers, other), (*spent_ns, other_ns) in zip(found, requests, strict=True):
        assert e2e == sum(layers) + other
        assert layers == [pytest.approx(spent / 1000, abs=0.51) for spent in spent_ns]
        assert abs(other - other_ns / 1000) <= 4.5
