"""What each metric is made of: layers that add up to it, with what a client saw beyond its server as the rest."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.attribution.layers import layers
from analysis.attribution.reader import read_side
from analysis.composition import UNATTRIBUTED
from analysis.report.metrics import METRICS
from analysis.report.reader import read
from analysis.selection import Selection
from tests.analysis.attribution.test_reader import insert, request
from tests.conftest import Database

ALL = Selection("all", "1")


@pytest.mark.parametrize(
    ("metric", "beyond"), [("ttft", []), ("e2e", []), ("client_ttft", [2, 7, 3]), ("client_e2e", [4, 9, 10])]
)
def test_what_a_client_saw_beyond_its_server_is_unattributed(
    metric: str, beyond: list[float], db: Database
) -> None:
    """The last request is one of which the server tells nothing: all of its time is."""
    silent = dict.fromkeys(("ttft_us", "e2e_us", "queue_us", "prefill_us", "decode_us"))
    insert(
        db,
        request(0, 1, client_ttft_us=5_000, client_e2e_us=14_000),
        request(1, 2, client_ttft_us=10_000, client_e2e_us=19_000),
        request(2, 3, client_ttft_us=3_000, client_e2e_us=10_000, **silent),
    )
    side = read_side(db.client, ALL, METRICS[metric])
    names, times, _ = layers(side, side)
    by_name = dict(zip(names, times, strict=True))
    assert set(names) - {UNATTRIBUTED} == {"queue", "prefill"} | ({"decode"} if "e2e" in metric else set())
    assert by_name["queue"][:2].tolist() == [1, 1]
    rest = by_name.get(UNATTRIBUTED, np.zeros(0)).tolist()
    assert rest == pytest.approx(beyond)
    np.testing.assert_allclose(np.nansum(times, axis=0), side.totals)


def test_a_report_reads_the_same_layers(db: Database) -> None:
    insert(db, request(0, 1, client_ttft_us=5_000, client_e2e_us=14_000))
    for metric in METRICS.values():
        shown = read(db.client, ALL, metric)
        taken = read_side(db.client, ALL, metric)
        np.testing.assert_array_equal(shown.layers, taken.times)
        np.testing.assert_array_equal(shown.totals, taken.totals)
