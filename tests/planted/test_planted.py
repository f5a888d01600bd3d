"""Tokens whose cause is known by construction, on live engines: at least 98 of 100 must come out of the ladder right.

`pytest -s tests/planted` prints a line a case.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from clickhouse_connect.driver.client import Client

from cachemodel.alignment import Alignment
from store.client import connect
from store.embedded import Embedded
from store.migrate import migrate
from tests.engine.stored import database
from tests.planted.book import Book
from tests.planted.cases import configs, plant_all
from tests.planted.climbing import Climbed, climbed, right, table
from tests.planted.fleet import fleet

SHARE = 0.98
ALONE = (
    *("cold", "whole prompt again", "hit from the host", "unaligned: unit", "unaligned: dropped"),
    *("not_loaded: failed load", "not_loaded: in flight", "not_loaded: by option"),
    *("elsewhere", "isolated", "changed: first tokens", "changed: order"),
    *("evicted: capacity", "evicted: expiry", "evicted: clear", "evicted: restart"),
    *("preempted", "unknown", "cold after a gap"),
)
PAIRS = (
    *("hit + unaligned + cold", "unaligned: unit + cold", "unaligned: dropped + cold"),
    *("unaligned: unit + elsewhere", "not_loaded + cold", "hit + not_loaded", "not_loaded + elsewhere"),
    *("elsewhere + cold", "hit + elsewhere", "isolated + cold", "elsewhere + isolated"),
    *("evicted + cold", "hit + evicted", "evicted + changed", "changed + cold", "cleared, but elsewhere"),
)
TOLD_BY_USAGE_ALONE = (
    *(
        "not_loaded: failed load",
        "not_loaded + cold",
        "hit + not_loaded",
    ),  # no event tells of a load that failed
    "not_loaded: in flight",  # nor whether a block that is being computed is shared: vLLM does, this engine does not
)


@dataclass
class Played:
    book: Book
    client: Client
    told: Climbed


@pytest.fixture(scope="module")
def played(store_server: Embedded, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    with database(store_server, "planted") as dsn:
        client, book = connect(dsn), Book()
        migrate(client)
        with fleet(dsn, tmp_path_factory.mktemp("planted"), configs()) as on:
            plant_all(on, book)
        told = climbed(client)
        print("\n" + table(book.cases, told.parts))
        yield Played(book, client, told)
        client.close()


@pytest.fixture(scope="module")
def estimated(played: Played) -> Climbed:
    """The same where no response says what was served."""
    told = climbed(played.client, usage=False)
    print("\nwithout usage\n" + table(played.book.cases, told.parts))
    return told


def test_every_case_is_looked_at(played: Played) -> None:
    assert set(played.book.cases) == {*ALONE, *PAIRS}


@pytest.mark.parametrize("case", [*ALONE, *PAIRS])
def test_the_causes_are_those_that_were_planted(played: Played, case: str) -> None:
    good, whole = right(played.book.cases[case], played.told.parts)
    assert good >= SHARE * whole, table({case: played.book.cases[case]}, played.told.parts)


@pytest.mark.parametrize(
    ("server", "law"),
    [("a", Alignment(16)), ("unit", Alignment(512)), ("drop", Alignment(256, 1)), ("narrow", Alignment(16))],
)
def test_the_planted_law_is_found(played: Played, server: str, law: Alignment) -> None:
    assert played.told.laws.get(server, Alignment(16)) == law


def test_what_a_preemption_cost_stands_beside(played: Played) -> None:
    again = {one.request_id: played.told.recomputed[one.request_id] for one in played.book.cases["preempted"]}
    assert sum(again.values()) > 0
    assert sum(played.told.recomputed.values()) == sum(again.values())


@pytest.mark.parametrize("case", [case for case in (*ALONE, *PAIRS) if case not in TOLD_BY_USAGE_ALONE])
def test_without_usage_chains_and_events_tell_nearly_all(
    played: Played, estimated: Climbed, case: str
) -> None:
    good, whole = right(played.book.cases[case], estimated.parts)
    assert good >= SHARE * whole, table({case: played.book.cases[case]}, estimated.parts)
