"""Many of everything at once for some seconds; benchmarks/load.py does it with hundreds for minutes."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.load import run


@pytest.mark.slow
def test_what_many_senders_were_acknowledged_is_there_and_no_queue_outgrew_its_bound(tmp_path: Path) -> None:
    verdict = run(
        tmp_path, seconds=10, connections=24, servers=16, publishers=6, every_s=0.4, interval_s=2, spool_mb=64
    )
    assert verdict.broken == []
    assert min(verdict.sent["acknowledged"]) > 0
    assert min(verdict.served["published"]) > 0
    assert verdict.found.keys() == {"traces", "logs", "metrics", "samples", "kv_events"}
    assert min(verdict.found.values()) > 0
