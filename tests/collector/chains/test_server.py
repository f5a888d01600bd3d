"""Tokens asked of a server over a real socket: vLLM's way, llama.cpp's way, and servers in trouble."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from collector.chains.server import NOT_TEXT, Adapters, ServerTokenizer
from collector.chains.tokens import Unanswered, Untokenizable
from tests.collector.chains.support import prompt
from tests.collector.support import Answer, Server, text

HI = [{"role": "user", "content": "hi"}]


class Asked:
    """Answers of a server that remembers what it was asked: a path, then what it answers to a question."""

    def __init__(self, **pages: Any) -> None:
        self.questions: list[tuple[str, dict[str, Any], str]] = []
        self.answers: dict[str, Answer] = {
            f"POST /{path.replace('_', '-')}": self._answer(path, page) for path, page in pages.items()
        }

    def _answer(self, path: str, page: Any) -> Answer:
        def answer(handler: BaseHTTPRequestHandler) -> None:
            question = json.loads(handler.question)  # type: ignore[attr-defined]
            self.questions.append((path, question, str(handler.headers.get("X-Hitmap"))))
            told = page(question) if callable(page) else page
            text(json.dumps(told), content_type="application/json")(handler)

        return answer


def tokenizer(server: Server, *, llama_cpp: bool = False) -> ServerTokenizer:
    quick = ServerTokenizer(server.url, "", llama_cpp=llama_cpp)
    quick.pause = lambda _: None
    return quick


def test_vllms_way() -> None:
    asked = Asked(tokenize={"count": 3, "max_model_len": 9, "tokens": [4, 5, 6]})
    with Server(asked.answers) as server:
        asks = tokenizer(server)
        assert asks.answers()
        tools = [{"type": "function", "function": {"name": "f"}}]
        sent = prompt(
            messages=HI, tools=tools, options={"chat_template_kwargs": {"think": False}, "top_p": 1}
        )
        assert asks.tokens(sent).ids == [4, 5, 6]
        assert asks.tokens(prompt(messages=HI, tools=tools, options=sent.options, time=2.0)).ids == [4, 5, 6]
        assert asks.tokens(prompt(text="hi", truncated_to=2)).ids == [5, 6]
    question = {"messages": HI, "tools": tools, "model": "m", "chat_template_kwargs": {"think": False}}
    assert [(path, told) for path, told, _ in asked.questions[1:]] == [
        ("tokenize", question),
        ("tokenize", {"prompt": "hi", "model": "m"}),
    ], "the same prompt is asked for once"
    assert {mark for _, _, mark in asked.questions} == {"tokenize"}, "marked as no traffic"


def test_a_server_is_not_sent_to_fetch_images() -> None:
    asked = Asked(tokenize={"tokens": [4]})
    parts = [{"type": "text", "text": "what is"}, {"type": "image_url", "image_url": {"url": "http://x/"}}]
    sent = prompt(messages=[{"role": "user", "content": parts}])
    with Server(asked.answers) as server, pytest.raises(Untokenizable, match=NOT_TEXT):
        tokenizer(server).tokens(sent)
    assert asked.questions == []


def test_llama_cpps_way() -> None:
    asked = Asked(
        apply_template=lambda told: {"prompt": f"<{told['messages'][0]['content']}>"},
        tokenize=lambda told: {"tokens": list(told["content"].encode())},
    )
    with Server(asked.answers) as server:
        asks = tokenizer(server, llama_cpp=True)
        assert asks.answers()
        assert asks.tokens(prompt(messages=HI)).ids == list(b"<hi>")
        assert asks.tokens(prompt(text="hi")).ids == list(b"hi")
    assert asked.questions[-1][1] == {"content": "hi", "add_special": True, "parse_special": True}


@pytest.mark.parametrize("answer", [text("no", status=404), text("x"), text("{}"), text('{"tokens": [1.5]}')])
def test_a_server_that_tokenises_for_nobody(answer: Answer) -> None:
    with Server({"POST /tokenize": answer}) as server:
        assert not tokenizer(server).answers()
        with pytest.raises(Untokenizable):
            tokenizer(server).tokens(prompt(messages=HI))


@pytest.mark.parametrize("status", [429, 500, 503])
def test_trouble_of_its_own_is_no_answer(status: int) -> None:
    with Server({"POST /tokenize": text("{}", status=status)}) as server, pytest.raises(Unanswered) as told:
        tokenizer(server).answers()
    assert told.value.refused


def test_a_server_that_is_gone() -> None:
    with Server() as server:
        asks = tokenizer(server)
    with pytest.raises(Unanswered, match="refused") as told:
        asks.tokens(prompt(text="hi"))
    assert not told.value.refused


def test_it_leaves_the_server_time() -> None:
    pauses: list[float] = []
    asked = Asked(tokenize={"tokens": [1]})
    with Server(asked.answers) as server:
        asks = tokenizer(server)
        asks.pause = pauses.append
        for number in range(3):
            asks.tokens(prompt(text=str(number)))
    assert pauses[0] == 0.0
    assert all(pause >= 0.02 for pause in pauses[1:])


def test_adapters_are_models_with_a_parent() -> None:
    models = {"data": [{"id": "base", "parent": None}, {"id": "ad", "parent": "base"}, "odd"]}
    with Server({"/v1/models": text(json.dumps(models))}) as server:
        adapters = Adapters(server.url, "")
        assert [adapters.adapter(name) for name in ("base", "ad", "other", "")] == ["", "ad", "", ""]
        assert len(server.requests) == 1, "an unknown one is not asked for at once again"
    assert Adapters(server.url, "").adapter("ad") == ""
