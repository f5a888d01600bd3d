"""A llama.cpp capture, played: attached as a live server would be, its log timed though it has no clock."""

from __future__ import annotations

import json
import urllib.request
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from collector.attach import Attachment, AttachOptions, detect
from collector.finaliser import Finaliser
from collector.pipeline import Pipeline
from collector.resume import Stored
from hitmap.replay.capture import Capture
from hitmap.replay.player import Player, Shift
from store.client import connect
from tests.collector.support import HASHER, wait_until

RUN_TINY = Path(__file__).parents[1] / "data/llamacpp-b11434/run_tiny"
START_NS = 1795954387963000000  # of the recorded process: server_log.json
LINES, EVENTS = 8_748, 1_862  # of its log; no line makes two events
COUNTED = ("requests", "otel_logs")


def collected(db: Any, folder: Path, shift: Shift) -> Player:
    """Play the capture to an attachment, into the store."""
    folder.mkdir()
    stored = Stored(partial(connect, db.dsn))
    with (
        Pipeline(db.dsn, folder / "spool", finaliser=partial(Finaliser, grace_s=0.5)) as pipeline,
        Player(Capture.read(RUN_TINY), "127.0.0.1:1", folder / "log.jsonl", speed=50, shift=shift) as player,
    ):
        options = AttachOptions(
            "llama", log=player.log_file, server_log=player.server_log_file, interval_s=0.05
        )
        with Attachment(detect(player.url), options, pipeline.sink, stored, hasher=HASHER) as attachment:
            assert player.wait_attached(10)
            player.play()
            assert player.wait_scraped(10)
            server_log = attachment.sources[-1].status
            wait_until(lambda: attachment.sources[-3].status().counts.get("rows", 0) == 168, timeout_s=60)
            wait_until(lambda: player.server_log_file.read_bytes().count(b"\n") == LINES, timeout_s=60)
            wait_until(lambda: server_log().counts.get("other", 0) >= LINES - EVENTS, timeout_s=60)
        requests = "SELECT count() FROM requests"
        wait_until(lambda: db.client.query(requests).result_rows == [(168,)], timeout_s=60)
    return player


def one(db: Any, sql: str) -> tuple[Any, ...]:
    return tuple(db.client.query(sql).result_rows[0])


@pytest.fixture
def player(db: Any, tmp_path: Path) -> Player:
    return collected(db, tmp_path / "first", "now")


def test_it_is_attached_and_adds_up(db: Any, player: Player) -> None:
    assert player.counts == {"metrics texts": 13, "log lines": 168, "server log lines": LINES}
    growth = (
        "SELECT sumIf(delta, metric = 'prompt_tokens.computed'), sumIf(delta, metric = 'cached_tokens')"
        " FROM samples JOIN (SELECT DISTINCT fingerprint, metric FROM series) AS s USING (fingerprint)"
    )
    assert one(db, growth) == (42_378, 54_834)
    slots = "SELECT uniqExact(labels['slot']) FROM series WHERE metric = 'slot.tokens'"
    assert one(db, slots) == (4,)
    kind = "SELECT kind, models, facts['total_slots'] FROM servers"
    assert one(db, kind) == ("llama_cpp", ["model/tiny.gguf"], "4")


def test_log_lines_have_the_time_of_the_recording_moved(db: Any, player: Player) -> None:
    """Each event lies where the shifted start of the process and its uptime put it: to the millisecond of the start.

    Played faster than recorded, the file is for a moment as new as the write, until the player corrects its time. Who
    looks just then takes the start for later than it was, until he looks again: never for earlier.
    """
    starts = (
        "SELECT min(start), countIf(start = least) > count() / 2 FROM (SELECT"
        " toUnixTimestamp64Nano(Timestamp) - 1000 * toInt64(LogAttributes['uptime_us']) AS start,"
        " min(start) OVER () AS least FROM otel_logs)"
    )
    start, most = one(db, starts)
    assert abs(start - (START_NS + player.shift_ns)) <= 1_000_000
    assert most


def test_unshifted_a_second_play_adds_nothing(db: Any, tmp_path: Path) -> None:
    counts = []
    for run in ("first", "second"):
        collected(db, tmp_path / run, "none")
        counts.append([one(db, f"SELECT count() FROM {table}")[0] for table in COUNTED])
    assert counts == [[168, EVENTS]] * 2


def test_the_played_server_answers_as_the_recorded_one(tmp_path: Path) -> None:
    with Player(Capture.read(RUN_TINY), "127.0.0.1:1", tmp_path / "log.jsonl") as player:
        told = {
            path: json.load(urllib.request.urlopen(player.url + path))
            for path in ("/props", "/slots", "/v1/models")
        }
    assert told["/props"]["total_slots"] == 4
    assert [slot["id"] for slot in told["/slots"]] == [0, 1, 2, 3]
    assert told["/v1/models"]["data"][0]["owned_by"] == "llamacpp"
