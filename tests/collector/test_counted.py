"""What a span's thread counted, as a number of its row: what is no count is not known, and never 0."""

from __future__ import annotations

import pytest

from tests.collector.spans import Attributes, only
from tests.collector.test_engine import engine, finalise
from tests.conftest import Database

MAJOR = "hitmap.thread.page_faults.major"
CPU = "hitmap.thread.cpu_us"


def counted(db: Database, **told: object) -> dict[str, float]:
    attributes: Attributes = {"gen_ai.request.id": "r1", CPU: 5.5, **told}  # type: ignore[dict-item]
    finalise(db, "b", engine(attributes, duration_ns=1_000_000))
    (found,) = only(db.client, "observed")
    return dict(found)


@pytest.mark.parametrize(
    ("told", "known"),
    [(3, 3.0), (0, 0.0), (0.25, 0.25), ("7", 7.0), ("1e3", 1000.0), (2**62, float(2**62)), ("-0", 0.0)],
)
def test_counts_are_numbers(db: Database, told: object, known: float) -> None:
    assert counted(db, **{MAJOR: told}) == {MAJOR: known, CPU: 5.5}


@pytest.mark.parametrize(
    "told",
    [
        "many",
        "",
        "NaN",
        float("nan"),
        "1e400",
        float("inf"),
        float("-inf"),
        -1,
        -0.5,
        "3 faults",
        "0x10",
        "None",
    ],
)
def test_what_is_no_count_is_not_known(db: Database, told: object) -> None:
    assert counted(db, **{MAJOR: told}) == {CPU: 5.5}


def test_other_attributes_are_no_counters(db: Database) -> None:
    assert counted(db, **{"hitmap.threads": 3, "thread.id": 9, "hitmap.pmu.llc.loads": 8}) == {
        CPU: 5.5,
        "hitmap.pmu.llc.loads": 8.0,
    }
