from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hitmap.load.server import LlmServer


@pytest.fixture
def server() -> Iterator[LlmServer]:
    server = LlmServer()
    yield server
    server.close()
