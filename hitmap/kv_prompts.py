"""Prompts that came as token ids, read by a tokenizer: their messages, and the tokens of their rewrites.

The tokens of a prompt stay those that were told. Where a rule changes a message, that message is tokenised anew between
the marks that stood around it, and all others keep their own.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cachemodel.prompts.chat import read_chat
from cachemodel.prompts.kv_messages import Marks, Message
from cachemodel.prompts.kv_vocabulary import Vocabulary
from cachemodel.prompts.model import Kind, Part, Prompt

IDS = "prompt_token_ids"

Ids = NDArray[np.uint32]
_MESSAGE = re.compile(r"messages\[(\d+)\]\.content")


class TokenTexts:
    """encode: tokens of a text that may hold marks. beyond: tokens that the vocabulary does not have; empty: prompts
    that said nothing."""

    def __init__(self, vocabulary: Vocabulary, encode: Callable[[str], Ids]) -> None:
        self.beyond = self.empty = 0
        self._vocabulary, self._encode = vocabulary, encode
        self._marks = Marks(vocabulary)
        self._known: dict[bytes, Sequence[Message]] = {}

    def read(self, prompts: Sequence[Prompt], *, with_replies: bool) -> list[Prompt]:
        """Those that are tokens, as what they say; others as they are. with_replies: of their tokens the last may be
        what the model answered, which is the prompt's response then, and none of its tokens."""
        told = []
        for prompt in prompts:
            if len(prompt.parts) != 1 or prompt.parts[0].kind is not Kind.TOKENS:
                told.append(prompt)
            elif said := self._said(prompt, prompt.parts[0].tokens, with_replies):
                told.append(said)
            else:
                self.empty += 1
        return told

    def _said(self, prompt: Prompt, ids: tuple[int, ...], with_replies: bool) -> Prompt | None:
        self.beyond += self._vocabulary.beyond(ids)
        messages, response, answered = self._marks.messages(ids), prompt.response, prompt.reply
        if messages and messages[-1].role == "assistant" and (with_replies or not messages[-1].content):
            *messages, reply = messages
            begun = self._begins(ids, reply)
            ids, answered, response = ids[:begun], ids[begun:], reply.content or None
            if not messages:
                return None
        self._known[_key(ids)] = messages
        if not messages:
            text = self._vocabulary.text(ids)
            parts: tuple[Part, ...] = (Part("prompt", "prompt", Kind.TEXT, text),)
            return replace(prompt, parts=parts, body={IDS: list(ids), "prompt": text}) if text else None
        plain = [_plain(one) for one in messages]
        body = {IDS: list(ids), "messages": plain}
        parts = tuple(read_chat(body, "messages", plain).parts)
        told = replace(prompt, parts=parts, body=body, response=response, reply=answered)
        return told if parts else None

    def _begins(self, ids: Sequence[int], message: Message) -> int:
        """The token at which a message's content begins."""
        own = ids[message.begin : message.end]
        return message.begin + self._vocabulary.token_at(own, len(message.head))

    def tokens(self, body: Mapping[str, Any]) -> Ids | None:
        """Of a request that was read here, as it was or rewritten; None for others."""
        ids = body.get(IDS)
        if not isinstance(ids, list) or (own := self._known.get(_key(ids))) is None:
            return None
        if not own:
            text = body.get("prompt")
            same = text == self._vocabulary.text(ids)
            return np.array(ids, np.uint32) if same else self._encode(str(text))
        messages = body.get("messages") or []
        if messages == [_plain(one) for one in own]:
            return np.array(ids, np.uint32)
        return self._joined(np.array(ids, np.uint32), own, messages)

    def _joined(self, ids: Ids, own: Sequence[Message], messages: Sequence[Mapping[str, Any]]) -> Ids:
        """Tokens of rewritten messages: their own where they are as they were, between what stood around those of their
        role where they are not; and at the end what stood there."""
        of_role = {one.role: one for one in reversed(own)}
        as_it_was = {(one.role, one.content): one for one in own}
        told: list[Ids] = []
        for at, message in enumerate(messages):
            role, content = str(message.get("role")), message.get("content")
            if (one := as_it_was.get((role, content if isinstance(content, str) else ""))) is not None:
                told.append(ids[one.begin : one.end])
            else:
                beside = own[at] if at < len(own) and own[at].role == role else None
                frame = beside or of_role.get(role, own[-1])
                told.append(self._encode(f"{frame.head}{content}{frame.tail}"))
        return np.concatenate([*told, ids[own[-1].end :]]) if told else ids[:0]

    def position(self, prompt: Prompt, path: str, offset: int) -> int | None:
        """Tokens of the prompt that stand before a character of one of its parts; None where it was not read here."""
        ids = (prompt.body or {}).get(IDS)
        if not isinstance(ids, list) or (own := self._known.get(_key(ids))) is None:
            return None
        if not own:
            return self._vocabulary.token_at(ids, offset) if path == "prompt" else None
        match = _MESSAGE.fullmatch(path)
        if not match or int(match[1]) >= len(own):
            return None
        one = own[int(match[1])]
        return one.begin + self._vocabulary.token_at(ids[one.begin : one.end], len(one.head) + offset)


def _key(ids: Sequence[int]) -> bytes:
    return array("I", ids).tobytes()


def _plain(message: Message) -> dict[str, str]:
    return {"role": message.role, "content": message.content}
