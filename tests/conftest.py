"""Fixtures every part shares: a real store process, a fresh database on it, the recordings."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from clickhouse_connect.driver.client import Client
from hypothesis import settings

from store.client import connect
from store.embedded import Embedded, ensure
from store.migrate import migrate

# A deadline would be a timing assertion: a loaded machine fails it.
settings.register_profile("hitmap", deadline=None)
settings.load_profile("hitmap")

DATA = Path(__file__).parent / "data"
_numbers = itertools.count()


@dataclass
class Database:
    """A database of its own and a stock client on it."""

    dsn: str
    client: Client


@pytest.fixture(scope="session", autouse=True)
def _home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test touches the store of whoever runs it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HITMAP_HOME", str(tmp_path_factory.mktemp("home")))
        patch.delenv("HITMAP_STORE", raising=False)
        yield


@pytest.fixture(scope="session")
def store_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    """One real `hitmap store serve` process for the whole run."""
    with ensure(tmp_path_factory.mktemp("store")) as embedded:
        yield embedded


@pytest.fixture
def empty_db(store_server: Embedded) -> Iterator[Database]:
    """A fresh database without tables."""
    name = f"t{next(_numbers)}"
    root = connect(store_server.dsn)
    root.command(f"CREATE DATABASE {name}")
    dsn = store_server.dsn.rpartition("/")[0] + "/" + name
    client = connect(dsn)
    yield Database(dsn, client)
    client.close()
    root.command(f"DROP DATABASE {name}")
    root.close()


@pytest.fixture
def db(empty_db: Database) -> Database:
    """A fresh database with hitmap's tables."""
    migrate(empty_db.client)
    return empty_db


def _recording(name: str) -> Path:
    folder = DATA / "vllm-0.32" / name
    if not folder.exists():
        pytest.skip(f"the recording {folder} is not in this checkout")
    return folder


@pytest.fixture(scope="session")
def run1() -> Path:
    """vLLM 0.32: 168 requests in 8 phases, a cache reset, 7 more."""
    return _recording("run1")


@pytest.fixture(scope="session")
def run3() -> Path:
    """vLLM 0.32 with an external tier: cold, local hit, reset, external hit."""
    return _recording("run3")
