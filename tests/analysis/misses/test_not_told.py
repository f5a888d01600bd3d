"""What nothing tells is called so: no hit share of 0 % without a figure, no advice in vain."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest
from clickhouse_connect.driver.client import Client

from analysis.misses.explain import explain
from analysis.misses.explain_text import answer
from analysis.misses.next_steps import next_steps
from analysis.misses.parts import HITS, PARTS
from analysis.misses.report import MOST_LINES, OTHERS, build
from analysis.misses.report_model import CeilingLine, MissLine, MissReport
from analysis.misses.tables import tables
from analysis.misses.text import describe
from analysis.misses.typical import typical
from analysis.selection import Selection
from cachemodel.errors import UsageError, UserError
from tests.analysis.misses.build import BLOCK, World
from tests.analysis.misses.stored_world import insert, insert_all, keyed, moment, put, put_all, rows_of
from tests.conftest import Database

LATER = 100_000
NOW = datetime(2026, 11, 29, 12, 30, tzinfo=UTC)


def counted(store: Client, server: str, *samples: tuple[int, float, float]) -> None:
    """Counters of a server: at which times it had grown by so many hits and queries."""
    names = {1: "prefix_cache.hit_tokens", 2: "prefix_cache.query_tokens"}
    insert(store, "series", [
        {"fingerprint": key, "server": server, "metric": name, "raw_name": name, "kind": "counter", "labels": {}}
        for key, name in names.items()
    ])  # fmt: skip
    insert(store, "samples", [
        {"time": moment(at), "fingerprint": key, "value": 0.0, "delta": grown}
        for at, *both in samples for key, grown in zip(names, both, strict=True)
    ])  # fmt: skip


def test_without_prompts_and_usage_hits_are_not_known(db: Database) -> None:
    """Spans and KV events, no request log: the counters of the server are what is left."""
    put(db.client, World().served("ABC", 0, known=False).served("ABCD", LATER, found=3, known=False))
    keyed(db.client)
    report = build(db.client, "", now=NOW)
    assert (report.total.parts, report.total.untold) == ({"unknown": 112}, 112)
    assert report.answer == (
        "How much of 112 prompt tokens came from the cache is not known: nothing tells what was served of 112 (usage"
        " with cached_tokens in a request log would)."
    )
    assert [step for step in report.next_steps if "explain" in step or "--by" in step] == []
    assert "its status says how many of them do not fit the server's counts" in report.next_steps[-1]
    cells = next(iter(tables(report))).table.rows[0]
    assert (cells[1], cells[3]) == ("112", "")  # no share of the computed: it may have been served
    found = explain(db.client, "r1")
    assert answer(found) == (
        "How much of its 64 prompt tokens came from the cache is not known: nothing tells whether 64 were served or"
        " computed."
    )
    counted(
        db.client,
        "a",
        (-120_000, 9, 99),
        (-500, 5, 50),
        (60_000, 40, 90),
        (LATER + 9000, 8, 22),
        (600_000, 1, 1),
    )
    assert (
        "the server's own counters say 43% of 112 at about that time." in build(db.client, "", now=NOW).answer
    )


def test_where_some_are_told_it_is_the_least_there_was(store: Client) -> None:
    world = World().served("ABC", 0, cached=0).served("ABC", LATER, found=3, cached=32)
    put(store, world.served("XYZ", 2 * LATER, known=False))
    report = build(store, "", by="word", now=NOW)
    assert report.answer.startswith(
        "At least 22% of 144 prompt tokens came from the cache; of 48 nothing tells whether they did; 75% of the 64"
        " that were computed for certain were computed because they had never been sent before"
    )
    by_word = {row[0]: row for row in list(tables(report))[1].table.rows}
    assert by_word["XYZ"][3:] == ["unknown", "", "nothing tells of 48"]
    assert by_word["ABC"][3:5] == ["33%", "64"]


def test_kv_events_alone_are_shown_without_asking(db: Database) -> None:
    put(db.client, World().store("AB", 0).store("ABC", 500, begin=2))
    report = build(db.client, "", now=NOW)
    assert report.answer.startswith(
        "No request is known of that time; KV events alone tell that 100% of 48 stored"
    )
    assert report.name.startswith("the last hour, up to 2026-11-29 12:30")
    later = build(db.client, "", now=datetime(2026, 12, 9, tzinfo=UTC))
    assert later.name.startswith("the last hour with KV events, up to 2026-11-29 12:00:00")
    with pytest.raises(
        UserError, match=r"no requests yet.*3 KV events have come: ask for a server or a time"
    ):
        build(db.client, "phase=control", now=NOW)


def test_an_empty_store_has_no_requests_whatever_is_asked(store: Client) -> None:
    for asked in ("", "phase=control", "server=a"):
        with pytest.raises(UserError, match="the store has no requests yet"):
            build(store, asked, now=NOW)


def test_an_explanation_names_the_earlier_request_and_what_to_do(store: Client) -> None:
    pieces = [("b", 20), ("c", 20)]
    world = World().served("ABC", 0, cached=0, pieces=pieces).served("UVW", 1000, cached=0)
    world.served("QBC", LATER, cached=0, pieces=[("q", 8), *pieces], split=(0, 7))
    world.served("UVWX", LATER + 5000, found=3, cached=48, split=(3, 4), more=3)
    put(store, world)
    keyed(store)
    moved = explain(store, "r2")
    assert moved.earlier == (
        "tokens 8 to 48 stood in r0 (100 s before), behind something else; the prompt differs from all earlier ones"
        " from token 7 on"
    )
    assert [step.partition(":")[0] for step in moved.next_steps[:-1]] == ["changed", "unaligned"]
    assert moved.next_steps[-1].startswith("hitmap advise requests.jsonl    # which part of the prompts")
    assert explain(store, "r3").earlier == "the same as r1 (104 s before) up to token 52"
    first = explain(store, "r0")
    assert first.earlier == ""
    assert [step.partition(":")[0] for step in first.next_steps] == ["cold"]


def test_history_begins_with_the_fleet_that_is_asked_for(store: Client) -> None:
    put_all(store, [(World().served("A", 0, cached=0), "m1", "old-"),
                    (World().served("B", LATER, cached=0).served("C", LATER + 9, cached=0), "m2", "new-")])  # fmt: skip
    assert build(store, "server=old-a", now=NOW).history_begin == "2026-11-29T11:59:59.995Z"
    assert build(store, "server=new-a", now=NOW).history_begin == "2026-11-29T12:01:39.995Z"
    both = build(store, "", now=NOW)
    assert both.history_begin == "2026-11-29T12:01:39.995Z"
    assert both.histories == {"m1": "2026-11-29T11:59:59.995Z", "m2": "2026-11-29T12:01:39.995Z"}
    assert (
        "what was sent before 2026-11-29 11:59:59.995 UTC (m1), 2026-11-29 12:01:39.995 UTC (m2) cannot be known: it"
        " counts as cold"
    ) in both.warnings


def test_a_typical_request_is_the_middle_one_of_the_worst_group() -> None:
    parts = np.zeros((6, len(PARTS)), np.int64)
    parts[:, PARTS.index("changed")] = [100, 30, 20, 10, 0, 90]
    parts[:, PARTS.index("cold")] = [0, 0, 0, 0, 200, 0]
    parts[:, PARTS.index(HITS[0])] = 1000
    ids = np.array(list("uvwxyz"), dtype=object)
    groups = np.array(["p", "p", "p", "p", "p", "q"], dtype=object)
    assert typical(ids, groups, parts) == ("v", "p")
    assert typical(ids, groups, np.zeros_like(parts)) == ("", "")


def report_of(parts: dict[str, int], attainable: int, achieved: int) -> MissReport:
    line = MissLine("", 1, 1, sum(parts.values()), parts)
    ceiling = CeilingLine("a", 16, 0, 0, line.prompt, achieved, attainable, None)
    return MissReport("all", "server", "2026-11-29T12:00:00Z", "2026-11-29T12:00:00Z", 1, 0, "", line,
                      [line, line], [], [ceiling], [])  # fmt: skip


@pytest.mark.parametrize(
    ("attainable", "told"),
    [(10, "gives none of these tokens back"), (14, "gives back 4 of these 100 tokens at most"), (90, "")],
)
def test_room_is_not_praised_where_the_ceiling_is_near(attainable: int, told: str) -> None:
    (step,) = next_steps(report_of({"device": 10, "evicted/capacity": 100, "changed": 5}, attainable, 10))
    assert step.startswith("evicted/capacity: give KV more room")
    assert (told in step) if told else "alone" not in step


def test_next_steps_are_for_what_is_worth_it() -> None:
    steps = next_steps(report_of({"cold": 900, "changed": 60, "isolated": 30}, 0, 0), "r1", "phase=ts front")
    assert [step.partition(":")[0] for step in steps[:1]] == ["changed"]
    assert steps[1:] == [
        "hitmap advise requests.jsonl    # which part of the prompts, and what to write instead",
        "hitmap misses 'phase=ts front'    # the group with most of it",
        "hitmap explain r1    # a prompt typical of it, token by token",
    ]


def test_the_smallest_groups_are_told_together(store: Client) -> None:
    world = World()
    for number in range(MOST_LINES + 3):
        world.served(f"{chr(0x100 + number)}A"[: 1 + (number < MOST_LINES)], number * 1000, cached=0)
    put(store, world)
    lines = build(store, "", by="word", now=NOW).lines
    assert len(lines) == MOST_LINES + 1
    assert (lines[-1].key, lines[-1].requests, lines[-1].prompt) == (OTHERS, 3, 3 * BLOCK)
    assert sum(line.prompt for line in lines) == (2 * MOST_LINES + 3) * BLOCK


def test_of_what_was_computed_and_of_what_may_have_been_is_told_apart(store: Client) -> None:
    """No prompt is known; the server says of one request what it served, of the other it does not."""
    world = World().served("ABC", 0, known=False, cached=16).served("ABCD", LATER, known=False)
    put(store, world)
    report = build(store, "", now=NOW)
    assert (report.total.parts, report.total.untold) == ({"cached": 16, "unknown": 96}, 64)
    assert report.answer.endswith(
        "; nothing tells why any of the 32 that were computed for certain were: no prompt is known."
    )
    row = {row[0]: row for row in next(iter(tables(report))).table.rows}["unknown"]
    assert row[1:] == [
        "96",
        "86%",
        "100%",
        "nothing tells why they were computed; of 64 not even whether they were",
    ]
    told = build(store, "word=ABC", now=NOW)
    assert told.answer.endswith("; nothing tells why any of the 32 computed ones were: no prompt is known.")
    assert next(iter(tables(told))).table.rows[-1][-1] == "nothing tells why they were computed"


def test_where_some_prompts_are_known_the_share_without_a_reason_is_told(store: Client) -> None:
    put(store, World().served("ABC", 0, known=False, cached=0).served("XY", LATER, cached=0))
    answer_of = build(store, "", now=NOW).answer
    assert answer_of.endswith(
        "; nothing tells why 60% of the 80 computed ones were. Next: 40% because they had never been sent before."
    )
    put(store, World().served("UVWXYZ", 2 * LATER, cached=0))
    answer_of = build(store, "", now=NOW).answer
    assert answer_of.endswith("because they had never been sent before. Of another 27% nothing tells why.")


@pytest.mark.parametrize(
    ("asked", "by", "told"),
    [
        ("", "model", "hitmap misses --by template    # who it is"),
        ("server=a,word=A*", "server", "hitmap misses 'server=a,word=A*' --by template    # who it is"),
        (" -9d/now,server=a", "template", "hitmap misses -9d/now,server=a --by server    # who it is"),
        (
            Selection("it", "server = 'a'", asked="server=a"),
            "server",
            "hitmap misses server=a --by template    # who it is",
        ),
    ],
)
def test_a_command_is_about_what_was_asked_for(
    store: Client, asked: str | Selection, by: str, told: str
) -> None:
    put(store, World().served("ABC", 0, cached=0).served("ABCD", 1000, found=3, cached=48))
    assert build(store, asked, by=by, now=NOW).next_steps[-1] == told


def test_the_group_with_most_of_it_is_of_the_time_that_was_asked_for(store: Client) -> None:
    put(store, World({"a": 1, "b": 1}).served("ABC", 0, "a", cached=0).served("XYZU", 1000, "b", cached=0))
    soon = datetime(2026, 11, 29, 12, 30, tzinfo=UTC)
    for asked, told in (("", "-1h/now,server=b"), ("model=m", "model=m,server=b")):
        assert (
            f"hitmap misses {told}    # the group with most of it" in build(store, asked, now=soon).next_steps
        )


def test_a_template_has_an_example_and_can_be_asked_for(store: Client) -> None:
    """By the first digits, as they are shown; what has no chain has none."""
    world = World().served("ABC", 0, cached=0).served("XY", 1000, cached=0).served("UVWX", 2000, cached=0)
    rows = rows_of(world.served("Q", 3000, known=False, cached=0))
    for row, name in zip(
        rows["request_chains"], (0x000B2CB800000001, 0xFF00000000000000, 0x000B2CB800000001), strict=True
    ):
        row["template"] = name
        row["isolation"] = 0x00ABCDEF00000000 if name >> 63 else 0
    insert_all(store, rows)
    report = build(store, "", by="template", now=NOW)
    assert {line.key: (line.requests, line.example) for line in report.lines} == {
        "000b2cb8": (2, "r2"),
        "ff000000": (1, "r1"),
        "(none)": (1, "r3"),
    }
    table = list(tables(report))[1].table
    assert table.columns[-1].heading == "such as"
    assert table.rows[0][-1] == "r2"
    worst = "-1h/now,template=000b2cb8"
    assert f"hitmap misses {worst}    # the group with most of it" in report.next_steps
    assert build(store, worst, now=NOW).total.requests == 2
    assert build(store, "template=000b2cb800000001,server=a", now=NOW).total.prompt == 7 * BLOCK
    assert build(store, "isolation=00abcdef", now=NOW).total.prompt == 2 * BLOCK
    with pytest.raises(UserError, match="no request matches 'template=1234'"):
        build(store, "template=1234", now=NOW)
    with pytest.raises(UsageError, match="no column or label 'template'"):
        build(store, "template=chat", now=NOW)


def test_one_group_is_named(store: Client) -> None:
    put(store, World().served("ABC", 0, cached=0))
    assert describe(build(store, "", by="model", now=NOW)).endswith(" UTC, all of one model: m")
