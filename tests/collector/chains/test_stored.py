"""Chains in the store: those of the recording are what its KV events say, and no text is where it must not be."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from collector.attach import Attachment, AttachOptions, detect
from collector.chains.settings import Capture, ChainSettings
from collector.kinds import KINDS
from collector.pipeline import Pipeline
from collector.resume import Stored
from store.client import connect
from tests.collector.chains.support import logged, write
from tests.collector.publisher import Publisher, recorded
from tests.collector.support import HASHER, Server, text, wait_until
from tests.conftest import Database

METRICS = 'vllm:cache_config_info{block_size="32"} 1\n'
PLANTED = {
    "name": ("My name is Zaphira Quellmont", "Zaphira"),
    "mail": ("write to zq@quellmont.example", "quellmont"),
    "card": ("4929 1234 5678 9012", "4929 1234"),
    "key": ("sk-live-Zq81hd7Kp02mQx9tV", "Zq81hd7Kp02"),
}
HARMLESS = "Opening hours of the lighthouse"


@contextmanager
def attached(
    dsn: str, folder: Path, log: Path, chains: ChainSettings, *, stored: bool = False, **options: Any
) -> Iterator[Attachment]:
    """A vLLM server that tells its block size only, watched into a database; in the end all of it is there."""
    with Server({"/metrics": text(METRICS), "/v1/models": text("{}")}) as server:
        watched = AttachOptions("s", log=log, interval_s=9, chains=chains, **options)
        with Pipeline(dsn, folder / "spool") as pipeline:
            known = Stored(lambda: connect(dsn)) if stored else None
            with Attachment(detect(server.url), watched, pipeline.sink, known, hasher=HASHER) as attachment:
                yield attachment


def counts(attachment: Attachment, source: str) -> dict[str, int]:
    return dict(next(one for one in attachment.status() if one.source.startswith(source)).counts)


def test_chains_are_what_the_servers_own_events_say(db: Database, run1: Path, tmp_path: Path) -> None:
    chains = ChainSettings(str(run1.parent / "model"))
    with Publisher() as publisher:
        publisher.send(recorded(run1 / "kv_events.jsonl"))
        kv: dict[str, Any] = {"kv_events": publisher.events, "replay": publisher.replay, "kv_bind": False}
        with attached(db.dsn, tmp_path, run1 / "requests.jsonl", chains, **kv) as attachment:
            wait_until(lambda: counts(attachment, "kv events").get("messages") == 244)
            wait_until(lambda: counts(attachment, "chains").get("right") == 173, 20)
    (row,) = db.client.query(
        "SELECT count(), uniqExact(request_id), sum(prompt_tokens), groupUniqArray(block_size),"
        " groupUniqArray(told_by), countIf(isolation != 0) FROM request_chains"
    ).result_rows
    assert row == (175, 175, 94_499 + 1_179, [32], ["tokenizer"], 6)
    (row,) = db.client.query(
        "SELECT count() FROM request_chains c JOIN request_usage u USING (request_id)"
        " WHERE u.prompt_tokens = c.prompt_tokens"
    ).result_rows
    assert row == (173,)
    # every full block of every prompt was told of by the server, under the same isolation
    missing = """
        SELECT count() FROM (SELECT arrayJoin(blocks) AS content, isolation FROM request_chains) AS sent
        LEFT ANTI JOIN kv_block_events AS told ON sent.content = told.content AND sent.isolation = told.isolation
    """
    assert db.client.query(missing).result_rows == [(0,)]
    sent, views_told = (
        db.client.query(f"SELECT uniqExact({column}) FROM {table}").result_rows
        for column, table in (("arrayJoin(blocks)", "request_chains"), ("content", "chain_blocks"))
    )
    assert views_told == sent
    assert sent[0][0] > 1_000
    before = derived(db)
    for table in ("chain_blocks", "chain_pieces", "chain_sizes"):
        db.client.command(f"TRUNCATE TABLE {table}")
    for (batch,) in db.client.query("SELECT DISTINCT ingest_batch FROM request_chains").result_rows:
        for repair in KINDS["chains"].repairs:
            db.client.command(repair, parameters={"batch": batch})
    assert derived(db) == before, "what a crash keeps from the views is made up for"


def test_no_text_is_kept_that_must_not_be(db: Database, tmp_path: Path) -> None:
    log = tmp_path / "log"
    talk = [
        {"role": "system", "content": HARMLESS},
        *({"role": "user", "content": t} for t, _ in PLANTED.values()),
    ]
    write(log, [logged(1, body={"messages": talk, "user": "zaphira-id"}, response_text="Zaphira, hello")])
    write(log, [logged(2, body={"prompt": " ".join(text for text, _ in PLANTED.values())})])
    secrets = [secret for _, secret in PLANTED.values()]
    for capture in Capture:  # each keeps more than the one before it
        folder = tmp_path / capture
        with attached(db.dsn, folder, log, ChainSettings("approximate", None, capture)) as attachment:
            wait_until(lambda attachment=attachment: counts(attachment, "chains").get("chains") == 2)  # type: ignore[misc]
        spooled = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
        kept = spooled + everything(db)
        assert b"approximation" in kept
        found = [secret for secret in secrets if secret.encode() in kept]
        assert found == (secrets if capture is Capture.FULL else [])
        assert b"zaphira-id" not in kept
        assert (HARMLESS.encode() in kept) == (capture is not Capture.HASHES)
        assert (b"<name>" in kept) == (capture is not Capture.HASHES)


def derived(db: Database) -> list[Any]:
    """What the views made of chains: how many rows, and a sum over all of each."""
    tables = ("chain_blocks", "chain_pieces", "chain_sizes")
    query = "SELECT count(), sum(cityHash64(*)) FROM (SELECT * FROM {} FINAL)"
    return [db.client.query(query.format(table)).result_rows for table in tables]


def everything(db: Database) -> bytes:
    """All rows of all tables, as text."""
    tables = [row[0] for row in db.client.query("SHOW TABLES").result_rows]
    return b"".join(db.client.raw_query(f"SELECT * FROM `{table}` FORMAT JSONEachRow") for table in tables)


def test_a_collector_that_starts_again_adds_nothing(db: Database, tmp_path: Path) -> None:
    """Whatever the rows would be now: here the first of them was not in the log any more."""
    log, chains = tmp_path / "log", ChainSettings("approximate")
    records = [logged(i, f"words that all of them share, then {i}") for i in range(20)]
    write(log, records)
    with attached(db.dsn, tmp_path / "1", log, chains) as attachment:
        wait_until(lambda: counts(attachment, "chains").get("chains") == 20)
    log.unlink()
    write(log, [*records[5:], logged(20)])
    with attached(db.dsn, tmp_path / "2", log, chains, stored=True) as attachment:
        wait_until(lambda: counts(attachment, "chains").get("chains") == 1)
    rows = db.client.query("SELECT count(), uniqExact(request_id) FROM request_chains").result_rows
    assert rows == [(21, 21)]


def test_an_adapter_isolates(db: Database, tmp_path: Path) -> None:
    log = tmp_path / "log"
    models = json.dumps({"data": [{"id": "base", "owned_by": "vllm"}, {"id": "ad", "parent": "base"}]})
    write(
        log, [logged(i, body={"model": model, "prompt": [1] * 40}) for i, model in enumerate(("base", "ad"))]
    )
    with (
        Server({"/metrics": text(METRICS), "/v1/models": text(models)}) as server,
        Pipeline(db.dsn, tmp_path / "spool") as pipeline,
    ):
        options = AttachOptions("s", log=log, interval_s=9)
        with Attachment(detect(server.url), options, pipeline.sink, hasher=HASHER) as attachment:
            wait_until(lambda: counts(attachment, "chains").get("chains") == 2)
    query = "SELECT model, isolation FROM request_chains ORDER BY time"
    assert db.client.query(query).result_rows == [("base", 0), ("ad", HASHER.isolation(0, ["ad"]))]


def test_segments_and_prompts_fit_together(db: Database, tmp_path: Path, run1: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes((run1 / "requests.jsonl").read_bytes())
    chains = ChainSettings(str(run1.parent / "model"), None, Capture.FULL)
    with attached(db.dsn, tmp_path, log, chains) as attachment:
        wait_until(lambda: counts(attachment, "chains").get("right") == 173, 20)
    (row,) = db.client.query(
        "SELECT count(), countIf(length(ends) != length(segments)), min(length(segments)) FROM prompts"
    ).result_rows
    assert row == (175, 0, 2)
    dangling = (
        "SELECT count() FROM (SELECT arrayJoin(segments) AS segment FROM prompts)"
        " WHERE segment NOT IN (SELECT segment FROM segments)"
    )
    assert db.client.query(dangling).result_rows == [(0,)]
    assert db.client.query("SELECT count() - uniqExact(segment) FROM segments").result_rows == [(0,)]
