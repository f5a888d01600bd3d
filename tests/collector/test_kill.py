"""Kill -9 of the real processes; benchmarks/kill.py does the same more often."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.kill import run


@pytest.mark.slow
def test_acknowledged_spans_are_there_exactly_once_after_kills(tmp_path: Path) -> None:
    verdict = run(tmp_path, collector_kills=2, store_kills=1, seed=3)
    assert verdict.acknowledged == 3 * 60 * 64
    assert verdict.good, verdict
