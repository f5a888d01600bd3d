"""Field reports about what is told of requests, in a real store: work done twice, and hits that bring no speed. Each
test is named after the row of the list of threads (README.md has the table)."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
from clickhouse_connect.driver.client import Client

from analysis.misses.explain import explain
from analysis.misses.explain_text import described
from analysis.misses.report import build as misses
from analysis.misses.tables import tables
from analysis.report.build import build
from analysis.report.metrics import METRICS
from analysis.report.model import Report
from analysis.report.reader import read
from analysis.selection import Selection
from tests.analysis.misses.build import World
from tests.analysis.misses.stored_world import insert, keyed, moment, put
from tests.conftest import Database

NOW = datetime(2026, 11, 29, 12, 30, tzinfo=UTC)
LATER = 100_000
_PROMPT, _SHARED = 998, 944  # tokens: 94.6 % of each prompt


def test_row_29_what_is_computed_again_is_no_hit(db: Database) -> None:
    """Random prompts, a third of whose tokens was computed twice."""
    world = World()
    for at, word in enumerate(("ABC", "DEF", "GHI")):
        world.served(word, at * 1000, cached=0, recomputed=16)
    put(db.client, world)
    report = misses(db.client, "", now=NOW)
    assert report.total.parts == {"cold": 3 * 48}
    assert report.total.recomputed == 48
    assert report.answer.startswith("0% of 144 prompt tokens came from the cache")


def test_row_111_a_loop_of_preemptions_leaves_the_causes_of_the_prompt(db: Database) -> None:
    put(db.client, World().served("ABC", 0, cached=0, recomputed=5 * 48))
    report = misses(db.client, "", now=NOW)
    assert (report.total.prompt, report.total.parts) == (48, {"cold": 48})
    causes = next(iter(tables(report))).table.rows
    assert ["recomputed", "240", "", "", "again after a preemption, beside the prompt"] in causes


def test_row_112_which_request_was_preempted_and_what_was_lost(db: Database) -> None:
    world = World().served("ABC", 0, cached=0, recomputed=0).served("DEF", 1000, cached=0, recomputed=32)
    put(db.client, world.served("GHI", 2000, cached=0))  # of this one nothing is told
    keyed(db.client)
    lost = [explain(db.client, name) for name in ("r0", "r1", "r2")]
    assert [found.recomputed for found in lost] == [0, 32, None]
    said = "32 tokens were computed again after a preemption, beside these"
    assert [said in described(found) for found in lost] == [False, True, False]
    by_word = misses(db.client, "", by="word", now=NOW).lines
    assert {line.key: line.recomputed for line in by_word} == {"ABC": 0, "DEF": 32, "GHI": None}


def test_row_114_a_full_cache_evicts_and_computes_twice(db: Database) -> None:
    world = World().served("ABC", 0, cached=0, recomputed=0).served("XYZ", LATER - 9000, cached=0)
    world.remove("ABC", LATER - 8990).served("ABC", LATER, cached=0, recomputed=48)
    put(db.client, world)
    report = misses(db.client, "word=ABC", now=NOW)
    assert report.total.parts == {"cold": 48, "evicted/capacity": 48}
    assert report.total.recomputed == 48


def test_row_115_hits_alone_promise_no_speed(db: Database) -> None:
    """Decode is nearly all of the time: what was not computed does not show in it."""
    _serve(db.client, "off", 0, cached=0, prefill_ms=45, decode_ms=900)
    _serve(db.client, "on", 1, cached=_SHARED, prefill_ms=5, decode_ms=900)
    report = _compared(db.client)
    assert report.answer.startswith("No clear change: ")
    assert report.answer.endswith("Cached prompt tokens went from 0.0% to 94.6%.")
    told = misses(db.client, "phase=on", now=NOW)
    assert told.answer.startswith("95% of")
    for text in (report.answer, told.answer, *told.next_steps, *told.warnings):
        assert not any(promise in text.lower() for promise in (" fell ", "faster", "speed", "saves", "gain"))


def test_row_115_a_gain_that_is_measured_is_told_as_such(db: Database) -> None:
    """The same hits where prefill is what takes the time."""
    _serve(db.client, "off", 0, cached=0, prefill_ms=900, decode_ms=45)
    _serve(db.client, "on", 1, cached=_SHARED, prefill_ms=60, decode_ms=45)
    report = _compared(db.client)
    assert " fell from " in report.answer
    assert "Where it shows: prefill -" in report.answer


def _serve(
    client: Client, phase: str, seed: int, *, cached: int, prefill_ms: float, decode_ms: float
) -> None:
    """60 requests a second apart, whose times scatter by a quarter."""
    rng = np.random.default_rng(seed)
    scatter = rng.normal(1, 0.25, (60, 2)).clip(0.3)
    insert(client, "requests", [
        {
            "time": moment(seed * 60_000 + number * 1000), "server": "a", "model": "m", "dialect": "vllm",
            "request_id": f"115-{phase}-{number}", "span_id": 1 + seed * 60 + number, "queue_us": 1000,
            "prefill_us": int(1000 * prefill_ms * first), "decode_us": int(1000 * decode_ms * rest),
            "e2e_us": 1000 + int(1000 * prefill_ms * first) + int(1000 * decode_ms * rest),
            "prompt_tokens": _PROMPT, "cached_tokens": cached, "labels": {"phase": phase},
        }
        for number, (first, rest) in enumerate(scatter.tolist())
    ])  # fmt: skip


def _compared(client: Client) -> Report:
    """The end-to-end times of "on" beside those of "off"."""
    names = ("phase=off", "phase=on")
    chosen = (Selection(name, f"labels['phase'] = '{name[6:]}'", {}) for name in names)
    off, on = (read(client, selection, METRICS["e2e"]) for selection in chosen)
    return build(METRICS["e2e"], 0.5, names, (off, on), [], "--a phase=off --b phase=on")
