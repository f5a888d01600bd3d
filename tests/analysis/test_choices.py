"""What there is to choose from, read from a real store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from analysis.choices import choices, most_computed
from analysis.selection import parse_set
from tests.conftest import Database

START = datetime(2026, 11, 29, 12, tzinfo=UTC)
COLUMNS = ["time", "server", "model", "request_id", "span_id", "prompt_tokens", "cached_tokens", "labels"]


@pytest.fixture
def filled(db: Database) -> Database:
    rows = [
        [START, "a", "m", "r1", 1, 100, 80, {"phase": "warm", "server": "x"}],
        [START + timedelta(seconds=1), "a", "m", "r2", 2, 100, 0, {"phase": "a,b", "no name": "y"}],
        [START + timedelta(seconds=2), "b", "", "r3", 3, 900, None, {"phase": "a,b"}],
        [START + timedelta(seconds=3), "b", "", "r4", 4, None, None, {}],
    ]
    db.client.insert("requests", rows, column_names=COLUMNS)
    event = [START + timedelta(minutes=5), "c", "kv", 0, START, 1, 1, "cleared"]
    names = ["time", "server", "source", "rank", "epoch", "seq", "pos", "action"]
    db.client.insert("kv_events", [event], column_names=names)
    return db


def test_what_there_is(filled: Database) -> None:
    found = choices(filled.client)
    assert (found.servers, found.models, found.labels) == (["a", "b", "c"], ["m"], ["label.server", "phase"])
    assert found.conditions == ["phase=a*b", "phase=warm", "label.server=x"]
    assert (found.begin, found.end) == (START, START + timedelta(minutes=5))
    assert found.requests
    assert found.events


def test_every_condition_can_be_asked(filled: Database) -> None:
    for condition in choices(filled.client).conditions:
        chosen = parse_set(condition, now=START, labels=["phase", "server"], prefix="p")
        query = f"SELECT count() FROM requests WHERE {chosen.condition}"
        assert filled.client.query(query, parameters=chosen.parameters).result_rows[0][0] > 0


def test_an_empty_store(db: Database) -> None:
    found = choices(db.client)
    assert (found.servers, found.conditions, found.begin, found.requests, found.events) == (
        [],
        [],
        None,
        False,
        False,
    )


def test_who_computed_most(filled: Database) -> None:
    chosen = parse_set("prompt_tokens>0", now=START, labels=[], prefix="p")
    found = most_computed(filled.client, chosen)
    assert [(r.request_id, r.computed) for r in found] == [("r2", 100), ("r1", 20), ("r3", None)]
    assert most_computed(filled.client, chosen, 1) == found[:1]
