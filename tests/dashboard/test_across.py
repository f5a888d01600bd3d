"""A request's host at that time, and the requests of a process's server: links whose address has the filters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from urllib.parse import parse_qs, urlsplit

import pytest
from streamlit.testing.v1 import AppTest

from analysis.observed.request import trace
from dashboard.filters import Filters
from dashboard.views.across import hosts_at
from tests.analysis.observed.world import PID, put_points, put_request
from tests.conftest import Database
from tests.dashboard.conftest import Served, serving, settle
from tests.dashboard.drawn import Draw, drawer
from tests.dashboard.made import HOSTILE
from tests.dashboard.probed import DAY

THERE = {"from": ["2026-11-30T11:59:51Z"], "to": ["2026-11-30T12:00:12Z"], "server": ["vllm-a"]}
R1 = {"request": ["r1"], "request_server": ["vllm-a"]}  # 12:00:01 to 12:00:01.4


def _request() -> None:
    from dashboard.views import request

    request.page()


def _hosts() -> None:
    from dashboard.views import hosts

    hosts.page()


@pytest.fixture
def draw_request(monkeypatch: pytest.MonkeyPatch) -> Iterator[Draw]:
    yield from drawer(_request, monkeypatch)


@pytest.fixture
def draw_hosts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Draw]:
    yield from drawer(_hosts, monkeypatch)


def links(page: AppTest) -> list[tuple[str, dict[str, list[str]]]]:
    """Where links of a page go, and with what in the address."""
    protos = [element.proto for element in page.main.get("page_link")]
    return [(proto.page, parse_qs(proto.query_string)) for proto in protos]


def test_from_a_request_to_its_processes_at_that_time(store: Database, draw_request: Draw) -> None:
    page = draw_request(store.client, **DAY, request="r1", where="phase=*", model="m")
    kept = {"where": ["phase=*"], "model": ["m"]}
    process = {"process": [f"node-1:{PID}"]}
    assert links(page) == [("hosts", THERE | R1 | kept | process)]


def test_of_several_processes_none_is_picked(store: Database, draw_request: Draw) -> None:
    put_points(store.client, [(0, 10_000, 1)], "process.cpu.time", {}, pid=12, **{"hitmap.server": "vllm-a"})
    assert links(draw_request(store.client, **DAY, request="r1")) == [("hosts", THERE | R1)]


def test_without_a_probe_there_is_nowhere_to_go(db: Database, draw_request: Draw) -> None:
    put_request(db.client, "r1", 0, 100)
    assert links(draw_request(db.client, **DAY, request="r1")) == []


def test_a_request_of_unknown_length_has_a_time_all_the_same(db: Database) -> None:
    put_request(db.client, "r1", 1500, 1501, e2e_us=None, ttft_us=None)
    there = hosts_at(trace(db.client, "r1"), Filters())
    assert (there.begin, there.end) == ("2026-11-30T11:59:51Z", "2026-11-30T12:00:12Z")


def test_from_a_process_to_the_requests_of_its_server(store: Database, draw_hosts: Draw) -> None:
    page = draw_hosts(store.client, **DAY, process=f"node-1:{PID}", request="r1", where="phase=*")
    expected = {name: [value] for name, value in DAY.items()} | {"server": ["vllm-a"], "where": ["phase=*"]}
    assert links(page) == [("request", expected)]
    assert links(draw_hosts(store.client, **DAY)) == [], "of one process"
    assert links(draw_hosts(store.client, **DAY, process="node-2:7")) == [], (
        "nothing tells whose work it does"
    )


def test_a_server_whose_name_is_none(store: Database, draw_hosts: Draw) -> None:
    put_points(store.client, [(0, 10_000, 1)], "process.cpu.time", {}, pid=12, **{"hitmap.server": HOSTILE})
    page = draw_hosts(store.client, **DAY, process="node-1:12")
    assert links(page)[0][1]["server"] == [HOSTILE]
    assert "**bold**" not in page.main.get("page_link")[0].proto.label


@pytest.fixture
def served(store: Database) -> Iterator[Served]:
    with serving("hitmap", store.dsn) as running:
        yield running


def test_there_and_back_in_a_browser(served: Served, open_page: Callable[..., object]) -> None:
    page = open_page(
        f"{served.address}/request?from={DAY['from']}&to={DAY['to']}&request=r1", "Everything observed"
    )
    settle(page)
    page.get_by_role("link", name="Its server's processes at that time").click()
    page.get_by_text("python3 (4711) on node-1").wait_for()
    page.wait_for_function("location.pathname.endsWith('/hosts') && location.search.includes('process=')")
    assert parse_qs(urlsplit(page.url).query) == THERE | R1 | {"process": ["node-1:4711"]}
    settle(page)
    page.get_by_role("link", name="Requests of vllm-a in this time").click()
    page.get_by_text("Tick a row or type an id").wait_for()
    page.wait_for_function("location.pathname.endsWith('/request') && !location.search.includes('process=')")
    assert parse_qs(urlsplit(page.url).query) == THERE
    assert page.evaluate("window.hit") is None
