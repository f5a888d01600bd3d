"""The stock `openai` client gets along with the server: answers, streams, usage, and errors as its own exceptions."""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
from typing import Any

import openai
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.serve import EngineServer

FOX = [{"role": "user", "content": "The quick brown fox jumps over the lazy dog. And then?"}]
_numbers = itertools.count()


@pytest.fixture(scope="module")
def client(shared_server: EngineServer) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{shared_server.url}/v1", api_key="none", max_retries=0)


def greedy(**more: Any) -> dict[str, Any]:
    return {"model": "tiny", "temperature": 0, "max_tokens": 24} | more


def test_the_model_is_listed(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").owned_by == "hitmap"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


def test_a_chat(server: EngineServer, client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(messages=FOX, **greedy(extra_headers={"X-Request-Id": "fox-1"}))
    assert answer.id == "chatcmpl-fox-1"
    assert answer._request_id == "fox-1"
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason in ("stop", "length")
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == len(
        server.frontend.tokenizer.encode(server.frontend.tokenizer.chat_prompt(FOX))
    )
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_the_same_prompt_again_is_found_in_the_cache(server: EngineServer, client: openai.OpenAI) -> None:
    prompt = f"{next(_numbers)} " + "a story that is long enough for several blocks of tokens. " * 8
    first = client.completions.create(prompt=prompt, **greedy())
    second = client.completions.create(prompt=prompt, **greedy())
    assert first.choices[0].text == second.choices[0].text
    tokens = second.usage.prompt_tokens
    assert first.usage.prompt_tokens_details.cached_tokens == 0
    assert second.usage.prompt_tokens_details.cached_tokens == (tokens - 1) // 16 * 16
    tiers = second.sglext["cached_tokens_details"]
    assert tiers == {"device": (tokens - 1) // 16 * 16, "host": 0, "storage": 0}


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.text(min_size=1, max_size=60),
    stop=st.lists(st.text("aeinorst ", min_size=1, max_size=2), max_size=3),
    temperature=st.sampled_from([0, 1.3]),
)
def test_what_is_streamed_adds_up_to_what_comes_in_one_piece(
    server: EngineServer, client: openai.OpenAI, text: str, stop: list[str], temperature: float
) -> None:
    asked = greedy(messages=[{"role": "user", "content": text}], temperature=temperature, seed=5, stop=stop)
    whole = client.chat.completions.create(**asked)
    chunks = list(
        client.chat.completions.create(stream=True, stream_options={"include_usage": True}, **asked)
    )
    parts = [chunk.choices[0] for chunk in chunks if chunk.choices]
    assert "".join(part.delta.content or "" for part in parts) == whole.choices[0].message.content
    reasons = [part.finish_reason for part in parts if part.finish_reason]
    assert reasons == [whole.choices[0].finish_reason]
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert not any(string in whole.choices[0].message.content for string in stop)


def test_a_stop_string_ends_the_answer_before_it(client: openai.OpenAI) -> None:
    free = client.completions.create(prompt="once upon a time", **greedy(max_tokens=40))
    text = free.choices[0].text
    stop = text[len(text) // 2 : len(text) // 2 + 3]
    stopped = client.completions.create(prompt="once upon a time", **greedy(max_tokens=40, stop=stop))
    assert stopped.choices[0].text == text[: text.index(stop)]
    assert stopped.choices[0].finish_reason == "stop"
    assert stopped.usage.completion_tokens < free.usage.completion_tokens


def test_several_prompts_are_answered_in_their_order(client: openai.OpenAI) -> None:
    texts = ["one", "two and more", "three"]
    alone = [client.completions.create(prompt=text, **greedy()).choices[0].text for text in texts]
    together = client.completions.create(prompt=texts, **greedy())
    assert [choice.text for choice in together.choices] == alone
    streamed = ["", "", ""]
    for chunk in client.completions.create(prompt=texts, stream=True, **greedy()):
        streamed[chunk.choices[0].index] += chunk.choices[0].text
    assert streamed == alone


def test_token_ids_are_a_prompt(server: EngineServer, client: openai.OpenAI) -> None:
    ids = server.frontend.tokenizer.encode("some words")
    by_ids = client.completions.create(prompt=ids, **greedy())
    by_text = client.completions.create(prompt="some words", **greedy())
    assert by_ids.choices[0].text == by_text.choices[0].text
    assert by_ids.usage.prompt_tokens == len(ids)


def test_ignore_eos_gives_as_many_tokens_as_asked_for(client: openai.OpenAI) -> None:
    answer = client.completions.create(
        prompt="go on", **greedy(max_tokens=64, extra_body={"ignore_eos": True, "top_k": 3}, temperature=1)
    )
    assert answer.usage.completion_tokens == 64
    assert answer.choices[0].finish_reason == "length"


def test_a_salt_separates(client: openai.OpenAI) -> None:
    prompt = f"{next(_numbers)} " + "shared by two tenants who must not see each other. " * 6
    cached = [
        client.completions.create(
            prompt=prompt, **greedy(extra_body={"cache_salt": salt})
        ).usage.prompt_tokens_details.cached_tokens
        for salt in ("a", "b", "a")
    ]
    assert cached[:2] == [0, 0]
    assert cached[2] > 0


def test_tools_go_into_the_prompt(client: openai.OpenAI) -> None:
    tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
    plain = client.chat.completions.create(messages=FOX, **greedy())
    tooled = client.chat.completions.create(messages=FOX, tools=[tool], tool_choice="auto", **greedy())
    assert tooled.usage.prompt_tokens > plain.usage.prompt_tokens


def test_the_async_client_serves_many_at_once(server: EngineServer) -> None:
    async def ask() -> list[int]:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:

            async def one(number: int) -> int:
                stream = await client.chat.completions.create(
                    messages=[{"role": "user", "content": f"number {number}"}],
                    stream=True,
                    stream_options={"include_usage": True},
                    **greedy(max_tokens=8, extra_body={"ignore_eos": True}),
                )
                return sum([chunk.usage.completion_tokens async for chunk in stream if chunk.usage])

            return await asyncio.gather(*map(one, range(40)))

    assert asyncio.run(ask()) == [8] * 40


@pytest.mark.parametrize(
    ("error", "asked", "param", "says"),
    [
        (openai.NotFoundError, {"model": "gpt-9"}, "model", "`gpt-9` does not exist; this server has `tiny`"),
        (openai.BadRequestError, {"max_tokens": 5000}, "max_tokens", "4096 tokens, but"),
        (openai.BadRequestError, {"prompt": "word " * 9000}, "prompt", "context is 4096 tokens, but"),
        (openai.BadRequestError, {"prompt": ""}, "prompt", "empty"),
        (openai.BadRequestError, {"prompt": []}, "prompt", "one to 64 prompts, not 0"),
        (openai.BadRequestError, {"prompt": [1, 10**9]}, "prompt", "1000000000 is outside"),
        (openai.BadRequestError, {"n": 2}, "n", "cannot do that"),
        (openai.BadRequestError, {"echo": True}, "echo", "cannot do that"),
        (openai.BadRequestError, {"logprobs": 0}, "logprobs", "cannot do that"),
        (openai.BadRequestError, {"temperature": -1}, "temperature", ">= 0"),
        (openai.BadRequestError, {"max_tokens": "ten"}, "max_tokens", "got `str`"),
        (openai.BadRequestError, {"seed": 1 << 80}, "seed", "seed"),
        (openai.BadRequestError, {"stop": [""]}, "stop[0]", "length >= 1"),
        (openai.BadRequestError, {"extra_body": {"temprature": 1}}, "temprature", "Did you mean temperature?"),
        (openai.BadRequestError, {"stream_options": {"include_usage": True}}, "stream_options", "stream: true"),
        (openai.BadRequestError, {"extra_headers": {"X-Request-Id": "a b"}}, "x-request-id", "1 to 128"),
    ],
)  # fmt: skip
def test_what_cannot_be_served_is_said(
    client: openai.OpenAI, error: type[openai.APIStatusError], asked: dict[str, Any], param: str, says: str
) -> None:
    with pytest.raises(error) as refused:
        client.completions.create(**(greedy(prompt="hello") | asked))
    body = refused.value.body
    assert isinstance(body, dict)
    assert says in body["message"]
    assert body["param"] == param
    assert body["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([], "messages"),
        ([{"role": "wizard", "content": "x"}], "messages[0].role"),
        ([{"role": "user", "content": 5}], "messages[0].content"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "messages[0].content[0].type"),
    ],
)
def test_messages_that_are_none(client: openai.OpenAI, messages: list[Any], param: str) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(messages=messages, **greedy())
    assert refused.value.param == param


def test_an_id_that_is_in_use_gets_a_sibling(server: EngineServer, client: openai.OpenAI) -> None:
    server.faults.add(
        "layer=frontend,delay_ms=20"
    )  # so that all of them are there before the first is served
    asked = greedy(
        prompt="a", max_tokens=200, extra_body={"ignore_eos": True}, extra_headers={"X-Request-Id": "twice"}
    )
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        ids = {answer.id for answer in pool.map(lambda _: client.completions.create(**asked), range(4))}
    assert len(ids) == 4
    assert all(name.startswith("cmpl-twice") for name in ids)
