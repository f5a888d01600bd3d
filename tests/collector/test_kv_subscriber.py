"""A publisher's events are taken off the wire."""

from __future__ import annotations

import json
import socket
import time

import msgspec
import pytest

from collector.kv.address import of_rank, publisher_connects
from collector.spool import Spool
from tests.collector.following import RUN1, Subscribe, batch, summary, taken
from tests.collector.publisher import Frames, Publisher
from tests.collector.support import HASHER, take, wait_until


def test_the_recorded_run(messages: list[Frames], subscribe: Subscribe, spool: Spool) -> None:
    with Publisher() as publisher:
        subscriber = subscribe(publisher)
        publisher.wait_for_subscriber()
        publisher.send(messages)
        taken(subscriber, messages=244)
        rows = take(spool, "kv_events")
    assert summary(rows) == RUN1
    stored = [row for row in rows if row["action"] == "stored"]
    assert all(row["depth"] is not None for row in rows if "block" in row)
    assert [row["depth"] for row in stored if row["parent"] is None] == [0] * sum(
        r["parent"] is None for r in stored
    )
    assert {row["token_count"] for row in stored} == {32}
    assert {(row["source"], row["rank"], row["medium"]) for row in stored} == {("kv@tiny", 0, "GPU")}
    salted = {row["extra_keys"] for row in stored if "extra_keys" in row}
    assert salted == {f'["{HASHER.pseudonym(salt)}"]' for salt in ("tenant-0", "tenant-1")}
    assert not any("tenant" in json.dumps(row) for row in rows)
    assert not any("token_ids" in json.dumps(row) for row in rows)
    order = [(row["epoch"], row["seq"], row["pos"]) for row in rows]
    assert order == sorted(order)
    assert len(set(order)) == len(order)
    cleared = next(row for row in rows if row["action"] == "cleared")
    after = [row["action"] for row in rows if row["seq"] == cleared["seq"] and row["pos"] > cleared["pos"]]
    assert after == ["stored"] * len(after) != [], (
        "the clear comes with the step after it, before what that stored"
    )


def test_the_publisher_may_be_the_one_that_connects(
    messages: list[Frames], subscribe: Subscribe, spool: Spool
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        events = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    subscriber = subscribe(events=events, bind=True)
    with Publisher(connect_to=events) as publisher:
        publisher.wait_for_subscriber()
        publisher.send(messages)
        taken(subscriber, messages=244)
    assert summary(take(spool, "kv_events")) == RUN1


def test_sglang_speaks_the_same_frames(subscribe: Subscribe, spool: Spool) -> None:
    """Read, not run live: no topic, replies without one, batches of three, signed hashes, a page of one token."""
    page = ["BlockStored", [-5, -4, -3], None, [7, 8, 9], 1, None, "GPU"]
    new_page = {"type": "BlockStored", "block_hashes": [-2], "parent_block_hash": -3, "token_ids": [10]}
    new_page |= {"block_size": 1, "medium": "CPU_PINNED", "cache_salt": "tenant-1", "lora_name": "sql"}
    events = [[page], [new_page], [{"type": "BlockRemoved", "block_hashes": [-3], "medium": "GPU"}]]
    sent = [
        [b"", n.to_bytes(8, "big"), msgspec.msgpack.encode([int(time.time()) + n, batch, 3])]
        for n, batch in enumerate(events)
    ]
    with Publisher(old_replies=True) as publisher:
        subscriber = subscribe(publisher)
        publisher.wait_for_subscriber()
        wait_until(lambda: publisher.requests)
        publisher.send(sent, lose=[0, 1])
        taken(subscriber, messages=3)
    rows = take(spool, "kv_events")
    assert [
        (row["action"], 2**64 - row["block"], row["depth"], row["tier"], row["rank"]) for row in rows
    ] == [
        ("stored", 5, 0, "device", 3),
        ("stored", 4, 1, "device", 3),
        ("stored", 3, 2, "device", 3),
        ("stored", 2, 3, "host", 3),
        ("removed", 3, 2, "device", 3),
    ]
    assert {row["source"] for row in rows} == {""}
    assert (rows[3]["medium"], rows[3]["lora_name"], rows[3]["token_count"]) == ("CPU_PINNED", "sql", 1)
    assert rows[3]["extra_keys"] == f'["{HASHER.pseudonym("tenant-1")}"]'


def test_duplicates_are_left_out(messages: list[Frames], subscribe: Subscribe, spool: Spool) -> None:
    with Publisher() as publisher:
        subscriber = subscribe(publisher)
        publisher.wait_for_subscriber()
        wait_until(lambda: publisher.requests)
        publisher.send([*messages[:50], *messages[:50], *messages[30:]])
        taken(subscriber, messages=244, duplicates=70)
    assert summary(take(spool, "kv_events")) == RUN1


def test_bad_messages_are_counted_and_the_rest_is_kept(
    messages: list[Frames], subscribe: Subscribe, spool: Spool
) -> None:
    topic = messages[0][0]
    ts = msgspec.msgpack.decode(messages[0][2])[0]

    def number(n: int) -> bytes:
        return n.to_bytes(8, "big")

    sent = [
        messages[0],
        [topic, number(1), messages[1][2][:50]],
        [topic, b"short", b"x"],
        [topic],
        [topic, number(2), msgspec.msgpack.encode([ts + 1, [["BlockFrobbed", [1, 2, 3], "why"]], 0])],
        [topic, number(3), batch(1e12, 1)],
        [topic, number(4), batch(float("nan"), 1)],
        [topic, number(5), batch(ts + 2, 7), b"an", b"extra", b"frame"],
    ]
    with Publisher() as publisher:
        subscriber = subscribe(publisher)
        publisher.wait_for_subscriber()
        publisher.send(sent)
        taken(subscriber, messages=6, malformed=2)
    told = [row for row in take(spool, "kv_events") if row["seq"]]
    gaps, rows = ([row for row in told if (row["action"] == "gap") is gap] for gap in (True, False))
    assert [row["seq"] for row in gaps] == [1, 3, 4], "what they told is as unknown as if they had not come"
    assert [(row["seq"], row["action"]) for row in rows] == [
        (1, "unknown"),
        (2, "unknown"),
        (3, "unknown"),
        (4, "unknown"),
        (5, "stored"),
    ]
    assert "error" in json.loads(rows[0]["detail"])
    assert json.loads(rows[1]["detail"])["type"] == "BlockFrobbed"
    assert "[1" not in rows[1]["detail"], "what may be token ids is not kept"
    assert all(row["time"] >= ts - 1 for row in rows)
    counts = subscriber.status().counts
    assert (counts["unreadable"], counts["unknown"]) == (3, 1)


def test_an_address_in_use_is_said_and_tried_until_it_is_free(
    messages: list[Frames], subscribe: Subscribe, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collector.kv.subscriber._FIRST_REOPEN_S", 0.05)
    monkeypatch.setattr("collector.kv.subscriber._LONGEST_REOPEN_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as taken_port:
        address = f"tcp://127.0.0.1:{taken_port.getsockname()[1]}"
        subscriber = subscribe(events=address, bind=True)
        taken(subscriber, unopened=2)
        wait_until(lambda: subscriber.status().state == "failing")
        status = subscriber.status()
        assert status.detail.startswith(f"cannot listen on {address} for KV events: Address already in use; ")
        assert status.detail.endswith(
            "if it is the server that listens there, let hitmap connect (--kv-connect), else give each server a port of"
            " its own"
        )
    wait_until(lambda: subscriber.status().state == "waiting")
    with Publisher(connect_to=address) as publisher:
        publisher.wait_for_subscriber()
        publisher.send(messages)
        taken(subscriber, messages=244)
    assert summary(take(spool, "kv_events")) == RUN1


def test_an_address_that_is_none_is_said(subscribe: Subscribe) -> None:
    subscriber = subscribe(events="nonsense")
    wait_until(lambda: subscriber.status().state == "failing")
    assert subscriber.status().detail.startswith("cannot connect to nonsense for KV events: Invalid argument")


@pytest.mark.parametrize(
    ("endpoint", "connects"),
    [
        ("tcp://*:5557", False),
        ("tcp://[::]:5557", False),
        ("ipc:///run/kv", False),
        ("inproc://kv", False),
        ("tcp://127.0.0.1:5557", True),
        ("tcp://collector:5557", True),
    ],
)
def test_who_binds(endpoint: str, connects: bool) -> None:
    assert publisher_connects(endpoint) is connects


def test_who_binds_with_sglang() -> None:
    assert publisher_connects("tcp://0.0.0.0:5557") is True
    assert publisher_connects("tcp://0.0.0.0:5557", any_ipv4_binds=True) is False
    assert publisher_connects("tcp://*:5557", bind=False) is True
    assert publisher_connects("tcp://host:5557", bind=True) is False


def test_ranks_are_on_consecutive_ports() -> None:
    assert [of_rank("tcp://*:5557", rank) for rank in range(3)] == [
        "tcp://*:5557",
        "tcp://*:5558",
        "tcp://*:5559",
    ]
    assert of_rank("", 2) == ""
