"""The address of a server, as people type it."""

from __future__ import annotations

import pytest

from cachemodel.address import server_url
from cachemodel.errors import UsageError


@pytest.mark.parametrize(
    ("typed", "url"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("localhost:8000/", "http://localhost:8000"),
        ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8000"),
        ("127.0.0.1:8000/v1/", "http://127.0.0.1:8000"),
        ("http://127.0.0.1:8000/metrics", "http://127.0.0.1:8000"),
        ("https://llm.example/behind/v1", "https://llm.example/behind"),
        ("[::1]:8000", "http://[::1]:8000"),
    ],
)
def test_what_people_type(typed: str, url: str) -> None:
    assert server_url(typed) == url


@pytest.mark.parametrize(
    "typed", ["", "http://", "ftp://h:8000", "http://h:0", "http://h:x", "http://[::1", "/v1"]
)
def test_what_is_no_address(typed: str) -> None:
    with pytest.raises(UsageError, match="is not the address of a server: give one such as http"):
        server_url(typed)
