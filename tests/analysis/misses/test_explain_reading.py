"""What `explain` asks the store for: few questions, each answered in full."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from clickhouse_connect.driver.client import Client

from analysis.misses.explain import explain
from analysis.misses.find import find
from analysis.misses.standing import Standing, standing
from cachemodel.alignment import Alignment
from tests.analysis.misses.build import BLOCK, World
from tests.analysis.misses.stored_world import START, Row, insert, keyed, moment, put

LATER = 100_000
SECOND_US = 1_000_000


def request(at: timedelta, **more: Any) -> Row:
    return {
        "time": START + at,
        "server": "vllm-a",
        "model": "m",
        "dialect": "vllm",
        "request_id": "twice",
        "ttft_us": 20_000,
    } | more


@pytest.mark.parametrize("apart", [timedelta(seconds=1), timedelta(hours=3), timedelta(days=40)])
def test_the_latest_of_several_of_one_id_is_found(store: Client, apart: timedelta) -> None:
    late = apart + timedelta(microseconds=999_999)  # the last moment of its second
    insert(store, "requests", [request(timedelta(0), span_id=1), request(late, span_id=2)])
    insert(store, "requests", [request(apart / 2, span_id=3, request_id="other")])
    keyed(store)
    found = find(store, "twice")
    assert found.time == int((START + late).timestamp()) * SECOND_US + 999_999
    assert found.until == found.time + 20_000
    assert find(store, "oth").request_id == "other"


def test_what_is_known_of_servers_is_the_newest(store: Client) -> None:
    assert standing(store) == Standing({}, {}, {})
    of = {"kind": "vllm"}
    insert(
        store,
        "servers",
        [
            {"time": moment(0), "server": "a", "models": ["old"], **of},
            {"time": moment(1), "server": "a", "models": ["new", ""], **of},
            {"time": moment(0), "server": "b", "models": [], **of},
        ],
    )
    canary = {"origin": "canary", "run": "1", "samples": 1}
    told = [
        ("a", "alignment.unit", 0, 16.0, 16.0),
        ("a", "alignment.unit", 1, 32.0, 32.0),
        ("a", "alignment.unit", 2, 64.0, 128.0),  # not certain
        ("a", "alignment.dropped_units", 1, 1.0, 1.0),
        ("b", "alignment.unit", 0, 64.0, 128.0),
    ]
    insert(
        store,
        "findings",
        [
            {
                "time": moment(at),
                "server": server,
                "name": name,
                "value": low,
                "low": low,
                "high": high,
                **canary,
            }
            for server, name, at, low, high in told
        ],
    )
    put(store, World({"c": 1}).served("AB", 0, "c").served("ABC", 1000, "c"))
    found = standing(store)
    assert found.models == {"a": {"new"}}
    assert found.alignments == {"a": Alignment(32, 1)}
    ((size, begun, ended),) = found.sizes["c"]
    assert (size, ended - begun, [*found.sizes]) == (BLOCK, SECOND_US, ["c"])


def test_few_questions_are_asked(store: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each costs milliseconds before it reads a row."""
    world = World({"vllm-a": 1, "vllm-b": 1}).served("ABCDEF", 0, "vllm-b").served("ABCD", 1000, "vllm-a")
    world = world.remove("ABCD", 61_000, "vllm-a", begin=2).store("Q", 61_000, "vllm-a")
    put(store, world.served("ABCDEFG", LATER, "vllm-a", found=2, cached=32, more=4))
    keyed(store)
    attached = ({"server": name, "time": START, "kind": "vllm", "models": ["m"]} for name in world.servers)
    insert(store, "servers", [*attached])
    asked: list[str] = []
    for name in ("query", "query_arrow"):
        plain = getattr(store, name)

        def counted(sql: str, *rest: Any, plain: Any = plain, **more: Any) -> Any:
            asked.append(sql)
            return plain(sql, *rest, **more)

        monkeypatch.setattr(store, name, counted)
    found = explain(store, "r2")
    assert found.earlier.startswith("the same as r0 ")
    assert len(asked) == 11, [" ".join(sql.split())[:80] for sql in asked]


def test_a_run_that_was_sent_in_several_prompts_says_from_when_to_when(store: Client) -> None:
    """Most of it stood in r0, its beginning in r1 only: the header and the row are of one story."""
    world = World().served("ABC", 0, cached=0, pieces=[("b", 16), ("c", 16), ("d", 16)])
    world.served("UVW", LATER - 5000, cached=0, pieces=[("a", 16), ("u", 32)])
    put(store, world.served("XYZ", LATER, cached=0, pieces=[("a", 16), ("b", 16), ("c", 16)]))
    keyed(store)
    found = explain(store, "r2")
    assert [run.evidence for run in found.runs] == [
        "sent before, behind something else, first 100 s to 5 s before"
    ]
    assert found.earlier.startswith("most of tokens 0 to 48 stood in r0 (100 s before)")


def said(*names: str) -> list[tuple[str, int]]:
    """Pieces, each a block long."""
    return [(name, BLOCK) for name in names]


def test_a_conversation_that_grows_names_its_last_turn(store: Client) -> None:
    """Each turn has all of the ones before behind a clock: its pieces were first sent by all of them, the longest part
    by the first one."""
    turns, world = 20, World()
    for turn in range(turns):
        text = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[: 6 + turn]
        clock = chr(0x100 + turn)
        world.served(clock + text, turn * LATER, cached=0, pieces=said(clock, *text))
    put(store, world)
    keyed(store)
    for turn in (1, 2, turns - 1):
        assert explain(store, f"r{turn}").earlier.startswith(
            f"tokens 16 to {(6 + turn) * BLOCK} stood in r{turn - 1} (100 s before), behind something else"
        )


def test_what_a_turn_shares_with_the_one_before_it_stood_in_it_too(store: Client) -> None:
    """Within a minute the clock is the same: a row has the pieces of what is new in it only. A prompt that goes on
    otherwise has nothing of what follows."""
    world = World().served("1AB", 0, cached=0, pieces=said(*"1ab"), more=8)
    world.served("1AX", 50, cached=0, pieces=said("x", "c"), pieces_from=2 * BLOCK)
    world.served("1ABCD", LATER, cached=0, pieces=said(*"cd"), pieces_from=3 * BLOCK)
    world.served("1ABQ", LATER + 50, cached=0, pieces=said(*"q"), pieces_from=3 * BLOCK)
    put(store, world.served("2ABCD", 2 * LATER, cached=0, pieces=said(*"2abcd")))
    keyed(store)
    assert explain(store, "r4").earlier.startswith("tokens 16 to 80 stood in r2 (100 s before)")


def test_of_a_passage_in_several_places_the_one_with_most_of_it_is_named(store: Client) -> None:
    """By tokens, the latest of several: who had sent a piece again, and nothing new with it, is not asked for."""
    world = World().served("1AB", 0, cached=0, pieces=said(*"1ab"))
    world.served("2ABC", 1000, cached=0, pieces=said(*"2abc")).served(
        "3AB", 2000, cached=0, pieces=said(*"3ab")
    )
    world.served("5DEFG", 3000, cached=0, pieces=[("5", BLOCK), ("defg", 4 * BLOCK)])
    world.served("6HIJK", 4000, cached=0, pieces=[("6", BLOCK), ("hijk", 4 * BLOCK)])
    passage = [*said(*"4abc"), ("defg", 4 * BLOCK), ("hijk", 4 * BLOCK)]
    put(store, world.served("4ABCDEFGHIJK", LATER, cached=0, pieces=passage))
    keyed(store)
    assert explain(store, "r5").earlier.startswith("some of tokens 16 to 192 stood in r4 (96 s before)")
