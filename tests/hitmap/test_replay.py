"""A played recording is on the wire what the live server was."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent import futures
from contextlib import closing
from pathlib import Path

import grpc
import msgspec
import pytest
import zmq
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from cachemodel.errors import UserError
from cachemodel.kv_events import decode_batch
from collector.attach import detect
from hitmap.replay.capture import Capture
from hitmap.replay.player import Player, Shift
from hitmap.replay.ports import EXPORT, HttpPort
from hitmap.replay.shift import shift_kv, shift_metrics
from tests.collector.support import wait_until


class Receiver:
    """A gRPC server that keeps the bodies it gets and refuses the first one, as a collector that is not ready."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.refusals = 1
        self._server = grpc.server(futures.ThreadPoolExecutor(2))
        self._server.add_generic_rpc_handlers((self,))  # type: ignore[arg-type]
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def service(self, details):  # type: ignore[no-untyped-def]
        return grpc.unary_unary_rpc_method_handler(self._export) if details.method == EXPORT else None

    def _export(self, body: bytes, context: grpc.ServicerContext) -> bytes:
        if self.refusals:
            self.refusals -= 1
            context.abort(grpc.StatusCode.UNAVAILABLE, "not yet")
        self.bodies.append(body)
        return b""

    def stop(self) -> None:
        self._server.stop(None)


class Subscriber(threading.Thread):
    def __init__(self, endpoint: str) -> None:
        super().__init__(daemon=True)
        self.socket = zmq.Context.instance().socket(zmq.SUB)
        self.socket.connect(endpoint)
        self.socket.subscribe(b"")
        self.messages: list[list[bytes]] = []
        self.done = threading.Event()

    def run(self) -> None:
        while not (self.done.is_set() and not self.socket.poll(200)):
            if self.socket.poll(50):
                self.messages.append(self.socket.recv_multipart())
        self.socket.close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.stop()


def play(folder: Path, receiver: Receiver, log: Path, shift: Shift) -> tuple[Player, list[list[bytes]], str]:
    with Player(Capture.read(folder), receiver.address, log, speed=500, shift=shift) as player:
        subscriber = Subscriber(player.kv_endpoint)
        subscriber.start()
        texts = [urllib.request.urlopen(f"{player.url}/metrics").read().decode()]
        assert player.wait_attached(10)
        player.play()
        subscriber.done.set()
        subscriber.join()
        while not player.wait_scraped(0):
            texts.append(urllib.request.urlopen(f"{player.url}/metrics").read().decode())
    # However fast the play and slow the scraper, no recorded text is passed over. (The last one stays, and can be had
    # again before the server's thread has noted that it was taken.)
    taken = [text for text, before in zip(texts, [None, *texts], strict=False) if text != before]
    assert taken == [shift_metrics(s.text, s.time_ns, player.shift_ns) for s in player.capture.scrapes]
    return player, subscriber.messages, texts[-1]


def test_unshifted_everything_is_the_recording(run1: Path, receiver: Receiver, tmp_path: Path) -> None:
    capture, log = Capture.read(run1), tmp_path / "log.jsonl"
    player, messages, metrics = play(run1, receiver, log, "none")
    assert receiver.bodies == [e.body for e in capture.exports]
    assert messages == [[m.topic, m.seq.to_bytes(8, "big"), m.payload] for m in capture.kv]
    assert sorted(log.read_bytes().splitlines()) == sorted(
        (run1 / "requests.jsonl").read_bytes().splitlines()
    )
    assert metrics == shift_metrics(capture.scrapes[-1].text, capture.scrapes[-1].time_ns, 0)
    assert player.counts == {"exports": 34, "KV messages": 244, "metrics texts": 12, "log lines": 175}


def scrape(player: Player, accept: str = "text/plain") -> str:
    request = urllib.request.Request(f"{player.url}/metrics", headers={"Accept": accept})
    body: bytes = urllib.request.urlopen(request).read()
    return body.decode()


def test_a_scraper_slower_than_the_play_gets_every_text_while_it_comes(
    run1: Path, receiver: Receiver, tmp_path: Path
) -> None:
    with Player(Capture.read(run1), receiver.address, tmp_path / "log.jsonl", speed=500) as player:
        player.play()
        assert player.texts_left == len(player.capture.scrapes) == 12
        done, taken = threading.Event(), list[str]()

        def scraper() -> None:  # 12 times 0.3 s is longer than the wait, and each time shorter
            while not done.wait(0.3):
                taken.append(scrape(player))

        thread = threading.Thread(target=scraper)
        thread.start()
        assert player.wait_scraped(3.0)
        done.set()
        thread.join()
        assert player.texts_left == 0
    assert taken[:12] == [shift_metrics(s.text, s.time_ns, player.shift_ns) for s in player.capture.scrapes]


def test_where_nobody_comes_any_more_what_is_left_is_counted(
    run1: Path, receiver: Receiver, tmp_path: Path
) -> None:
    with Player(Capture.read(run1), receiver.address, tmp_path / "log.jsonl", speed=500) as player:
        player.play()
        first = scrape(player)
        assert not player.wait_scraped(0.3)
        assert player.texts_left == 11
        stopping = threading.Event()
        stopping.set()
        assert not player.wait_scraped(3600, stopping)
    assert first == shift_metrics(
        player.capture.scrapes[0].text, player.capture.scrapes[0].time_ns, player.shift_ns
    )


def test_who_only_looks_takes_no_text(run1: Path, receiver: Receiver, tmp_path: Path) -> None:
    """hitmap finds out what a server is before it scrapes; the play does not begin with that, nor does it go on."""
    with Player(Capture.read(run1), receiver.address, tmp_path / "log.jsonl", speed=500) as player:
        detect(player.url)
        assert not player.wait_attached(0)
        assert player.texts_left == 1
        player.play()
        first = scrape(player, "*/*")
        assert [scrape(player), scrape(player, "*/*")] == [first, scrape(player)]
        wait_until(lambda: player.texts_left == 10)  # it is counted once it was sent


def test_a_text_that_was_taken_makes_room_for_the_next() -> None:
    with closing(HttpPort({}, 0)) as port:

        def taken() -> str:
            return urllib.request.urlopen(f"{port.url}/metrics").read().decode()

        port.show("a 1\n")
        assert [taken(), taken()] == ["a 1\n"] * 2  # there is nothing newer
        assert port.wait_served(10)
        port.show("a 2\n")
        assert port.texts_left == 1
        assert taken() == "a 2\n"


@pytest.mark.parametrize(("speed", "interval_s"), [(0.01, 5.0), (1.0, 1.65), (4.0, 0.41), (1000.0, 0.05)])
def test_scraped_as_it_says_no_text_waits(
    speed: float, interval_s: float, run1: Path, receiver: Receiver, tmp_path: Path
) -> None:
    capture = Capture.read(run1)
    with Player(capture, receiver.address, tmp_path / "log.jsonl", speed=speed) as player:
        assert player.interval_s == pytest.approx(interval_s, rel=0.02)


def spans(bodies: list[bytes]) -> dict[bytes, tuple[int, int]]:
    return {
        span.span_id: (span.start_time_unix_nano, span.end_time_unix_nano)
        for body in bodies
        for rs in ExportTraceServiceRequest.FromString(body).resource_spans
        for ss in rs.scope_spans
        for span in ss.spans
    }


def test_shifted_all_times_move_alike_and_ids_stay(run1: Path, receiver: Receiver, tmp_path: Path) -> None:
    capture, log = Capture.read(run1), tmp_path / "log.jsonl"
    player, messages, metrics = play(run1, receiver, log, "now")
    shift = player.shift_ns
    before, after = spans([e.body for e in capture.exports]), spans(receiver.bodies)
    assert after == {i: (start + shift, end + shift) for i, (start, end) in before.items()}
    assert max(end for _, end in after.values()) <= time.time_ns()
    for message, recorded in zip(messages, capture.kv, strict=True):
        old, new = decode_batch(recorded.payload), decode_batch(message[2])
        assert new.events == old.events
        assert new.ts - old.ts == pytest.approx(shift / 1e9, abs=1e-3)
    for line, old_line in zip(log.read_text().splitlines(), capture.log, strict=True):
        entry, old_entry = json.loads(line), json.loads(old_line.line)
        assert entry.pop("sent_unix_ns") == old_entry.pop("sent_unix_ns") + shift
        assert entry["response_id"] == old_entry["response_id"]
        assert entry.get("usage") == old_entry.get("usage")
    old = capture.scrapes[-1].text.splitlines()
    new = metrics.splitlines()
    assert len(old) == len(new)
    start = next(float(x.split()[1]) for x in old if x.startswith("process_start_time_seconds "))
    moved = next(x.split() for x in new if x.startswith("process_start_time_seconds "))
    assert float(moved[1]) == pytest.approx(start + shift / 1e9, abs=1e-3)
    assert int(moved[2]) == (capture.scrapes[-1].time_ns + shift) // 1_000_000


def test_the_replay_socket_answers_like_vllms(run1: Path, receiver: Receiver, tmp_path: Path) -> None:
    capture = Capture.read(run1)
    with Player(capture, receiver.address, tmp_path / "log.jsonl", speed=500, shift="none") as player:
        player.play()
        dealer = zmq.Context.instance().socket(zmq.DEALER)
        dealer.connect(player.replay_endpoint)
        answers: list[list[bytes]] = []
        deadline = time.monotonic() + 10
        while len(answers) != 45 and time.monotonic() < deadline:  # the port's thread may still be publishing
            answers = []
            dealer.send_multipart([b"", (200).to_bytes(8, "big")])
            while not answers or answers[-1][2] != b"\xff" * 8:
                assert dealer.poll(5000)
                answers.append(dealer.recv_multipart())
        dealer.close()
    assert answers[:-1] == [[b"", m.topic, m.seq.to_bytes(8, "big"), m.payload] for m in capture.kv[200:]]
    assert answers[-1] == [b"", b"", b"\xff" * 8, b""]


def test_the_server_says_what_was_recorded_of_it(run1: Path, receiver: Receiver, tmp_path: Path) -> None:
    with Player(Capture.read(run1), receiver.address, tmp_path / "log.jsonl") as player:
        pages = {p: json.load(urllib.request.urlopen(player.url + p)) for p in ("/version", "/v1/models")}
        assert pages["/version"] == {"version": "0.32.0"}
        assert pages["/v1/models"]["data"][0]["id"] == "tiny-llama"
        source = json.load(urllib.request.urlopen(f"{player.url}/kv_event_sources"))["0"]
        assert source["topic"] == "kv@tiny"
        assert source["endpoint"].replace("*", "127.0.0.1") == player.kv_endpoint
        assert source["replay_endpoint"].replace("*", "127.0.0.1") == player.replay_endpoint
        assert player.capture.service_name == "vllm-tiny"


def test_what_was_not_recorded_is_not_there(receiver: Receiver, tmp_path: Path) -> None:
    (tmp_path / "requests.jsonl").write_text('{"done_unix_ns": 1}\n')
    with Player(Capture.read(tmp_path), receiver.address, tmp_path / "log.jsonl") as player:
        for path in ("/metrics", "/version", "/v1/models", "/kv_event_sources"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(player.url + path)
        assert player.wait_attached(0)
        assert player.wait_scraped(0)
        assert player.interval_s is None


@pytest.mark.parametrize("speed", [0.25, 1.0, 8.0])
def test_nothing_lies_in_the_future_when_it_is_sent(
    speed: float, run1: Path, receiver: Receiver, tmp_path: Path
) -> None:
    capture = Capture.read(run1)
    with Player(capture, receiver.address, tmp_path / "log.jsonl", speed=speed) as player:
        now = time.time_ns()
    begin = capture.items[0].time_ns
    assert all(i.time_ns + player.shift_ns <= now + (i.time_ns - begin) / speed for i in capture.items)


def test_a_collector_that_is_not_ready_does_not_hold_up_the_end(run1: Path, tmp_path: Path) -> None:
    stopping = threading.Event()
    with Player(Capture.read(run1), "127.0.0.1:1", tmp_path / "log.jsonl", speed=500) as player:
        playing = threading.Thread(target=player.play, kwargs={"stopping": stopping})
        playing.start()
        playing.join(1.0)
        assert playing.is_alive()
        stopping.set()
        playing.join(10)
        assert not playing.is_alive()
        assert player.counts["exports"] == 0


def test_kv_batches_move_in_either_form() -> None:
    event = {"type": "AllBlocksCleared"}
    for batch in ([1.5, [event], 0], {"ts": 1.5, "events": [event]}):
        assert decode_batch(shift_kv(msgspec.msgpack.encode(batch), 2_000_000_000)).ts == 3.5


def test_samples_get_the_time_they_were_taken_and_times_move() -> None:
    text = (
        "# HELP a words\n"
        'a{x="} 1",y="\u2028"} NaN\n'
        "process_start_time_seconds 1.5e9\n"
        'b_created{le="+Inf"} 10.5\n'
    )
    assert shift_metrics(text, 7_000_999_999, 1_000_000_000) == (
        "# HELP a words\n"
        'a{x="} 1",y="\u2028"} NaN 8000\n'
        "process_start_time_seconds 1500000001.0 8000\n"
        'b_created{le="+Inf"} 11.5 8000\n'
    )


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (None, "is no folder"),
        ({}, "holds no capture"),
        ({"requests.jsonl": "not json\n"}, "requests.jsonl, line 1 cannot be read"),
        ({"requests.jsonl": "5\n"}, "it is no JSON object"),
        (
            {"scrapes.jsonl": '{"file": "none.txt", "end_unix_ns": 1}\n'},
            "none.txt cannot be read: No such file",
        ),
        ({"scrapes.jsonl": '{"file": ".", "end_unix_ns": 1}\n'}, "cannot be read: Is a directory"),
        (
            {"scrapes.jsonl": '{"recv_unix_ns": 1, "file": "a"}\n', "a": ""},
            "scrapes.jsonl, line 1 cannot be read: KeyError",
        ),
        ({"kv_events.jsonl": '{"recv_unix_ns": 1, "frames_b64": ["AA=="]}\n'}, "kv_events.jsonl, line 1"),
        (
            {"kv_events.jsonl": '{"recv_unix_ns": 1, "frames_b64": ["AA==", "AA==", "AA=="]}\n'},
            "sequence number has 1 bytes",
        ),
        (
            {"kv_events.jsonl": '{"recv_unix_ns": 1, "frames_b64": ["", "AAAAAAAAAAA=", "wQ=="]}\n'},
            "not msgpack",
        ),
        (
            {"otlp/index.jsonl": '{"recv_unix_ns": 1, "file": "1.bin"}\n', "otlp/1.bin": "broken"},
            "index.jsonl, line 1 cannot be read: DecodeError",
        ),
        (
            {"requests.jsonl": '{"done_unix_ns": 1}\n', "kv_event_sources.json": "{"},
            "kv_event_sources.json, line 1",
        ),
    ],
)
def test_odd_folders_are_one_clear_line(files: dict[str, str] | None, words: str, tmp_path: Path) -> None:
    folder = tmp_path / "capture"
    if files is not None:
        folder.mkdir()
        for name, text in files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text)
    with pytest.raises(UserError, match=words):
        Capture.read(folder)
