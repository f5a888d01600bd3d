"""The tokens of a request's body, for those who replay prompts: by a local tokenizer, or approximately.

How many tokens an image is, its server alone knows. Each counts as PICTURE_TOKENS here, which are the same ones where
the same bytes or address were sent, and no others are: a prefix cache finds it again where it is the same image.
"""

from __future__ import annotations

import json
import re
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from analysis.advisor.pricing.gains import PICTURES
from cachemodel.errors import UserError
from cachemodel.prompts.blocks import Parts
from cachemodel.prompts.kv_vocabulary import Vocabulary
from cachemodel.prompts.model import Kind, Part, Prompt
from collector.chains.approximate import Approximation
from collector.chains.prompt import Prompt as Rendered
from collector.chains.prompt import read_body
from collector.chains.settings import APPROXIMATE
from collector.chains.text import TEXT_TYPES
from collector.chains.tokens import Tokenized, Tokenizer, Untokenizable

if TYPE_CHECKING:
    from hitmap.kv_prompts import TokenTexts

PICTURE_TOKENS = 1000
"""Of an image, a recording or a file. OpenAI's guide on images has 765 for one of 1024 x 1024 pixels in high detail
(85, and 170 for each of four tiles), Anthropic's (width x height) / 750, which is 1,398 for it."""
_PICTURE = re.compile(r"(?:image|audio|video|file) sha256:[0-9a-f]{64}")


class BodyTokens:
    """name: of who tells the tokens, for people. untold: requests that have no tokens, by reason. file: the
    tokenizer.json behind the tokenizer, None where there is none."""

    picture_tokens = PICTURE_TOKENS

    def __init__(self, tokenizer: Tokenizer, file: Path | None = None) -> None:
        self.name = tokenizer.name
        self.untold: dict[str, int] = {}
        self._tokenizer, self._file = tokenizer, file
        self._read_texts = self._pictures = False

    def __call__(self, body: Mapping[str, Any]) -> NDArray[np.uint32]:
        """The prompt's tokens; none where it has none, which is counted."""
        if self._read_texts and (told := self._texts.tokens(body)) is not None:
            return told
        prompt = read_body(body)
        if isinstance(prompt, str):
            return self._none(prompt)
        if prompt.tokens is not None:
            return np.array(prompt.tokens, dtype=np.uint32)
        try:
            return np.array(self._tokenized(prompt).ids, dtype=np.uint32)
        except Untokenizable as error:
            return self._none(str(error))

    @property
    def reads(self) -> bool:
        """Whether it can say what tokens say."""
        return self._file is not None

    def read(self, prompts: Sequence[Prompt], *, with_replies: bool) -> list[Prompt]:
        """Prompts that are tokens as what they say, see `TokenTexts.read`; as they are where it cannot."""
        if not self.reads:
            return list(prompts)
        self._read_texts = True
        return self._texts.read(prompts, with_replies=with_replies)

    def unread(self) -> list[str]:
        """What `read` could not read, one sentence each."""
        if not self._read_texts:
            return []
        told = [
            (
                self._texts.beyond,
                "tokens are beyond the vocabulary of this tokenizer: is it the model's own?",
            ),
            (self._texts.empty, "prompts hold no more than marks of the chat template"),
        ]
        return [f"{count:,} {why}" for count, why in told if count]

    def notes(self) -> list[str]:
        """What to know of the tokens that were told, one sentence each."""
        if not self._pictures:
            return []
        return [
            f"An image, a recording or a file counts as {PICTURE_TOKENS:,} tokens, whatever its size: its server alone"
            " knows how many it is."
        ]

    def position(self, prompt: Prompt, path: str, offset: int) -> int | None:
        """Tokens of the prompt as its server renders it that stand before a character of one of its parts; None where
        nobody knows."""
        if self._read_texts and (told := self._texts.position(prompt, path, offset)) is not None:
            return told
        if not self._tokenizer.exact or prompt.body is None:
            return None
        rendered = read_body(prompt.body)
        if isinstance(rendered, str) or rendered.tokens is not None:
            return None
        return self._of_rendered(rendered, prompt, path, offset)

    def ends(self, body: Mapping[str, Any], parts: Sequence[Part]) -> list[int]:
        """Tokens of the prompt before the end of each part; of one that its rendering does not have as it is, such as a
        tool, before that of the next one's beginning."""
        rendered = read_body(body)
        if isinstance(rendered, str) or rendered.tokens is not None:
            return [0] * len(parts)
        try:
            told = self._tokenized(rendered, with_text=True)
        except Untokenizable:
            return [0] * len(parts)
        ends, following = list[int](), len(told.text)
        for part, at in reversed(list(zip(parts, _places(told, parts), strict=True))):
            ends.append(bisect_right(told.ends, following if at is None else at + len(part.text)))
            following = following if at is None else at
        return ends[::-1]

    def _of_rendered(self, rendered: Rendered, prompt: Prompt, path: str, offset: int) -> int | None:
        try:
            told = self._tokenized(rendered, with_text=True)
        except Untokenizable:
            return None
        for part, at in zip(prompt.parts, _places(told, prompt.parts), strict=True):
            if part.path == path:
                return None if at is None else bisect_right(told.ends, at + offset)
        return None

    def _tokenized(self, prompt: Rendered, *, with_text: bool = False) -> Tokenized:
        """With the tokens of images where these stand. Raises Untokenizable."""
        messages = [_pictured(message) for message in prompt.messages or ()]
        if all(new is old for new, old in zip(messages, prompt.messages or (), strict=True)):
            return self._tokenizer.tokens(prompt, with_text=with_text)
        self._pictures = True
        return _filled(self._tokenizer.tokens(replace(prompt, messages=messages), with_text=True))

    @cached_property
    def _texts(self) -> TokenTexts:
        from hitmap.kv_prompts import TokenTexts

        assert self._file is not None  # noqa: S101 - `reads` says so
        try:
            vocabulary = Vocabulary(json.loads(self._file.read_text()))
        except ValueError as error:
            raise UserError(f"{self._file}: {error}; give the tokenizer of the model, or none") from None
        return TokenTexts(vocabulary, lambda text: self({"prompt": text, "add_special_tokens": False}))

    def _none(self, why: str) -> NDArray[np.uint32]:
        self.untold[why] = self.untold.get(why, 0) + 1
        return np.zeros(0, np.uint32)


def _pictured(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """The message with the hash of each image as a text in its place; itself where it has none."""
    if not isinstance(content := message.get("content"), list):
        return message
    blocks = [_hashed(block) for block in content]
    same = all(new is old for new, old in zip(blocks, content, strict=True))
    return message if same else {**message, "content": blocks}


def _hashed(block: object) -> object:
    if not isinstance(block, dict) or not isinstance(kind := block.get("type"), str) or kind in TEXT_TYPES:
        return block
    if kind == "tool_result":
        return _pictured(block)
    out = Parts()
    out.content("", block)
    if not out.parts or not all(part.kind in PICTURES for part in out.parts):
        return block
    return {"type": "text", "text": "\n".join(part.text for part in out.parts)}


def _filled(told: Tokenized) -> Tokenized:
    """With PICTURE_TOKENS equal tokens for each hash, which are no others'."""
    ids, ends = list[int](), list[int]()
    done = 0
    for picture in _PICTURE.finditer(told.text):
        first, last = bisect_right(told.ends, picture.start()), bisect_right(told.ends, picture.end())
        own = zlib.crc32(picture[0].encode())
        ids += [*told.ids[done:first], *[own] * PICTURE_TOKENS]
        ends += [*told.ends[done:first], *[picture.end()] * PICTURE_TOKENS]
        done = max(last, first)
    return Tokenized([*ids, *told.ids[done:]], told.text, [*ends, *told.ends[done:]])


def _places(told: Tokenized, parts: Sequence[Part]) -> Iterator[int | None]:
    """The character at which each part begins in a rendered prompt, looked for in order; None where it is not there."""
    begin = 0
    for part in parts:
        at = told.text.find(part.text, begin) if part.kind is not Kind.TOOL else -1
        begin = at + len(part.text) if at >= 0 else begin
        yield at if at >= 0 else None


def body_tokens(wanted: str) -> BodyTokens:
    """wanted: `approximate`, or a model's folder or tokenizer.json. Raises UserError for one that cannot be read."""
    if wanted == APPROXIMATE:
        return BodyTokens(Approximation())
    from collector.chains.local import read_tokenizer  # the library takes its time to load

    path = Path(wanted).expanduser()
    return BodyTokens(read_tokenizer(path), path / "tokenizer.json" if path.is_dir() else path)
