"""The vLLM recordings in a database, as `hitmap attach --log --tokenizer` puts them there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from clickhouse_connect.driver.client import Client

from collector.aliases import SERVICE, alias
from collector.attach import Attachment, AttachOptions, detect
from collector.chains.settings import ChainSettings
from collector.pipeline import Pipeline
from collector.sink import Entry
from store.client import connect
from store.embedded import Embedded
from tests.collector.publisher import Publisher, recorded
from tests.collector.support import HASHER, Server, text, wait_until

SERVER = "vllm-a"
_METRICS = 'vllm:cache_config_info{block_size="32"} 1\n'


@contextmanager
def database(store: Embedded, name: str) -> Iterator[str]:
    """The DSN of a database of its own, for a module."""
    root = connect(store.dsn)
    root.command(f"CREATE DATABASE {name}")
    yield store.dsn.rpartition("/")[0] + f"/{name}"
    root.command(f"DROP DATABASE {name}")
    root.close()


def take_in(dsn: str, run: Path, folder: Path, *, log: bool = True, spans: bool = True) -> Client:
    """Spans, request log with prompts and KV events of a recording; a client of the database."""
    model = run.parent / "model"
    messages = recorded(run / "kv_events.jsonl")
    requests = run / "requests.jsonl"
    with (
        Publisher() as publisher,
        Server({"/metrics": text(_METRICS), "/v1/models": text("{}")}) as server,
        Pipeline(dsn, folder / "spool") as pipeline,
    ):
        publisher.send(messages)
        pipeline.sink.put([alias(SERVICE, name, SERVER) for name in ("vllm-tiny", "vllm-ext")])
        if spans:
            pipeline.sink.put([Entry("traces", body.read_bytes(), 1) for body in _bodies(run)])
        options = AttachOptions(
            SERVER,
            log=requests if log else None,
            interval_s=9,
            chains=ChainSettings(str(model)),
            kv_events=publisher.events,
            replay=publisher.replay,
            kv_bind=False,
        )
        with Attachment(detect(server.url), options, pipeline.sink, hasher=HASHER) as attachment:
            wait_until(lambda: _count(attachment, "kv events", "messages") == len(messages))
            if log:
                lines = sum(1 for _ in requests.open())
                wait_until(lambda: _count(attachment, "chains", "right", "aborted") >= lines - 2, 30)
    return connect(dsn)


def _bodies(run: Path) -> list[Path]:
    return sorted((run / "otlp").glob("*.bin"))


def _count(attachment: Attachment, source: str, *names: str) -> int:
    counts = next(one for one in attachment.status() if one.source.startswith(source)).counts
    return sum(counts.get(name, 0) for name in names)
