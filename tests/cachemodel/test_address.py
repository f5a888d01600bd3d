"""The address of a server, as people type it."""

from __future__ import annotations

import pytest

from cachemodel.address import bearer_key, server_url
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


@pytest.mark.parametrize(
    "typed",
    [
        "http://bob:pw12345@h:8000/v1",
        "bob:pw12345@h",
        "http://pw12345@h",
        "http://bob:pw/1/pw12345@h",
        "ftp://bob:pw12345@h",
        "https://h/v1?key=pw12345",
        "h#pw12345",
        "http://bob:p@pw12345@h",
    ],
)
def test_what_nobody_else_should_read_is_refused_and_not_repeated(typed: str) -> None:
    with pytest.raises(UsageError) as refused:
        server_url(typed)
    assert "pw12345" not in str(refused.value)


@pytest.mark.parametrize("key", ["sk-secret\r\nX: y", "sk-\u201csecret", "sk-se\x00cret"])
def test_a_key_that_no_header_can_carry_is_refused_unseen(key: str) -> None:
    with pytest.raises(UsageError, match="API key holds") as refused:
        bearer_key(key)
    assert "cret" not in str(refused.value)
    assert bearer_key(" sk-1\r\n") == "sk-1"
