"""An engine that begins again, as the store tells of it: its cache is gone, and nothing is counted twice or missed."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from collector.attach import Attachment, AttachOptions, detect
from collector.kv.subscriber import KvSubscriber
from collector.pipeline import Pipeline
from collector.source import Source
from tests.collector.grpc_door import listening
from tests.collector.support import HASHER, wait_until
from tests.conftest import Database
from tests.engine.serving.test_command import Process, asked
from tests.engine.stored import ANY

PROMPT = "a prompt of some length, so that there are blocks to find. " * 4


def ask(process: Process) -> None:
    body = {"prompt": PROMPT, "max_tokens": 2, "temperature": 0, "ignore_eos": True}
    asked(process.url, "/v1/completions", body)


def messages(source: Source) -> int:
    return source.status().counts.get("messages", 0)


def scraped(scraper: Source) -> None:
    """Wait until /metrics was read once more from its beginning."""
    before = scraper.status().counts["scrapes"]
    wait_until(lambda: scraper.status().counts["scrapes"] >= before + 2, 60)


def test_a_restart_is_in_the_events_and_takes_what_was_cached(db: Database, tmp_path: Path) -> None:
    with ExitStack() as stack:
        pipeline = stack.enter_context(Pipeline(db.dsn, tmp_path / "spool"))
        door = stack.enter_context(listening(pipeline.sink))
        process = Process(tmp_path / "log", "--otlp", door.endpoint, "--kv-events", ANY, "--kv-replay", ANY)
        stack.callback(process.popen.wait)
        stack.callback(process.popen.kill)
        options = AttachOptions("e", interval_s=0.1)
        attachment = stack.enter_context(
            Attachment(detect(process.url), options, pipeline.sink, hasher=HASHER)
        )
        events = next(source for source in attachment.sources if isinstance(source, KvSubscriber))
        ask(process)
        ask(process)
        wait_until(lambda: messages(events) > 0, 60)
        before = messages(events)
        scraped(attachment.sources[0])
        asked(process.url, "/v1/admin/restart", method="POST")
        wait_until(lambda: process.starts() == 2, 60)
        ask(process)
        wait_until(lambda: messages(events) > before, 60)
        scraped(attachment.sources[0])
        assert process.stop() == 0
    found = db.client.query("SELECT cached_tokens > 0, server FROM requests ORDER BY time").result_rows
    assert found == [(0, "e"), (1, "e"), (0, "e")]
    actions = "SELECT action, count(), uniqExact(epoch) FROM kv_events GROUP BY action ORDER BY action"
    assert [tuple(row)[::2] for row in db.client.query(actions).result_rows] == [
        ("stored", 2),
        ("restart", 1),
    ]
    grown = """
        SELECT sum(delta) FROM samples
        JOIN (SELECT DISTINCT fingerprint, metric FROM series) AS known USING (fingerprint)
        WHERE metric = 'completion_tokens'"""
    assert db.client.query(grown).result_rows == [(6,)]
