"""Points on their way to a collector that is away, slow, full, or wants some of them not: none is lost uncounted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from probes.daemon import sender as module
from probes.daemon.channel import open_channel
from probes.daemon.deltas import Point
from probes.daemon.endpoint import endpoint
from probes.daemon.sender import Sender
from probes.reading import Reading
from tests.probes.daemon.receivers import OK, Receiver, eventually, rejecting

HOST = {None: {"host.name": "h"}}
Open = Callable[..., Sender]


def points(*values: float) -> list[Point]:
    """One point a value, by which it is known again."""
    return [Point(Reading("hitmap.page_faults", value, "ebpf", 7), 1, 2, value) for value in values]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """A sender to a port of this host, that tries again soon."""
    monkeypatch.setattr(module, "_AGAIN_S", (0.05, 0.1))
    senders: list[Sender] = []

    def start(port: int, most_waiting: int = 1000) -> Sender:
        channel = open_channel(endpoint(f"127.0.0.1:{port}", [], {}), timeout_s=2.0)
        senders.append(Sender(channel, "1", most_waiting))
        return senders[-1]

    yield start
    for sender in senders:
        sender.close(0.1)


@pytest.fixture
def port() -> int:
    """A free one."""
    with Receiver().listening() as free:
        return free


def test_what_was_counted_while_the_collector_was_away_arrives_in_order(opened: Open, port: int) -> None:
    sender, receiver = opened(port), Receiver()
    for value in range(5):
        sender.put(points(value), HOST)
    eventually(lambda: bool(sender.trouble))
    with receiver.listening(port):
        eventually(lambda: sender.sent == 5)
    eventually(lambda: not sender.trouble)
    sender.put(points(5), HOST)  # away again
    eventually(lambda: bool(sender.trouble))
    with receiver.listening(port):
        eventually(lambda: sender.sent == 6)
        assert receiver.values() == list(range(6))
    assert not sender.lost


def test_beyond_its_room_the_oldest_go_and_are_counted(opened: Open, port: int) -> None:
    sender, receiver = opened(port, most_waiting=10), Receiver()
    for value in range(25):
        sender.put(points(value), HOST)
    eventually(lambda: bool(sender.trouble))
    with receiver.listening(port):
        eventually(lambda: sender.sent + sender.lost["dropped"] == 25)
        values = receiver.values()
    assert values == list(range(25 - len(values), 25))
    assert 9 <= len(values) <= 11  # one was on its way when the room was full
    assert sender.lost == {"dropped": 25 - len(values)}


def test_what_is_refused_for_good_is_counted_and_the_next_goes_on(opened: Open) -> None:
    receiver = Receiver()
    receiver.answer = lambda got, context: (
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no") if len(got.asked) == 1 else OK
    )
    with receiver.listening() as port:
        sender = opened(port)
        sender.put(points(1, 2, 3), HOST)
        eventually(lambda: sender.lost["refused"] == 3)
        assert sender.trouble == f"127.0.0.1:{port} answers INVALID_ARGUMENT: no"
        sender.put(points(4), HOST)
        eventually(lambda: sender.sent == 1)
        assert receiver.values() == [4]
        assert sender.lost == {"refused": 3}


def test_of_a_partial_success_only_the_rejected_are_lost(opened: Open) -> None:
    receiver = Receiver()
    receiver.answer = lambda got, _: rejecting(2) if len(got.asked) == 1 else OK
    with receiver.listening() as port:
        sender = opened(port)
        sender.put(points(1, 2, 3, 4, 5), HOST)
        eventually(lambda: sender.sent == 3)
        assert sender.lost == {"refused": 2}
        assert sender.trouble.endswith("rejected 2 points: too old")
        sender.put(points(6), HOST)
        eventually(lambda: sender.sent == 4 and not sender.trouble)
        assert len(receiver.asked) == 2, "the rejected are not sent again"


def test_a_full_collector_is_asked_again_when_it_said(opened: Open) -> None:
    def full_at_first(got: Receiver, context: grpc.ServicerContext) -> object:
        if len(got.asked) > 1:
            return OK
        status = status_pb2.Status(code=8, message="full")
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromMilliseconds(700)
        status.details.add().Pack(retry)
        return context.abort_with_status(rpc_status.to_status(status))

    receiver = Receiver()
    receiver.answer = full_at_first  # type: ignore[assignment]
    with receiver.listening() as port:
        sender = opened(port)
        sender.put(points(1), HOST)
        eventually(lambda: sender.sent == 1)
        first, second = receiver.asked
        assert second - first >= 0.7, "its own ladder would have asked after 50 ms"
        assert not sender.lost


def test_a_slow_collector_delays_nobody_who_puts(opened: Open) -> None:
    receiver, go = Receiver(), threading.Event()
    receiver.answer = lambda _, __: (go.wait(10), OK)[1]
    with receiver.listening() as port:
        sender = opened(port)
        sender.put(points(0), HOST)
        eventually(lambda: len(receiver.asked) == 1)
        for value in range(1, 200):  # each returns though the first is not answered yet
            sender.put(points(value), HOST)
        assert not go.is_set()
        assert sender.sent == 0
        go.set()
        eventually(lambda: sender.sent == 200)
        assert receiver.values() == list(range(200))


def test_many_points_go_in_requests_that_receivers_take(opened: Open) -> None:
    receiver = Receiver()
    with receiver.listening() as port:
        sender = opened(port, most_waiting=20_000)
        sender.put(points(*range(9000)), HOST)
        eventually(lambda: sender.sent == 9000)
        assert receiver.values() == list(range(9000))
        assert max(request.ByteSize() for request in receiver.taken) < 2 << 20


def test_at_the_end_what_waits_is_sent(opened: Open) -> None:
    receiver = Receiver()
    with receiver.listening() as port:
        sender = opened(port)
        sender.put(points(1), HOST)
        sender.put(points(2), HOST)
        sender.close()
        assert receiver.values() == [1, 2]
        assert (sender.sent, sender.lost) == (2, {})


def test_at_the_end_a_collector_that_is_back_is_asked_once_more(
    opened: Open, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_AGAIN_S", (3600.0,))
    sender, receiver = opened(port), Receiver()
    sender.put(points(1), HOST)
    eventually(lambda: bool(sender.trouble))
    with receiver.listening(port):
        time.sleep(0.5)  # gRPC itself looks again after 200 ms
        sender.close()
        assert receiver.values() == [1]
    assert (sender.sent, sender.lost) == (1, {})


def test_at_the_end_what_nobody_took_is_counted(opened: Open, port: int) -> None:
    sender = opened(port)
    sender.put(points(1, 2), HOST)
    sender.put(points(3), HOST)
    began = time.monotonic()
    sender.close()
    assert sender.lost == {"unsent": 3}
    assert time.monotonic() - began < 4, "a collector that is away does not hold the end up"


def test_what_was_on_its_way_at_the_end_is_counted_as_unsent(opened: Open) -> None:
    receiver, go = Receiver(), threading.Event()
    receiver.answer = lambda _, __: (go.wait(10), OK)[1]
    with receiver.listening() as port:
        sender = opened(port)
        sender.put(points(1), HOST)
        eventually(lambda: len(receiver.asked) == 1)
        sender.put(points(2), HOST)
        sender.close(0.2)
        assert sender.lost == {"unsent": 2}
        go.set()
    time.sleep(0.1)
    assert (sender.sent, sender.lost) == (0, {"unsent": 2})
