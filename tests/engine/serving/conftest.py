"""One server for all tests that leave it as they found it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.serve import EngineServer
from tests.engine.serving.live import eventually, is_idle, serving


@pytest.fixture(scope="session")
def shared_server() -> Iterator[EngineServer]:
    with serving() as server:
        yield server


@pytest.fixture
def server(shared_server: EngineServer) -> Iterator[EngineServer]:
    """After each test nothing is left of it."""
    yield shared_server
    assert eventually(lambda: is_idle(shared_server)), "a request was left behind"
    shared_server.faults.clear()
