"""Replicas of one model, watched as `hitmap attach` does it, whose clients log what they send."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from clickhouse_connect.driver.client import Client

from collector.attach import Attachment, AttachOptions, detect
from collector.chains.memory import ChainMemory
from collector.pipeline import Pipeline
from collector.sink import Sink
from engine.config import EngineConfig
from engine.telemetry import TelemetryConfig
from store.client import connect
from tests.collector.grpc_door import listening
from tests.collector.support import HASHER, wait_until
from tests.engine.serving.live import is_idle, serving
from tests.engine.serving.test_paths import call

ANY = "tcp://127.0.0.1:*"
_numbers = itertools.count()
_pool = ThreadPoolExecutor(8)


class Replica:
    """One engine under its name, with a client that writes a request log. usages: answers by request id."""

    def __init__(
        self, name: str, config: EngineConfig, otlp: str, sink: Sink, folder: Path, memory: ChainMemory
    ) -> None:
        self.name, self.config = name, config
        self.log = folder / f"{name}.jsonl"
        self.log.touch()
        self.usages: dict[str, Any] = {}
        self._telemetry = TelemetryConfig(otlp, service_name=name, kv_events=ANY, kv_replay=ANY)
        self._told = 0  # batches of KV events of the lives before this one
        self._life = ExitStack()
        self.server = self._life.enter_context(serving(config, self._telemetry))
        options = AttachOptions(name, interval_s=0.1, log=self.log)
        found = detect(self.server.url, otlp=otlp)
        self.attachment = Attachment(found, options, sink, hasher=HASHER, memory=memory)

    def send(self, prompt: Sequence[int], max_tokens: int = 1, **more: Any) -> str:
        """Ask with these tokens and wait for the answer; the request's id."""
        name = f"{self.name}-{next(_numbers)}"
        asked = {"model": "tiny", "prompt": list(prompt), "max_tokens": max_tokens, "temperature": 0}
        body = asked | {"ignore_eos": True} | more
        sent_ns = time.time_ns()
        answer, _ = call(self.server, "/v1/completions", body)
        line = {"sent_unix_ns": sent_ns, "body": body, "response": answer, "phase": name}
        with self.log.open("a") as log:
            log.write(json.dumps(line) + "\n")
        self.usages[answer["id"]] = answer["usage"]
        return str(answer["id"])

    def send_soon(self, prompt: Sequence[int], max_tokens: int = 1, **more: Any) -> Future[str]:
        """Ask, and return once the core has the request in its queue."""
        before = self.server.engine._in_core
        future = _pool.submit(self.send, prompt, max_tokens, **more)
        wait_until(lambda: self.server.engine._in_core > before or future.done())
        return future

    def push_down(self) -> None:
        """Everything cached leaves the device for the next tier."""
        self.server.faults.add("evict=1,every_s=1000")
        self.send([7], 1)
        self.server.faults.clear()

    @contextmanager
    def fault(self, spec: str) -> Iterator[None]:
        """A fault that is on for a while."""
        self.server.faults.add(spec)
        yield
        self.server.faults.clear()

    def forget(self) -> None:
        """Reset the prefix cache."""
        self.server.engine.reset_prefix_cache()

    def is_empty(self) -> bool:
        """Whether nothing is cached on any tier."""
        return not any(self.server.engine._cache.index.cached)

    def restart(self) -> None:
        """End it, and begin again at the same addresses with an empty cache."""
        self.settle()
        source = self.server.telemetry.kv_event_sources()["0"]
        self._told += self._batches()
        telemetry = TelemetryConfig(
            self._telemetry.otlp,
            service_name=self.name,
            kv_events=source["endpoint"],
            kv_replay=source["replay_endpoint"],
        )
        port = self.server.port
        self._life.close()
        self.server = self._life.enter_context(serving(self.config, telemetry, port=port))
        before = self._messages()
        while (
            self._messages() == before
        ):  # what is published before the collector is there again it asks for later
            self.send([next(_numbers) % 2000 for _ in range(17)])
            time.sleep(0.05)

    def settle(self) -> None:
        """Wait until the collector was told all there is."""
        wait_until(lambda: is_idle(self.server), 60)
        assert self.server.telemetry._sender is not None
        self.server.telemetry._sender.flush(30)
        counted = self._told + self._batches()
        wait_until(lambda: self._messages() == counted, 60)
        wait_until(lambda: self._count("LogTail", "rows") == len(self.usages), 60)

    def close(self) -> None:
        """Stop serving."""
        self._life.close()

    def _messages(self) -> int:
        return self._count("KvSubscriber", "messages")

    def _count(self, source: str, name: str) -> int:
        found = next(one for one in self.attachment.sources if type(one).__name__ == source)
        return int(found.status().counts.get(name, 0))

    def _batches(self) -> int:
        publisher = self.server.telemetry._publisher
        assert publisher is not None
        wait_until(lambda: not publisher._waiting)
        return int(publisher.counts["published"])


@contextmanager
def fleet(dsn: str, folder: Path, configs: Mapping[str, EngineConfig]) -> Iterator[dict[str, Replica]]:
    """Replicas by name; everything they told is in the store when it ends."""
    with ExitStack() as stack:
        pipeline = stack.enter_context(Pipeline(dsn, folder / "spool"))
        door = stack.enter_context(listening(pipeline.sink))
        memory = ChainMemory()
        replicas = {
            name: Replica(name, config, door.endpoint, pipeline.sink, folder, memory)
            for name, config in configs.items()
        }
        for replica in replicas.values():
            stack.callback(replica.close)
            stack.enter_context(replica.attachment)
        yield replicas
        for replica in replicas.values():
            replica.settle()
        client = stack.enter_context(_connected(dsn))
        sent = sum(len(replica.usages) for replica in replicas.values())
        wait_until(lambda: _count(client, "request_chains") == sent == _count(client, "requests"), 60)


@contextmanager
def _connected(dsn: str) -> Iterator[Client]:
    client = connect(dsn)
    yield client
    client.close()


def _count(client: Client, table: str) -> int:
    return int(client.query(f"SELECT count() FROM {table}").result_rows[0][0])
