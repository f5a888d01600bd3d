"""What is taken out of a text at capture level redacted, and what stays."""

from __future__ import annotations

import pytest

from collector.chains.redact import redacted

SECRETS = {
    "mail": "ada.lovelace+x@mail.example.co.uk",
    "phone": "+49 (0)30 901820-15",
    "card": "4111 1111 1111 1111",
    "iban": "DE89 3702 0400 0440 5320 13",
    "long number": "978-3-16-148410-0",
    "login": "https://ada:pa55@host.example/x",
    "key": "sk-proj-abcdef1234567890abcd",
    "aws": "AKIAIOSFODNN7EXAMPLE",
    "github": "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
    "bearer": "Authorization: Bearer abcdefghijk",
    "password": 'password: "hunter2!"',
    "api key": "X_API_KEY=zzz-yyy-xxx",
    "is": "The password is hunter2.",
    "json": '{"client_secret": "qqq999"}',
    "basic": "Authorization: Basic YWRhOnBhNTU=",
    "basic alone": "Basic dXNlcjpwYXNz",
    "encoded mail": "user%40example.com",
    "several words": 'password: "correct horse battery staple"',
    "single quotes": "secret='two words'",
    "escaped": '{\\"password\\": \\"hunter2 and more\\"}',
    "escaped twice": '\\\\\\"api_key\\\\\\": \\\\\\"zzz yyy\\\\\\"',
    "a quote in it": '"password": "abc\\"def ghi"',
    "behind an escaped newline": '"x\\npassword: hunter2"',
    "ip": "10.20.30.40",
    "ip6": "2001:db8:0:1:1:1:1:1",
    "short ip6": "fe80::1ff:fe23",
    "mac": "00:1B:44:11:3A:B7",
    "uuid": "123e4567-e89b-12d3-a456-426614174000",
    "pem": "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----",
    "name": "my name is dara",
    "full name": "My name is Dara O’Brien",
    "title": "Please write to Mrs. Ada Lovelace",
    "address": "Dear Ada,",
    "blob": "c2VjcmV0LWJ5dGVzLXRoYXQtYXJlLWxvbmc1",
}
HIDDEN = {
    "login": "pa55",
    "bearer": "abcdefghijk",
    "password": "hunter2",
    "api key": "zzz",
    "is": "hunter2",
    "basic": "YWRh",
    "basic alone": "dXNlc",
    "encoded mail": "user",
    "several words": "horse",
    "single quotes": "words",
    "escaped": "more",
    "escaped twice": "yyy",
    "a quote in it": "ghi",
    "behind an escaped newline": "hunter2",
    "json": "qqq999",
    "pem": "MIIEow",
    "name": "dara",
    "full name": "Brien",
    "title": "Lovelace",
    "address": "Ada",
}


@pytest.mark.parametrize("kind", SECRETS)
def test_it_is_taken_out(kind: str) -> None:
    text = redacted(f"Before it. {SECRETS[kind]}\nAfter it.")
    assert HIDDEN.get(kind, SECRETS[kind]) not in text
    assert "<" in text
    assert text.startswith("Before it. ")
    assert text.endswith("\nAfter it.")


@pytest.mark.parametrize(
    "text",
    [
        "Current time: 2026-11-29T12:05:19.816421",
        "[2026-11-29 12:05:44+01:00] at 12:05:19, order 12345",
        "Returns are accepted within thirty days, python 3.11.7",
        "This is The Policy. Hello World. I'm Sorry.",
        "Basic functionality and BASIC FUNCTIONS stay, and Basic Functions",
        "std::vector<int> x; a :: b; from 12:05:19 to 12:06",
        '{"name": "catalogue_search", "description": "find titles by author"}',
    ],
)
def test_it_stays(text: str) -> None:
    assert redacted(text) == text


@pytest.mark.parametrize(
    "part",
    [
        "a@",
        "1 ",
        "A-",
        "://",
        "12:",
        "password ",
        'password: "',
        "a%40",
        "%",
        "basic ",
        "basic a1",
        "aB1/",
        "Aa ",
        "DE12 ",
        "+(1",
    ],
)
def test_hostile_text_costs_no_more_than_its_length(part: str) -> None:
    """Nothing that backtracks: this would run into the timeout of the tests."""
    assert redacted(part * 50_000)
