"""What the HTTP API answers, in the OpenAI API's words. Pure.

Usage has the cached tokens by tier in SGLang's words (`sglext.cached_tokens_details`), which say them beside OpenAI's
total and are read by those who read SGLang's.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, ClassVar

from engine.errors import RequestError
from engine.request import FinishReason, Request, TokenSources
from engine.serving.frontend import Piece

Json = dict[str, Any]


def error(refused: RequestError) -> Json:
    """The error object."""
    return {
        "error": {
            "message": str(refused),
            "type": refused.kind,
            "param": refused.param,
            "code": refused.code,
        }
    }


def usage(requests: Sequence[Request]) -> Json:
    """The fields that tell where the tokens of these requests came from; a tier that gave none gave 0."""
    prompt = sum(len(request.prompt) for request in requests)
    completion = sum(len(request.output) for request in requests)
    sources = total([request.sources for request in requests])
    return {
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": sources.cached},
        },
        "sglext": {
            "cached_tokens_details": {
                "device": sources.device,
                "host": sources.host,
                "storage": sources.remote,
            }
        },
    }


def total(sources: Sequence[TokenSources]) -> TokenSources:
    """Of the prompts of a call."""
    return TokenSources(
        device=sum(s.device for s in sources),
        host=sum(s.host for s in sources),
        remote=sum(s.remote for s in sources),
        computed=sum(s.computed for s in sources),
        recomputed=sum(s.recomputed for s in sources),
    )


class Form:
    """How the answers of a path look."""

    whole_object: ClassVar[str]
    chunk_object: ClassVar[str]

    def __init__(self, response_id: str, model: str) -> None:
        self._id, self._model, self._created = response_id, model, int(time.time())

    def whole(
        self, texts: Sequence[str], reasons: Sequence[FinishReason], requests: Sequence[Request]
    ) -> Json:
        """The answer in one piece."""
        choices = [self._choice(*choice) for choice in zip(range(len(texts)), texts, reasons, strict=True)]
        return self._message(self.whole_object, choices) | usage(requests)

    def opening(self) -> list[Json]:
        """The chunks before the first token."""
        return []

    def chunks(self, piece: Piece) -> list[Json]:
        """What a piece adds, with nothing for a token that is only a part of a character."""
        raise NotImplementedError

    def last(self, requests: Sequence[Request]) -> Json:
        """The chunk with the usage."""
        return self._message(self.chunk_object, []) | usage(requests)

    def _choice(self, index: int, text: str, reason: FinishReason) -> Json:
        raise NotImplementedError

    def _chunk(self, choice: Json) -> Json:
        return self._message(self.chunk_object, [choice])

    def _message(self, kind: str, choices: list[Json]) -> Json:
        return {
            "id": self._id,
            "object": kind,
            "created": self._created,
            "model": self._model,
            "choices": choices,
        }


class Chat(Form):
    """/v1/chat/completions"""

    whole_object, chunk_object = "chat.completion", "chat.completion.chunk"

    def opening(self) -> list[Json]:
        return [self._delta({"role": "assistant", "content": ""})]

    def chunks(self, piece: Piece) -> list[Json]:
        chunks = [self._delta({"content": piece.text})] if piece.text else []
        return [*chunks, self._delta({}, piece.finish_reason)] if piece.finish_reason else chunks

    def _delta(self, delta: Json, reason: FinishReason | None = None) -> Json:
        return self._chunk({"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason})

    def _choice(self, index: int, text: str, reason: FinishReason) -> Json:
        message = {"role": "assistant", "content": text, "refusal": None}
        return {"index": index, "message": message, "logprobs": None, "finish_reason": reason}


class Completion(Form):
    """/v1/completions"""

    whole_object = chunk_object = "text_completion"

    def chunks(self, piece: Piece) -> list[Json]:
        if not piece.text and not piece.finish_reason:
            return []
        return [self._chunk(self._choice(piece.index, piece.text, piece.finish_reason))]

    def _choice(self, index: int, text: str, reason: FinishReason | None) -> Json:
        return {"index": index, "text": text, "logprobs": None, "finish_reason": reason}
