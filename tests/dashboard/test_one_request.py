"""One request on the pages Misses and Request: what the terminal says of it, and what to do about its id."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from analysis.misses.explain import explain
from tests.analysis.heatmap.worlds import Prompt, clock, put
from tests.conftest import Database
from tests.dashboard.drawn import Draw, drawer, said

HOUR = {"from": "2026-11-29T12:00", "to": "2026-11-29T13:00"}
TWICE = "r0"  # on server a and on server b
LAST = "r5"


def _misses() -> None:
    from dashboard.views import misses

    misses.page()


def _request() -> None:
    from dashboard.views import request

    request.page()


@pytest.fixture
def store(db: Database) -> Database:
    """Five prompts with a clock, one that goes on where the last one ended, and one id that two servers have."""
    put(db.client, [*clock(5), Prompt([1, 2, 3, 4, 1004, 5, 6, 7, 8, 9, 10], cached=64)])
    put(db.client, [Prompt([1, 2, 3], server="b")])
    db.client.command("INSERT INTO request_keys SELECT sipHash64(request_id), time FROM requests")
    return db


@pytest.fixture(params=[_misses, _request], ids=["misses", "request"])
def draw(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Draw]:
    yield from drawer(request.param, monkeypatch)


def test_the_pages_say_what_the_terminal_says(store: Database, draw: Draw) -> None:
    found = explain(store.client, LAST)
    assert found.earlier.startswith("the same as r4 (")
    shown = said(draw(store.client, **HOUR, request=LAST))
    assert f"T{found.earlier[1:]}." in shown
    assert found.next_steps or found.notes
    assert all(line in shown for line in (*found.next_steps, *found.notes))


def test_an_id_on_two_servers_says_what_to_do_in_a_browser(store: Database, draw: Draw) -> None:
    (told,) = (error.value.replace("\\", "") for error in draw(store.client, **HOUR, request=TWICE).error)
    assert told == (
        f"several servers have a request {TWICE}: a or b; choose it under Server, tick it in a table, or add "
        "request_server= to the link"
    )


@pytest.mark.parametrize(
    "chosen", [{"server": "b"}, {"request_server": "b"}, {"server": "a", "request_server": "b"}]
)
def test_and_doing_it_is_enough(store: Database, draw: Draw, chosen: dict[str, str]) -> None:
    page = draw(store.client, **HOUR, request=TWICE, **chosen)
    assert not page.error
    assert f"{TWICE} on b," in said(page).replace("**", "")


def test_a_name_with_a_star_is_no_server_of_a_request(store: Database, draw: Draw) -> None:
    page = draw(store.client, **HOUR, request=LAST, server="*")
    assert not page.error
    assert LAST in said(page)
