"""Fixtures every part shares: a real store process, a fresh database on it, the recordings."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from store.client import connect
from store.embedded import Embedded, ensure
from tests.databases import Database, Databases

# A deadline would be a timing assertion: a loaded machine fails it.
settings.register_profile("hitmap", deadline=None)
settings.register_profile("gate", deadline=None, derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "hitmap"))

DATA = Path(__file__).parent / "data"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with long tests first: one that begins last keeps one worker busy while the others have nothing to do."""
    long = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in long)


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


@pytest.fixture(scope="session")
def databases(store_server: Embedded) -> Iterator[Databases]:
    with connect(store_server.dsn) as root:
        yield Databases(root, store_server.dsn.rpartition("/")[0])


@pytest.fixture
def empty_db(databases: Databases) -> Iterator[Database]:
    """A fresh database without tables."""
    with databases.fresh() as database:
        yield database


@pytest.fixture
def db(databases: Databases) -> Iterator[Database]:
    """A database with hitmap's tables, all empty."""
    with databases.migrated() as database:
        yield database


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
