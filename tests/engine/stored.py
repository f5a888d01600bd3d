"""A live engine watched the way `hitmap attach` does it, down to rows in a real store."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from clickhouse_connect.driver.client import Client

from collector.attach import Attachment, AttachOptions, detect
from collector.detection import Detection
from collector.pipeline import Pipeline
from collector.prometheus import parse
from collector.source import Source
from engine.config import EngineConfig
from engine.serve import EngineServer
from engine.telemetry import TelemetryConfig
from engine.telemetry.metrics import PREFIX
from store.client import connect
from store.embedded import Embedded
from tests.collector.grpc_door import listening
from tests.collector.support import HASHER, wait_until
from tests.engine.serving.live import is_idle, serving

ANY = "tcp://127.0.0.1:*"
Row = dict[str, Any]


@dataclass
class Driver:
    """A client of the engine, and what it was told. usages: by response id, of requests that were answered to the end;
    left: those it went away from."""

    server: EngineServer
    log: Path
    usages: dict[str, Row] = field(default_factory=dict)
    left: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ask(self, prompt: str, max_tokens: int = 4, **more: Any) -> Row:
        """One call of /v1/completions, its response written to the request log."""
        sent_ns = time.time_ns()
        status, body = self._post("/v1/completions", _request(prompt, max_tokens, more))
        answer = json.loads(body)
        assert status == 200, answer
        line = json.dumps({"sent_unix_ns": sent_ns, "response": answer, "phase": more.get("user", "")})
        with self._lock:
            self.usages[answer["id"]] = answer
            with self.log.open("a") as log:
                log.write(line + "\n")
        return dict(answer)

    def ask_all(self, prompts: Iterable[str], max_tokens: int = 4, **more: Any) -> None:
        """Several at once."""
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda prompt: self.ask(prompt, max_tokens, **more), prompts))

    def leave(self, prompt: str, max_tokens: int = 400) -> None:
        """Go away after the first token of a stream."""
        connection = self._connection()
        body = _request(prompt, max_tokens, {"stream": True})
        connection.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
        response = connection.getresponse()
        assert response.status == 200
        assert response.readline().startswith(b"data: ")
        response.close()
        connection.close()
        self.left += 1
        wait_until(lambda: is_idle(self.server), 60)

    def inject(self, spec: str) -> None:
        status, body = self._post("/v1/admin/faults", {"spec": spec})
        assert status == 200, body

    def clear(self) -> None:
        connection = self._connection()
        connection.request("DELETE", "/v1/admin/faults")
        assert connection.getresponse().status == 200
        connection.close()

    def counters(self) -> dict[str, float]:
        """What /metrics tells, `name{label=value}` without the prefix."""
        connection = self._connection()
        connection.request("GET", "/metrics")
        found = {}
        for sample in parse(connection.getresponse().read()).samples:
            labels = ",".join(f"{name}={value}" for name, value in sample.labels)
            found[sample.name.removeprefix(PREFIX) + (f"{{{labels}}}" if labels else "")] = sample.value
        connection.close()
        return found

    def _post(self, path: str, body: Row) -> tuple[int, bytes]:
        connection = self._connection()
        connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        response = connection.getresponse()
        told = response.status, response.read()
        connection.close()
        return told

    def _connection(self) -> HTTPConnection:
        return HTTPConnection(str(urlsplit(self.server.url).netloc), timeout=60)


def _request(prompt: str, max_tokens: int, more: Row) -> Row:
    greedy = {"temperature": 0, "ignore_eos": True}
    return {"model": "tiny", "prompt": prompt, "max_tokens": max_tokens} | greedy | more


@dataclass
class Stored:
    """What came of it. client: on the store. counters: as /metrics told them at the end."""

    client: Client
    detection: Detection
    driver: Driver
    counters: dict[str, float]

    def rows(self, sql: str, **parameters: Any) -> list[Row]:
        return list(self.client.query(sql, parameters=parameters).named_results())

    def spans(self, request_id: str) -> list[Row]:
        """The child spans of a request, in order."""
        return self.rows(
            "SELECT SpanName AS name, Duration AS ns, SpanAttributes AS a FROM otel_traces WHERE ParentSpanId IN"
            " (SELECT SpanId FROM otel_traces WHERE SpanAttributes['gen_ai.request.id'] = {id:String})"
            " ORDER BY Timestamp",
            id=request_id,
        )

    def one(self, sql: str) -> tuple[Any, ...]:
        (row,) = self.client.query(sql).result_rows
        return tuple(row)


@contextmanager
def database(store: Embedded, name: str) -> Iterator[str]:
    """A database of its own, for a module."""
    root = connect(store.dsn)
    root.command(f"CREATE DATABASE {name}")
    yield store.dsn.rpartition("/")[0] + f"/{name}"
    root.command(f"DROP DATABASE {name}")
    root.close()


def played(dsn: str, folder: Path, config: EngineConfig, drive: Callable[[Driver], None]) -> Stored:
    """Serve, attach, drive, and end it all once every span, event and counter is in the store."""
    log = folder / "requests.jsonl"
    log.touch()
    with ExitStack() as stack:
        pipeline = stack.enter_context(Pipeline(dsn, folder / "spool"))
        door = stack.enter_context(listening(pipeline.sink))
        telemetry = TelemetryConfig(otlp=door.endpoint, kv_events=ANY, kv_replay=ANY)
        server = stack.enter_context(serving(config, telemetry))
        detection = detect(server.url, otlp=door.endpoint)
        options = AttachOptions("e", interval_s=0.1, log=log)
        attachment = stack.enter_context(Attachment(detection, options, pipeline.sink, hasher=HASHER))
        driver = Driver(server, log)
        drive(driver)
        wait_until(lambda: is_idle(server), 60)
        counters = _settled(driver, attachment.sources)
    return Stored(connect(dsn), detection, driver, counters)


def _settled(driver: Driver, sources: list[Source]) -> dict[str, float]:
    """Wait until the collector has been told all there is; the counters of that moment."""

    def told() -> bool:
        counters = driver.counters()
        ended = sum(value for name, value in counters.items() if name.startswith("requests_finished"))
        return counters["traces_total{outcome=sent}"] == ended == counters["requests_received_total"]

    wait_until(told, 60)
    counters = driver.counters()
    by_kind = {type(source).__name__: source for source in sources}
    published = counters["kv_event_batches_total{outcome=published}"]
    wait_until(lambda: by_kind["KvSubscriber"].status().counts.get("messages", 0) == published)
    wait_until(lambda: by_kind["LogTail"].status().counts.get("rows", 0) == len(driver.usages))
    scraped = by_kind["Scraper"].status().counts["scrapes"]
    wait_until(lambda: by_kind["Scraper"].status().counts["scrapes"] >= scraped + 2)
    return counters
