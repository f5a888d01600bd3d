"""Triton with the TensorRT-LLM backend: many numbers in one family, and what it cannot tell."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.attach import Attachment, AttachOptions, detect
from collector.detection import Capability
from collector.spool import Spool
from tests.collector.servers import triton
from tests.collector.support import HASHER, Server, take, wait_until


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    opened = Spool(tmp_path / "spool.sqlite")
    yield opened
    opened.close()


def figures(server: Server, spool: Spool) -> dict[str, tuple[float, str, str]]:
    """Value, kind and unit by metric."""
    with (
        server,
        Attachment(detect(server.url), AttachOptions("s", interval_s=9), spool, hasher=HASHER) as attachment,
    ):
        wait_until(lambda: attachment.status()[0].counts.get("rows"))
    series = {row["fingerprint"]: row for row in take(spool, "series")}
    rows = [row | series[row["fingerprint"]] for row in take(spool, "samples")]
    return {row["metric"]: (row["value"], row["kind"], row["unit"]) for row in rows if row["metric"]}


def test_numbers_of_one_family_are_told_apart(spool: Spool) -> None:
    found = figures(triton.new(), spool)
    assert found["kv_cache.used_blocks"] == (1, "gauge", "blocks")
    assert found["kv_cache.blocks"] == (6239, "gauge", "blocks")
    assert found["kv_cache.tokens_per_block"] == (64, "gauge", "tokens")
    assert found["kv_cache.usage"] == (0.25, "gauge", "ratio")
    assert found["kv_transfer.time_ms"] == (1500, "counter", "ms")
    assert found["kv_transfer.requests"] == (30, "counter", "requests")
    assert found["requests.waiting"] == (3, "gauge", "requests")
    assert found["steps"] == (77, "counter", "steps"), "declared a gauge, but it only grows"


def test_an_old_build_has_no_value_for_what_it_does_not_tell(spool: Spool) -> None:
    found = figures(triton.old(), spool)
    assert found["kv_cache.used_blocks"] == (1, "gauge", "blocks")
    assert not {"kv_cache.usage", "kv_cache.reused_blocks_gauge"} & found.keys()


@pytest.mark.parametrize("make", [triton.new, triton.old])
def test_hits_are_not_seen_and_the_reason_is_given(make: type[Server]) -> None:
    """Field report 44: reused blocks are counted in the backend and not exported."""
    with make() as server:
        detection = detect(server.url)
    assert (detection.kind, detection.models) == ("triton", ("tensorrt_llm",))
    assert detection.facts == {"kv_cache_block_max": "6239", "kv_cache_block_tokens_per": "64"}
    rows = {capability.signal: capability for capability in detection.capabilities}
    hits = rows["prefix-cache hits"]
    assert hits.seen is False
    assert "issue 537" in hits.evidence
    assert "trtllm-serve" in hits.flag
    assert rows["KV blocks in use"].seen
    told = any(
        note.startswith("kv_cache.reused_blocks_gauge: no count of what was looked up")
        for note in detection.notes
    )
    assert told is (make is triton.new)


def test_the_port_of_the_api_points_to_that_of_the_metrics() -> None:
    with triton.api() as server:
        detection = detect(server.url)
    assert (detection.kind, detection.version, detection.metrics_url) == ("triton", "2.60.0", "")
    assert detection.capabilities[0] == Capability(
        "metrics",
        False,
        "this is the port of its API; metrics are on another",
        "hitmap attach http://127.0.0.1:8002 (--metrics-port, --allow-metrics=true)",
    )
    flag = detection.capabilities[0].flag
    for row in detection.capabilities:
        if row.signal in ("KV blocks in use", "KV moved between workers"):
            assert (row.seen, row.flag) == (False, flag)
