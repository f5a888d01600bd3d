"""A request's end is told once, whatever happens to it, with a timeline from when it came to its last byte."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import itertools
import random
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from engine import serve
from engine.request import FinishReason, Request, Sampling
from engine.serve import EngineServer
from tests.engine.serving.live import eventually, is_idle, serving, settings


@pytest.fixture
def finished(server: EngineServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Request]]:
    """The requests that the observer was told the end of."""
    told: list[Request] = []
    monkeypatch.setattr(server.telemetry, "request_finished", told.append)
    yield told
    assert eventually(lambda: is_idle(server))
    assert all(count == 1 for count in Counter(map(id, told)).values())
    for request in told:
        intervals = request.timeline.intervals
        assert all(a.end_ns == b.start_ns for a, b in itertools.pairwise(intervals))
        assert request.timeline.end_ns > 0
        assert request.finish_reason is not None


def client(server: EngineServer) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


async def one(openai_client: openai.AsyncOpenAI, chance: random.Random) -> None:
    """A request that is read to its end, dropped in the middle, timed out, refused, or of several prompts."""
    asked: dict[str, Any] = {
        "model": "tiny",
        "prompt": [f"n{chance.random()}"] * chance.choice([1, 1, 3]),
        "max_tokens": chance.choice([1, 5, 60, 5000]),
        "stop": chance.choice([None, "e", ["xyz", "a"]]),
    }
    with contextlib.suppress(openai.APIError):
        if chance.random() < 0.5:
            stream = await openai_client.completions.create(stream=True, **asked)
            leave_after = chance.choice([1, 10, 10**6])
            async for number, _ in _numbered(stream):
                if number >= leave_after:
                    break
            await stream.close()
        else:
            await openai_client.completions.create(timeout=chance.choice([0.02, 30]), **asked)


async def _numbered(stream: Any) -> Any:
    number = 0
    async for chunk in stream:
        number += 1
        yield number, chunk


def test_each_request_ends_once(server: EngineServer, finished: list[Request]) -> None:
    chance = random.Random(3)

    async def many() -> None:
        async with client(server) as openai_client:
            await asyncio.gather(*(one(openai_client, chance) for _ in range(60)))

    asyncio.run(many())
    assert eventually(lambda: is_idle(server))
    assert {r.finish_reason for r in finished} >= {FinishReason.STOP, FinishReason.LENGTH, FinishReason.ABORT}
    assert [tier.used for tier in server.engine.stats().cache.tiers.values()] == [0, 0]


def test_the_text_is_there_for_those_who_may_have_it(server: EngineServer, finished: list[Request]) -> None:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none") as sync:
        answer = sync.completions.create(model="tiny", prompt="a text", max_tokens=9, temperature=0)
    assert eventually(lambda: len(finished) == 1)
    assert (finished[0].prompt_text, finished[0].output_text) == ("a text", answer.choices[0].text)


def test_trace_context_is_taken_over_where_it_is_one(server: EngineServer, finished: list[Request]) -> None:
    parent = f"00-{'ab' * 16}-{'cd' * 8}-01"
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none") as sync:
        for given in (parent, parent[:-1], "zz" + parent[2:]):
            headers = {"traceparent": given, "tracestate": "a=b"}
            sync.completions.create(model="tiny", prompt="a", max_tokens=1, extra_headers=headers)
    assert eventually(lambda: len(finished) == 3)
    assert [(r.traceparent, r.tracestate) for r in finished] == [(parent, "a=b"), ("", ""), ("", "")]


@pytest.mark.parametrize("layer", ["frontend", "other"])
def test_a_delay_of_the_front_end_is_on_the_timeline(
    server: EngineServer, finished: list[Request], layer: str
) -> None:
    server.faults.add(f"layer={layer},delay_ms=30")
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none") as sync:
        sync.completions.create(model="tiny", prompt="a", max_tokens=2)
    server.faults.clear()
    assert eventually(lambda: len(finished) == 1)
    (interval,) = (i for i in finished[0].timeline.intervals if i.layer == layer)
    assert interval.attributes["fault"] == f"layer={layer},delay_ms=30"
    assert 30_000 <= int(interval.attributes["fault_us"]) <= (interval.end_ns - interval.start_ns) // 1000
    others = [i for i in finished[0].timeline.intervals if i.layer != layer]
    assert not any("fault" in i.attributes for i in others)


def test_a_server_that_stops_ends_its_streams(tmp_path: Any) -> None:
    """Those that run when the grace is over are cut off, their requests aborted and told."""
    told: list[Request] = []

    async def read(server: EngineServer) -> None:
        async with client(server) as openai_client:
            stream = await openai_client.completions.create(
                model="tiny", prompt="a", max_tokens=4000, stream=True, extra_body={"ignore_eos": True}
            )
            started.set_result(None)
            async for _ in stream:
                pass

    started: concurrent.futures.Future[None] = concurrent.futures.Future()
    ended: concurrent.futures.Future[BaseException | None] = concurrent.futures.Future()

    def reader(server: EngineServer) -> None:
        try:
            asyncio.run(read(server))
            ended.set_result(None)
        except openai.APIError as error:
            ended.set_result(error)
        except Exception as error:
            ended.set_result(error)

    with serving(settings(max_num_seqs=1), inject=("layer=decode,delay_ms=20",)) as server:
        server.telemetry.request_finished = told.append  # type: ignore[method-assign]
        thread = threading.Thread(target=reader, args=(server,))
        thread.start()
        started.result(10)
    assert ended.result(10) is not None
    thread.join()
    assert [request.finish_reason for request in told] == [FinishReason.ABORT]


@pytest.mark.parametrize("stream", [False, True])
def test_who_is_cut_off_is_told_why(stream: bool) -> None:
    """In the API's words, also where nothing of the answer was sent."""

    def ask(server: EngineServer) -> str:
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as sync:
            try:
                answer = sync.completions.create(
                    model="tiny", prompt="a", max_tokens=4000, stream=stream, extra_body={"ignore_eos": True}
                )
                return f"answered {len(list(answer))}"
            except openai.APIError as error:
                return error.message

    with concurrent.futures.ThreadPoolExecutor() as pool:
        with serving(inject=("layer=decode,delay_ms=20",)) as server:
            told = pool.submit(ask, server)
            assert eventually(lambda: server.engine.stats().running == 1)
        assert "The server ended this request: it is stopping." in told.result(10)


def test_a_core_that_is_stuck_does_not_keep_the_server(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stuck, release = threading.Event(), threading.Event()

    def sink(_output: object) -> None:
        stuck.set()
        release.wait(60)

    monkeypatch.setattr(serve, "STEP_S", 0.1)
    with serving() as server:
        server.engine.submit(Request("stuck", [1, 2, 3], Sampling(max_tokens=4)), sink)
        assert stuck.wait(10)
    assert "the engine is stuck in a step" in caplog.text
    release.set()
