"""Tokens by a local tokenizer: a model folder's tokenizer.json, and its chat template."""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import tokenizers

from cachemodel.chat_template import ChatTemplate, Unrenderable, chat_template
from cachemodel.errors import UserError
from collector.chains.prompt import Prompt
from collector.chains.tokens import CACHE_BYTES, Lru, Pieces, Tokenized, Untokenizable, lines

CHECK_FIRST, CHECK_EVERY = (
    8,
    256,
)  # prompts that are tokenised whole as well, to see that pieces come to the same
NO_TEMPLATE, NOT_TEXT = "the tokenizer's folder has no chat template", "not rendered by the chat template"
NO_TOKENS = "no tokens for its text"

T = TypeVar("T")
_Piece = tuple["array[int]", "array[int]"]  # ids, and the ends of their characters


class LocalTokenizer:
    """Renders and tokenises as a server that was given the same files.

    A text is cut at its special tokens, which no other token reaches across, and at ends of lines where no word of the
    tokenizer does; what stands between is tokenised once as long as it is remembered: what the turns of a conversation
    and the prompts of a template share costs nothing again.
    """

    told_by = "tokenizer"
    exact = True

    def __init__(self, rules: tokenizers.Tokenizer, template: ChatTemplate | None, name: str) -> None:
        self.name = name
        self._rules = rules
        self._template = template
        told = json.loads(rules.to_str())
        self._adds = rules.num_special_tokens_to_add(False) > 0
        self._special = _separators(told)
        self._cut = lines if _words_end_with_lines(rules, told) else _as_it_is
        self._pieces = Pieces(self._ids)
        self._spans: Lru[str, _Piece] = Lru(
            CACHE_BYTES, lambda text, piece: 200 + 2 * len(text) + 8 * len(piece[0])
        )
        self._seen = 0

    def tokens(self, prompt: Prompt, *, with_text: bool = False) -> Tokenized:
        if prompt.messages is None:
            text, special = prompt.text or "", prompt.options.get("add_special_tokens") is not False
        else:
            text, special = self._rendered(prompt), prompt.options.get("add_special_tokens") is True
        whole = self._special is None or (special and self._adds)
        told = self._whole(text, special) if whole else self._joined(text, with_text)
        if prompt.truncated_to and prompt.truncated_to < len(told.ids):
            return Tokenized(told.ids[-prompt.truncated_to :])
        return told if with_text else Tokenized(told.ids)

    def _rendered(self, prompt: Prompt) -> str:
        options = prompt.options
        if self._template is None:
            raise Untokenizable(NO_TEMPLATE)
        if options.get("chat_template") or options.get("continue_final_message"):
            raise Untokenizable(NOT_TEXT)
        more = options.get("chat_template_kwargs")
        more = dict(more) if isinstance(more, dict) else {}
        more |= {name: options[name] for name in ("documents", "reasoning_effort") if name in options}
        try:
            return self._template.render(
                prompt.messages or (),
                prompt.tools,
                add_generation_prompt=options.get("add_generation_prompt") is not False,
                now=datetime.fromtimestamp(prompt.time),
                more=more,
            )
        except Unrenderable as error:
            raise Untokenizable(NOT_TEXT) from error

    def _joined(self, text: str, with_text: bool) -> Tokenized:
        """Of a text that is cut; of one in so many it is seen to that the whole comes to the same."""
        told = self._with_spans(text) if with_text else Tokenized(self._pieces.joined(self._cuts(text)))
        if self._seen < CHECK_FIRST or self._seen % CHECK_EVERY == 0:
            whole = self._whole(text, False)
            if list(whole.ids) != list(told.ids):
                self._special = None
                return whole
        self._seen += 1
        return told

    def _cuts(self, text: str) -> Iterator[str]:
        assert self._special is not None  # noqa: S101 - nothing is cut without
        return (line for piece in self._special.split(text) if piece for line in self._cut(piece))

    def _with_spans(self, text: str) -> Tokenized:
        ids, ends = array("I"), array("I")
        begin = 0
        for piece in self._cuts(text):
            told, their = self._spans.get(piece, lambda piece=piece: self._encode(piece, False))  # type: ignore[misc]
            ids.extend(told)
            ends.extend(array("I", (begin + end for end in their)))
            begin += len(piece)
        return Tokenized(ids, text, ends)

    def _ids(self, text: str) -> array[int]:
        (encoded,) = _told(lambda: self._rules.encode_batch_fast([text], add_special_tokens=False))
        return array("I", encoded.ids)  # without the places of characters, which cost a third

    def _whole(self, text: str, add_special_tokens: bool) -> Tokenized:
        ids, ends = self._encode(text, add_special_tokens)
        return Tokenized(ids, text, ends)

    def _encode(self, text: str, add_special_tokens: bool) -> _Piece:
        encoded = _told(lambda: self._rules.encode(text, add_special_tokens=add_special_tokens))
        return array("I", encoded.ids), array("I", (end for _, end in encoded.offsets))


def _told(encode: Callable[[], T]) -> T:
    """What the library tells. Raises Untokenizable."""
    try:
        return encode()
    except BaseException as error:  # its Rust code panics with a BaseException that has no public name
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise Untokenizable(NO_TOKENS) from None


def read_tokenizer(path: Path) -> LocalTokenizer:
    """The tokenizer in a model folder, or of a tokenizer.json with what stands beside it. Raises UserError."""
    file = path / "tokenizer.json" if path.is_dir() else path
    if not file.is_file():
        raise UserError(f"{file} is not there: --tokenizer wants a model folder or a tokenizer.json")
    try:
        rules = tokenizers.Tokenizer.from_str(file.read_text())
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from None
    except Exception as error:
        raise UserError(f"{file} is no tokenizer.json: {error}") from None
    rules.no_padding()
    rules.no_truncation()
    return LocalTokenizer(rules, _template(file.parent), str(path))


def _template(folder: Path) -> ChatTemplate | None:
    beside, settings_file = folder / "chat_template.jinja", folder / "tokenizer_config.json"
    try:
        settings = json.loads(settings_file.read_text()) if settings_file.is_file() else {}
        source = beside.read_text() if beside.is_file() else None
        return chat_template(settings if isinstance(settings, dict) else {}, source)
    except OSError as error:
        raise UserError(f"{error.filename} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise UserError(f"{folder}: the chat template cannot be read: {error}") from None


def _separators(rules: Mapping[str, Any]) -> re.Pattern[str] | None:
    """Finds the special tokens that stand for themselves wherever they are, and keeps them; None where cutting there
    could change what is between: a tokenizer that treats the beginning of a text differently, or has no such tokens."""
    if '"prepend_scheme": "first"' in json.dumps(rules):
        return None
    tokens = [token["content"] for token in rules.get("added_tokens", ()) if _stands_alone(token)]
    whole = [token for token in rules.get("added_tokens", ()) if not _stands_alone(token)]
    if not tokens or any(
        token["content"] in other["content"] for token in whole for other in rules["added_tokens"]
    ):
        return None
    longest_first = sorted(tokens, key=len, reverse=True)
    return re.compile("(" + "|".join(map(re.escape, longest_first)) + ")")


def _stands_alone(token: Mapping[str, Any]) -> bool:
    return bool(token.get("special") and token.get("content")) and not any(
        token.get(name) for name in ("lstrip", "rstrip", "normalized", "single_word")
    )


_SIGNS = ("s", "S", "\u00e9", "\u0301", "1", ".", "'", "<", "\u6771", "\N{PILE OF POO}")
_BLANKS = ("", " ", "\t", "\r", "\u00a0", "\n")


def _words_end_with_lines(rules: tokenizers.Tokenizer, told: Mapping[str, Any]) -> bool:
    """Whether the words that a text is split into before any token is made reach across no end of a line at which
    `lines` cuts: tried on all kinds of signs, one and two of them on either side."""
    if rules.pre_tokenizer is None or told.get("normalizer") not in (None, {"type": "NFC"}):
        return False

    def words(text: str) -> list[str]:
        return [word for word, _ in rules.pre_tokenizer.pre_tokenize_str(text)]

    before = {f"{far}{near}": words(f"{far}{near}\n") for far in (*_BLANKS, *_SIGNS) for near in _SIGNS}
    behind = {f"{near}{far}": words(f"{near}{far}") for far in (*_BLANKS, *_SIGNS) for near in _SIGNS}
    return all(
        words(f"{one}\n{other}") == [*ends, *begins]
        for one, ends in before.items()
        for other, begins in behind.items()
        if len(one) == 1 or len(other) == 1
    )


def _as_it_is(text: str) -> list[str]:
    return [text]
