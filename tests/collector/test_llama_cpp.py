"""llama.cpp: what attach says, what its metrics, slots and log become, and that they agree with its responses."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cachemodel.errors import UserError
from collector.attach import Attachment, AttachOptions, detect
from collector.detection import Capability
from collector.dialects.llama_cpp.detect import canonical_names
from collector.finaliser import Finaliser
from collector.pipeline import Pipeline
from collector.resume import Stored
from collector.spool import Spool
from store.client import connect
from tests.collector.servers import llama_cpp
from tests.collector.servers.llama_cpp import RUN_TINY
from tests.collector.support import HASHER, Server, take, text, wait_until

END = 1795954456.0  # about when run_tiny ended


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    opened = Spool(tmp_path / "spool.sqlite")
    yield opened
    opened.close()


def table(server: Server) -> dict[str, Capability]:
    with server:
        detection = detect(server.url)
    assert detection.kind == "llama_cpp"
    return {capability.signal: capability for capability in detection.capabilities}


def test_attach_names_what_it_sees_and_the_flag_for_the_rest() -> None:
    with llama_cpp.new() as server:
        detection = detect(server.url)
    assert (detection.version, detection.models) == ("", ("model/tiny.gguf",))
    assert detection.facts == {
        "total_slots": "4",
        "n_ctx": "4096",
        "model_path": "model/tiny.gguf",
        "model_ftype": "F16",
    }
    rows = {capability.signal: capability for capability in detection.capabilities}
    assert [signal for signal, row in rows.items() if row.seen] == [
        "metrics",
        "prompt-cache hits",
        "tokens in each slot",
    ]
    assert rows["why a prompt was computed (slot chosen, checkpoints, prompt cache)"].flag.startswith(
        "-lv 4 "
    )
    assert "--log FILE" in rows["cached tokens by request"].flag
    assert "LLAMA_SERVER_SLOTS_DEBUG=1" in rows["where two prompts part"].flag
    assert rows["KV-cache events"].seen is False
    assert any(note.startswith("prompt_tokens.computed: cached tokens are not") for note in detection.notes)


def test_a_bare_server_is_told_which_flags_it_lacks() -> None:
    rows = table(llama_cpp.bare())
    assert (rows["metrics"].seen, rows["metrics"].flag) == (False, "--metrics")
    assert (rows["tokens in each slot"].seen, rows["tokens in each slot"].flag) == (
        False,
        "--slots (and no --no-slots)",
    )
    assert rows["tokens in each slot"].evidence == "/slots answers HTTP 501"


def test_an_older_build_does_not_count_cached_tokens() -> None:
    row = table(llama_cpp.old())["prompt-cache hits"]
    assert (row.seen, row.evidence) == (False, "only computed tokens are counted")


def test_a_locked_server_is_known_by_its_models_and_wants_a_key() -> None:
    with llama_cpp.new() as server:
        server.answers["/metrics"] = text("", status=401)
        with pytest.raises(UserError, match=r"/metrics wants a key \(HTTP 401\): pass --api-key"):
            detect(server.url)


def test_a_router_is_read_by_model(spool: Spool) -> None:
    with llama_cpp.router() as server:
        detection = detect(server.url)
        assert detection.metrics_url == ""
        assert detection.capabilities[0].evidence == "a router: by model, as NAME/MODEL, of gemma"
        with Attachment(detection, AttachOptions("r", interval_s=0.05), spool, hasher=HASHER) as attachment:
            wait_until(lambda: all(status.state == "running" for status in attachment.status()))
    assert {row["server"] for row in take(spool, "series")} == {"r/gemma"}
    assert not any("qwen" in path for path, _ in server.requests)


def by_metric(rows: list[dict[str, Any]]) -> dict[str, str]:
    return {row["metric"]: row["raw_name"] for row in rows if row["metric"]}


@pytest.mark.parametrize(
    ("make", "only_here"),
    [
        (llama_cpp.new, {"cached_tokens", "spec_decode.drafts"}),
        (llama_cpp.old, {"kv_cache.usage", "kv_cache.tokens"}),
    ],
)
def test_metrics_of_old_and_new_builds(make: Callable[[], Server], only_here: set[str], spool: Spool) -> None:
    with (
        make() as server,
        Attachment(detect(server.url), AttachOptions("s", interval_s=9), spool, hasher=HASHER) as attachment,
    ):
        wait_until(lambda: attachment.status()[0].counts.get("rows"))
    series = take(spool, "series")
    names = by_metric(series)
    assert names["prompt_tokens.computed"] == "llamacpp:prompt_tokens_total"
    assert "prompt_tokens" not in names, "it includes cached tokens elsewhere"
    assert names["requests.waiting"] == "llamacpp:requests_deferred"
    assert only_here <= names.keys()
    other = {"cached_tokens", "spec_decode.drafts", "kv_cache.usage", "kv_cache.tokens"} - only_here
    assert not other & names.keys()
    kinds = {row["metric"]: row["kind"] for row in series}
    assert kinds["sequence.tokens_max"] == "gauge", "a high-water mark, though declared a counter"
    assert kinds["completion_tokens"] == "counter"


def test_a_high_water_mark_has_no_growth(spool: Spool) -> None:
    with llama_cpp.new() as server:
        options = AttachOptions("s", interval_s=0.05)
        with Attachment(detect(server.url), options, spool, hasher=HASHER) as attachment:
            wait_until(lambda: attachment.status()[0].counts.get("scrapes", 0) > 2)
    names = {row["fingerprint"]: row["metric"] for row in take(spool, "series")}
    deltas: dict[str, set[float | None]] = {}
    for row in take(spool, "samples"):
        deltas.setdefault(names[row["fingerprint"]], set()).add(row["delta"])
    assert deltas["sequence.tokens_max"] == {None}
    assert deltas["completion_tokens"] == {None, 0.0}


def test_slots_become_samples_by_slot_without_text(spool: Spool) -> None:
    with llama_cpp.new() as server:
        server.answers["/slots"] = text(
            llama_cpp.DURING_MIXED_SLOTS.replace('"id":0,', '"id":0,"prompt":"my secret",', 1)
        )
        with Attachment(
            detect(server.url), AttachOptions("s", interval_s=9), spool, hasher=HASHER
        ) as attachment:
            wait_until(lambda: attachment.status()[1].counts.get("rows"))
        assert attachment.status()[1].source == "slots s"
    series = {row["fingerprint"]: row for row in take(spool, "series")}
    assert "secret" not in str(series)
    values = {}
    for row in take(spool, "samples"):
        told = series[row["fingerprint"]]
        if told["raw_name"].startswith("slots."):
            values[told["metric"], told["labels"]["slot"]] = row["value"]
    for slot, held, computed, cached in (("0", 390, 381, 3), ("2", 372, 1, 366), ("3", 390, 383, 3)):
        assert values["slot.tokens", slot] == held
        assert (values["slot.computed_tokens", slot], values["slot.cached_tokens", slot]) == (
            computed,
            cached,
        )


def test_an_idle_slot_tells_nothing_of_hits(spool: Spool) -> None:
    with llama_cpp.new() as server:
        server.answers["/slots"] = text((RUN_TINY / "slots_L1_13_after_mixed.json").read_text())
        with Attachment(
            detect(server.url), AttachOptions("s", interval_s=9), spool, hasher=HASHER
        ) as attachment:
            wait_until(lambda: attachment.status()[1].counts.get("rows"))
    names = by_metric(take(spool, "series"))
    assert "slot.tokens" in names
    assert not {"slot.cached_tokens", "slot.computed_tokens"} & names.keys()


@pytest.mark.parametrize("answer", ["{}", "[1]", "nothing", '[{"id":0,"n_ctx":' + "9" * 400 + "}]"])
def test_odd_slots_are_said_and_do_not_stop_the_rest(answer: str, spool: Spool) -> None:
    with llama_cpp.new() as server:
        detection = detect(server.url)
        server.answers["/slots"] = text(answer)
        with Attachment(detection, AttachOptions("s", interval_s=0.05), spool, hasher=HASHER) as attachment:
            wait_until(lambda: attachment.status()[1].counts.get("malformed"))
            wait_until(lambda: attachment.status()[0].state == "running")
            wait_until(lambda: attachment.status()[1].state == "failing")


def test_slots_names_are_in_the_table() -> None:
    exposed = {"slots.n_prompt_tokens", "slots.is_processing", "llamacpp:prompt_tokens"}
    assert {metric.name for metric in canonical_names(exposed).values()} == {
        "slot.tokens",
        "slot.busy",
        "prompt_tokens.computed",
    }


# The whole path: run_tiny's metrics, responses and log through real sockets and files into a real store.


def collected(db: Any, folder: Path, stored: Stored | None = None) -> None:
    """Let the capture happen to a server that is attached, then wait until the store has all of it."""
    texts = [file.read_text() for file in sorted((RUN_TINY / "metrics").iterdir())]
    for name in ("requests.jsonl", "server.log"):
        shutil.copy(RUN_TINY / name, folder / name)
    os.utime(folder / "server.log", (END, END))
    options = AttachOptions(
        "llama", log=folder / "requests.jsonl", server_log=folder / "server.log", interval_s=0.05
    )
    finaliser = partial(Finaliser, grace_s=0.5)
    with llama_cpp.new() as server:
        server.answers["/metrics"] = text(texts[0])
        detection = detect(server.url)
        with (
            Pipeline(db.dsn, folder / "spool", finaliser=finaliser) as pipeline,
            Attachment(detection, options, pipeline.sink, stored, hasher=HASHER) as attachment,
        ):
            scraper, *_, log, _, server_log = attachment.sources  # between them the chains
            for body in texts:
                server.answers["/metrics"] = text(body)
                scrapes = scraper.status().counts.get("scrapes", 0)
                wait_until(lambda at=scrapes: scraper.status().counts.get("scrapes", 0) > at + 1)  # type: ignore[misc]
            wait_until(lambda: log.status().counts.get("rows") == 168, timeout_s=60)
            wait_until(lambda: server_log.status().state == "running", timeout_s=60)
            count = "SELECT count() FROM requests"
            wait_until(lambda: db.client.query(count).result_rows == [(168,)], timeout_s=60)
    db.client.command("OPTIMIZE TABLE series FINAL")


def one(db: Any, sql: str) -> tuple[Any, ...]:
    return tuple(db.client.query(sql).result_rows[0])


def test_run_tiny_adds_up(db: Any, tmp_path: Path) -> None:
    collected(db, tmp_path)
    growth = dict(
        db.client.query(
            "SELECT metric, sum(delta) FROM samples JOIN series USING (fingerprint)"
            " WHERE metric IN ('prompt_tokens.computed', 'cached_tokens') GROUP BY metric"
        ).result_rows
    )
    assert growth == {"prompt_tokens.computed": 42_378, "cached_tokens": 54_834}
    # What 166 responses say of themselves. Two clients went away before theirs said anything: unknown, not 0.
    told = "count(), sum(cached_tokens), sum(prompt_tokens - cached_tokens), sum(completion_tokens)"
    assert one(db, f"SELECT {told} FROM requests WHERE cached_tokens IS NOT NULL") == (
        166,
        54_484,
        41_516,
        3_488,
    )
    aborted = "SELECT groupArray((prompt_tokens, finish_reason)) FROM requests WHERE cached_tokens IS NULL"
    assert one(db, aborted) == ([(None, "abort"), (None, "abort")],)
    # The log knows both of them, and explains what the counters have more to the token.
    request = "FROM otel_logs WHERE ServiceName = 'llama' AND EventName = 'llama_cpp.request'"
    sums = "sum(toInt64(LogAttributes['cached_tokens'])), sum(toInt64(LogAttributes['computed_tokens']))"
    gone = one(db, f"SELECT count(), {sums} {request} AND LogAttributes['cancelled'] = 'true'")
    assert gone == (2, 54_834 - 54_484, 42_378 - 41_516)
    # Two native completions came after the last scrape: 23 and 1 tokens computed, 22 cached.
    assert one(db, f"SELECT count(), {sums} {request}") == (170, 54_834 + 22, 42_378 + 24)
    signals = "SELECT kind, version, arrayFilter(s -> s.seen, signals).signal FROM servers"
    assert one(db, signals) == (
        "llama_cpp",
        "",
        ["metrics", "prompt-cache hits", "tokens in each slot"],
    )
    layers = "SELECT sum(prefill_us), count(prefill_us), count(decode_us) FROM requests"
    assert one(db, layers) == (52_669_278, 166, 166)


def test_a_log_read_again_adds_nothing(db: Any, tmp_path: Path) -> None:
    count = "SELECT count(), uniqExact(Timestamp, LogAttributes['uptime_us'], EventName, LogAttributes) FROM otel_logs"
    for run in ("first", "second"):
        (tmp_path / run).mkdir()
        collected(db, tmp_path / run, Stored(partial(connect, db.dsn)))
        assert one(db, count) == (1_862, 1_862)
    newest = Stored(partial(connect, db.dsn)).log_position("llama")
    assert newest is not None
    assert newest.uptime_us == 68_156_870
    assert newest.time_s == pytest.approx(END - 0.3935, abs=1e-3)
