"""What servers say of themselves in a window, and the load that no request row shows."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import pytest

from analysis.attribution.caused.told import Room, ToldSide, told
from analysis.attribution.reader import read_side
from analysis.report.metrics import METRICS
from analysis.selection import Selection
from analysis.twin.model import Told
from tests.analysis.attribution.test_reader import insert, request
from tests.analysis.misses.stored_world import START
from tests.conftest import Database

ENGINE = {"block_size": "16", "max_num_seqs": "8", "max_num_batched_tokens": "512"}
VLLM = {"block_size": "16", "num_gpu_blocks": "1000", "cache_dtype": "auto"}
TENTH = timedelta(seconds=10)


def say(db: Database, metric: str, labels: Mapping[str, str], values: Mapping[int, float]) -> None:
    """A series of `s`, its values by seconds from the start; what a counter grew by is in `delta`."""
    number = hash((metric, *labels.items())) & 0xFFFFFFFF
    db.client.insert(
        "series",
        [[number, "s", metric, metric, "gauge", "", dict(labels)]],
        column_names=["fingerprint", "server", "metric", "raw_name", "kind", "unit", "labels"],
    )
    rows = [[START + timedelta(seconds=at), number, value, value] for at, value in values.items()]
    db.client.insert("samples", rows, column_names=["time", "fingerprint", "value", "delta"])


def heard(db: Database) -> ToldSide:
    """Of a side of ten requests, a second apart."""
    insert(db, *(request(at, at) for at in range(10)))
    return told(db.client, read_side(db.client, Selection("all", "1"), METRICS["e2e"], causes=False))


def test_nothing_said_is_nothing_known(db: Database) -> None:
    found = heard(db)
    assert found.servers == {"s": Told(requests=10)}
    assert found.rooms == {"s": Room()}


def test_the_pool_is_that_of_the_window(db: Database) -> None:
    """It was made smaller for these requests, and larger again after."""
    say(db, "kv_cache.config", ENGINE, dict.fromkeys(range(-30, 60, 5), 1))
    pool = {at: 50 if 0 <= at < 10 else 100 for at in range(-30, 60, 2)}
    say(db, "kv_cache.blocks", {"tier": "device"}, pool)
    say(db, "kv_cache.blocks", {"tier": "host"}, dict.fromkeys(range(-30, 60, 2), 400))
    found = heard(db)
    assert found.servers["s"] == Told(8, 512, 800, requests=10)
    assert found.rooms["s"] == Room(device=800, host=6400)


def test_the_nearest_sample_tells_where_none_is_in_the_window(db: Database) -> None:
    say(db, "kv_cache.config", VLLM, {-20: 1})
    assert heard(db).servers["s"].kv_tokens == 16_000


@pytest.mark.parametrize(("grown", "load"), [(10, 10), (25, 25), (4, 10)])
def test_requests_that_only_counters_know_of_are_counted(db: Database, grown: int, load: int) -> None:
    """Between the scrapes around the window ten of those stored ended; what was counted beyond that nobody stored."""
    say(db, "requests.finished", {"reason": "stop"}, {-5: 900, 4: grown / 2, 15: grown / 2, 40: 77})
    assert heard(db).servers["s"].requests == load


def test_vllm_hides_the_wait_for_a_running_pass(db: Database) -> None:
    insert(db, *(request(at, at, dialect="vllm") for at in range(3)))
    side = read_side(db.client, Selection("all", "1"), METRICS["e2e"], causes=False)
    assert told(db.client, side).servers["s"].hidden_wait
