"""A real `hitmap dashboard` on a real store, and a real browser in front of it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import TimeoutError as Late
from playwright.sync_api import sync_playwright

from store.client import connect
from store.embedded import Embedded
from store.migrate import migrate
from tests.conftest import Database
from tests.dashboard.made import HOSTILE, START
from tests.dashboard.probed import planted

if not find_spec("streamlit"):  # the dashboard is an extra; a skip here would be an error
    collect_ignore_glob = ["test_*.py"]

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip
SCREEN = {"viewport": {"width": 1280, "height": 900}}
WAIT_MS = 60_000  # a busy machine is slow; nothing here is timed
NO_PAGE = "The page that you have requested does not seem to exist."
COLUMNS = [
    "time",
    "server",
    "model",
    "request_id",
    "span_id",
    "prompt_tokens",
    "cached_tokens",
    "labels",
    "ttft_us",
]


@dataclass
class Served:
    """A running dashboard."""

    process: subprocess.Popen[str]
    address: str


def start(module: str, *arguments: str, home: Path | None = None) -> Served:
    """Run a dashboard and wait until it says where; fails with its words."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", **({"HITMAP_HOME": str(home)} if home else {})}
    process = subprocess.Popen(
        [sys.executable, "-m", module, "dashboard", "--port", "0", *arguments],
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stderr
    said = process.stderr.readline()
    if not said.startswith("hitmap dashboard: http://127.0.0.1:"):
        process.kill()
        pytest.fail(said + process.stderr.read())
    return Served(process, said.split()[2].rstrip(";"))


def stop(served: Served, number: signal.Signals = signal.SIGINT) -> str:
    """End it as a person does; what else it said."""
    served.process.send_signal(number)
    return served.process.communicate(timeout=20)[1]


def settle(page: Any) -> None:
    """Wait until the page is whole: what stands on it before that is about to be replaced."""
    page.locator("[data-testid=stApp][data-test-script-state=notRunning]").wait_for()


def text_of(page: Any) -> str:
    """What stands on the page once it is whole."""
    settle(page)
    return str(page.get_by_test_id("stMain").inner_text()).replace("\u2060", "")


def choose_first_row(page: Any, asked: str) -> None:
    """Click on the first row of the first table until the address has `asked`: a table is a canvas, which does not
    tell when it takes clicks."""
    table = page.get_by_test_id("stDataFrame").first
    table.locator("canvas").first.wait_for()
    for left in reversed(range(4)):
        settle(page)
        table.click(position={"x": 17, "y": 52})  # the box before the row
        try:
            page.wait_for_function("asked => location.search.includes(asked)", arg=asked, timeout=WAIT_MS / 4)
        except Late:
            if not left:
                raise
        else:
            return


@pytest.fixture
def store(db: Database) -> Database:
    """A server under probes, with its requests."""
    planted(db.client)
    return db


@contextmanager
def serving(module: str, dsn: str) -> Iterator[Served]:
    """A dashboard on a store; it has to end well, without a traceback."""
    served = start(module, "--store", dsn)
    yield served
    said = stop(served)
    assert served.process.returncode == 0, said
    assert "Traceback" not in said


@pytest.fixture(scope="session")
def filled(store_server: Embedded) -> Iterator[Database]:
    """Three requests, one of them with a name and a label that are no names."""
    root = connect(store_server.dsn)
    root.command("CREATE DATABASE dashboard")
    dsn = store_server.dsn.rpartition("/")[0] + "/dashboard"
    client = connect(dsn)
    migrate(client)
    rows = [
        [
            START + timedelta(seconds=i),
            server,
            "m",
            name,
            i + 1,
            410,
            cached,
            {"phase": phase},
            1000 * (i + 1),
        ]
        for i, (server, name, cached, phase) in enumerate(
            [("vllm-a", "r1", 320, "warm"), ("vllm-a", "r2", 0, "a,b"), (HOSTILE, HOSTILE, None, HOSTILE)]
        )
    ]
    client.insert("requests", rows, column_names=COLUMNS)
    client.command("INSERT INTO request_keys SELECT sipHash64(request_id), time FROM requests")
    yield Database(dsn, client)
    client.close()
    root.command("DROP DATABASE dashboard")
    root.close()


@pytest.fixture(scope="session")
def site(filled: Database) -> Iterator[Served]:
    """The pages on reports whose figures are known."""
    with serving("tests.dashboard.made", filled.dsn) as served:
        yield served


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    if not CHROMIUM:
        pytest.skip("chromium is not installed: apt-get install chromium")
    with sync_playwright() as running:
        launched = running.chromium.launch(executable_path=CHROMIUM, args=FLAGS, headless=True)
        yield launched
        launched.close()


@dataclass
class Complaints:
    """What a browser had to say, and where it went."""

    errors: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)

    def hear(self, message) -> None:  # type: ignore[no-untyped-def]
        """Errors; but Streamlit asks on a page's own path first whether it is served below it, and then elsewhere, and
        says itself where there is no page."""
        asks = re.search(r"/[^/]+/_stcore/", urlsplit(message.location["url"]).path)
        if message.type == "error" and not asks and not message.text.startswith(NO_PAGE):
            self.errors.append(message.text)


@pytest.fixture(scope="module")
def usual(browser):  # type: ignore[no-untyped-def]
    """A browser that has been here before: it holds the scripts of the pages, which take seconds to compile."""
    with browser.new_context(**SCREEN) as context:
        yield context


@pytest.fixture
def open_page(usual) -> Iterator[Callable[..., object]]:  # type: ignore[no-untyped-def]
    """Opens an address; at the end nobody may have complained.

    scheme: the colours that the browser asks for.
    """
    found, opened = Complaints(), []

    def load(url: str, wait_for: str, scheme: str = "light") -> object:
        page = usual.new_page()
        opened.append(page)
        page.emulate_media(color_scheme=scheme)
        page.set_default_timeout(WAIT_MS)
        page.on("console", found.hear)
        page.on("pageerror", lambda error: found.errors.append(str(error)))
        page.on("request", lambda request: found.hosts.add(urlsplit(request.url).hostname or ""))
        page.goto(url)
        if wait_for:
            try:
                page.get_by_text(wait_for, exact=True).first.wait_for()
            except Exception as error:
                pytest.fail(f"{error}; the page says: {page.inner_text('body')}")
        return page

    yield load
    for page in opened:
        page.close()
    assert found.errors == []
    assert found.hosts <= {"127.0.0.1", ""}
