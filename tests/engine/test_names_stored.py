"""Whose a request is: nobody says what an engine calls itself on its spans, and yet each request is one row."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from collector.attach import Attachment, AttachOptions, detect
from collector.joining import Joining
from collector.pipeline import Pipeline
from collector.source import WAITING, SourceStatus
from engine.serve import EngineServer
from engine.telemetry import TelemetryConfig
from tests.collector.grpc_door import listening
from tests.collector.support import HASHER, wait_until
from tests.conftest import Database
from tests.engine.serving.live import is_idle, serving
from tests.engine.serving.test_command import Process, asked
from tests.engine.stored import Driver


def status(watched: Attachment | Joining, source: str) -> SourceStatus:
    """How a source fares; one that is not there yet waits."""
    found = (status for status in watched.status() if status.source == source)
    return next(found, SourceStatus(source, WAITING, "", {}))


def all_told(server: EngineServer, requests: int) -> None:
    """Wait until the spans of all requests were taken."""
    wait_until(lambda: is_idle(server), 60)
    wait_until(
        lambda: f'traces_total{{outcome="sent"}} {requests}\n' in server.telemetry.exposition().decode(), 60
    )


@pytest.mark.parametrize("joining", [False, True])
def test_a_span_and_a_response_are_one_row(joining: bool, db: Database, tmp_path: Path) -> None:
    log = tmp_path / "requests.jsonl"
    log.touch()
    options = AttachOptions("e", interval_s=0.1, log=log)
    with ExitStack() as stack:
        pipeline = stack.enter_context(Pipeline(db.dsn, tmp_path / "spool"))
        door = stack.enter_context(listening(pipeline.sink))
        server = stack.enter_context(serving(telemetry=TelemetryConfig(otlp=door.endpoint)))
        watched = (
            Joining(server.url, options, pipeline.sink, hasher=HASHER)
            if joining
            else Attachment(detect(server.url), options, pipeline.sink, hasher=HASHER)
        )
        watched.start()
        stack.callback(watched.stop)
        wait_until(lambda: status(watched, "instance e").detail == server.telemetry.instance_id)
        driver = Driver(server, log)
        for number in range(4):
            driver.ask(f"How much is {number} and {number}?", user=f"phase {number % 2}")
        all_told(server, 4)
        wait_until(lambda: status(watched, "request log e").counts.get("rows") == 4)
    rows = "SELECT server, dialect, ttft_us > 0, prefill_us > 0, labels['phase'] FROM requests ORDER BY time"
    assert db.client.query(rows).result_rows == [
        ("e", "engine", 1, 1, f"phase {number % 2}") for number in range(4)
    ]


def test_a_person_may_say_another_name(db: Database, tmp_path: Path) -> None:
    """What is said goes before what the server says; its own instance is known all the same."""
    with ExitStack() as stack:
        pipeline = stack.enter_context(Pipeline(db.dsn, tmp_path / "spool"))
        door = stack.enter_context(listening(pipeline.sink))
        server = stack.enter_context(
            serving(telemetry=TelemetryConfig(otlp=door.endpoint, service_name="told"))
        )
        options = AttachOptions("e", services=("said",))
        stack.enter_context(Attachment(detect(server.url), options, pipeline.sink, hasher=HASHER))
        Driver(server, tmp_path / "log").ask("Who is it?")
        all_told(server, 1)
    assert db.client.query("SELECT server FROM requests").result_rows == [("e",)]
    names = "SELECT kind, alias FROM server_aliases FINAL ORDER BY kind"
    assert db.client.query(names).result_rows == [
        ("service.instance.id", server.telemetry.instance_id),
        ("service.name", "said"),
    ]


def test_two_of_one_service_stay_apart_when_one_begins_again(db: Database, tmp_path: Path) -> None:
    with ExitStack() as stack:
        pipeline = stack.enter_context(Pipeline(db.dsn, tmp_path / "spool"))
        door = stack.enter_context(listening(pipeline.sink))
        process = Process(tmp_path / "log", "--otlp", door.endpoint)
        stack.callback(process.popen.wait)
        stack.callback(process.popen.kill)
        other = stack.enter_context(serving(telemetry=TelemetryConfig(otlp=door.endpoint)))
        first, second = (
            stack.enter_context(
                Attachment(detect(url), AttachOptions(name, interval_s=0.1), pipeline.sink, hasher=HASHER)
            )
            for name, url in (("a", process.url), ("b", other.url))
        )
        assert first.detection.service == second.detection.service == "hitmap-engine"

        def ask(times: int) -> None:
            for _ in range(times):
                asked(process.url, "/v1/completions", {"prompt": "Whose is this?", "max_tokens": 2})

        ask(2)
        Driver(other, tmp_path / "requests").ask("And this?")
        before = status(first, "instance a").counts.get("rows", 0)
        asked(process.url, "/v1/admin/restart", method="POST")
        wait_until(lambda: process.starts() == 2, 60)
        wait_until(lambda: status(first, "instance a").counts.get("rows", 0) > before, 60)
        ask(1)
        all_told(other, 1)
        assert process.stop() == 0
    found = "SELECT server, count() FROM requests GROUP BY server ORDER BY server"
    assert db.client.query(found).result_rows == [("a", 3), ("b", 1)]
