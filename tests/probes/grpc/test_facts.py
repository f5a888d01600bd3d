"""cache.key and cache.hit: by field, by function, by metadata; what fails is counted and breaks no call."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import grpc
import pytest
from opentelemetry.trace import SpanKind

from probes.grpc import (
    aio_client_interceptors,
    aio_server_interceptor,
    client_interceptor,
    server_interceptor,
)
from probes.grpc.facts import MAX_KEY, Facts
from tests.probes.grpc.conversation import KINDS, AioServer, Ask, Service, aio_call, call, sync_server


def told(span: Any) -> tuple[Any, Any]:
    return span.attributes.get("cache.key"), span.attributes.get("cache.hit")


@pytest.mark.parametrize(("hit", "seen_as"), [("true", True), ("0", False), ("MISS", False), ("", None)])
@pytest.mark.parametrize("kind", KINDS)
def test_sync_by_field_and_metadata(seen: Any, kind: str, hit: str, seen_as: bool | None) -> None:
    with (
        sync_server(Service(), server_interceptor(seen.recorder, cache_key="prompt.salt")) as where,
        grpc.insecure_channel(where) as plain,
    ):
        channel = grpc.intercept_channel(plain, client_interceptor(seen.recorder, cache_key="cache_key"))
        assert call(channel, kind, Ask(cache_key="k1", salt="s1", hit=hit))[1] is grpc.StatusCode.OK
    assert told(seen.spans(SpanKind.SERVER, 1)[0]) == ("s1", seen_as)
    assert told(seen.spans(SpanKind.CLIENT, 1)[0]) == ("k1", seen_as)
    assert seen.recorder.lost == {}


@pytest.mark.parametrize("style", ["generator", "write", "plain"])
@pytest.mark.parametrize("kind", KINDS)
def test_aio_by_field_and_metadata(seen: Any, kind: str, style: str) -> None:
    async def run() -> None:
        server = AioServer(
            Service(), aio_server_interceptor(seen.recorder, cache_key="prompt.salt"), style=style
        )
        ours = aio_client_interceptors(seen.recorder, cache_key="cache_key")
        async with server as where, grpc.aio.insecure_channel(where, interceptors=ours) as channel:
            ask = Ask(cache_key="k1", salt="s1", hit="hit")
            assert (await aio_call(channel, kind, ask))[1] is grpc.StatusCode.OK

    asyncio.run(run())
    assert told(seen.spans(SpanKind.SERVER, 1)[0]) == ("s1", True)
    assert told(seen.spans(SpanKind.CLIENT, 1)[0]) == ("k1", True)


@pytest.mark.parametrize("kind", KINDS)
def test_by_function(seen: Any, kind: str) -> None:
    """The server's function sees the (last) response, the client's that of a call with one answer."""
    last = "answer" if kind.endswith("Unary") else "answer 2"
    ours = server_interceptor(
        seen.recorder,
        cache_key=lambda ask: ask.salt.upper(),
        cache_hit=lambda trailing, response: response == last,
    )
    with sync_server(Service(), ours) as where, grpc.insecure_channel(where) as plain:
        theirs = client_interceptor(
            seen.recorder,
            cache_hit=lambda trailing, response: (trailing["cache-hit"], response) == ("9", "answer"),
        )
        channel = grpc.intercept_channel(plain, theirs)
        call(channel, kind, Ask(salt="s1", hit="9"))
    assert told(seen.spans(SpanKind.SERVER, 1)[0]) == ("S1", True)
    assert told(seen.spans(SpanKind.CLIENT, 1)[0]) == (None, kind.endswith("Unary"))


@pytest.mark.parametrize("kind", KINDS)
def test_functions_that_raise_break_nothing_and_are_counted(seen: Any, kind: str) -> None:
    def bad(*_: Any) -> Any:
        raise RuntimeError("the user's own")

    with (
        sync_server(Service(), server_interceptor(seen.recorder, cache_key=bad, cache_hit=bad)) as where,
        grpc.insecure_channel(where) as plain,
    ):
        channel = grpc.intercept_channel(plain, client_interceptor(seen.recorder, cache_key="no.such.field"))
        assert call(channel, kind, Ask(hit="maybe"))[1] is grpc.StatusCode.OK
    assert told(seen.spans(SpanKind.SERVER, 1)[0]) == (None, None)
    assert told(seen.spans(SpanKind.CLIENT, 1)[0]) == (None, None)
    assert seen.recorder.lost == {
        "cache_key_callback": 1,
        "cache_hit_callback": 1,
        "cache_key_field": 1,
        "cache_hit_value": 1,
    }


def test_a_failed_call_has_its_key_and_its_metadata(seen: Any) -> None:
    with (
        sync_server(Service(), server_interceptor(seen.recorder, cache_key="cache_key")) as where,
        grpc.insecure_channel(where) as plain,
    ):
        channel = grpc.intercept_channel(plain, client_interceptor(seen.recorder))
        assert (
            call(channel, "UnaryUnary", Ask("abort", cache_key="k", hit="1"))[1].name == "RESOURCE_EXHAUSTED"
        )
    assert told(seen.spans(SpanKind.SERVER, 1)[0]) == ("k", True)
    assert told(seen.spans(SpanKind.CLIENT, 1)[0]) == (None, True)


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("x" * 1000, "x" * MAX_KEY),
        (b"k" * 1000, "k" * MAX_KEY),
        (b"\xff\x00", "\\xff\x00"),
        (7, "7"),
        (0, "0"),
        ("", None),
        (b"", None),
        (None, None),
    ],
)
def test_keys_are_bounded_and_what_is_unset_is_missing(value: Any, kept: str | None) -> None:
    lost: Counter[str] = Counter()
    assert Facts(lambda _: value, None, lambda why: lost.update([why])).key(object()) == kept
    assert not lost


def test_an_empty_name_is_refused() -> None:
    with pytest.raises(ValueError, match="cache_key"):
        Facts("", None, lambda _: None)
