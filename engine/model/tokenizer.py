"""Text to token ids and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers

from cachemodel.chat_template import ChatTemplate, Message, Unrenderable, chat_template, special_tokens
from cachemodel.errors import UserError
from engine.errors import RequestError
from engine.model.config import read_json

_UNFINISHED = "\ufffd"


class Tokenizer:
    """A model folder's tokenizer.json and chat template. Thread-safe.

    vocab_size: one more than the highest token id. eos_token_ids: any of them ends a sequence.
    """

    def __init__(
        self,
        rules: tokenizers.Tokenizer,
        template: ChatTemplate | None,
        name: str,
        eos_token_ids: tuple[int, ...],
    ) -> None:
        self.name = name
        self.eos_token_ids = eos_token_ids
        self.vocab_size = 1 + max(rules.get_vocab(with_added_tokens=True).values(), default=-1)
        self._rules = rules
        self._template = template

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        """add_special_tokens: put what the model wants around a bare text, such as a begin token; a chat prompt has
        it already. Raises RequestError for text that no UTF-8 can carry, or that the vocabulary has no tokens for.
        """
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise RequestError(f"the text holds half a surrogate pair at character {error.start}") from None
        try:
            return list(self._rules.encode(text, add_special_tokens=add_special_tokens).ids)
        except BaseException as error:
            raise RequestError(f"the tokenizer has no tokens for this text: {_reason(error)}") from None

    def decode(self, ids: Sequence[int]) -> str:
        """Special tokens are no text; bytes that are no UTF-8 become U+FFFD."""
        return str(self._rules.decode(list(ids), skip_special_tokens=True))

    def chat_prompt(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None = None
    ) -> str:
        """Raises RequestError for a model without a chat template and for messages that its template refuses."""
        if self._template is None:
            raise RequestError("this model has no chat template; use completions instead", param="model")
        try:
            return self._template.render(messages, tools)
        except Unrenderable as error:
            raise RequestError(str(error), param="messages") from error

    def detokenizer(self) -> Detokenizer:
        """For one sequence."""
        return Detokenizer(self)


class Detokenizer:
    """Turns a growing sequence into text, piece by piece; the pieces joined are the text of the whole.

    A character whose bytes are not all there waits for the rest. The window begins one piece back, for tokens whose
    text depends on what is before them (a word's leading space).
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._decode = tokenizer.decode
        self._window: list[int] = []
        self._told = 0  # ids of the window whose text was given out

    def push(self, ids: Sequence[int]) -> str:
        """The text that these ids complete, empty where they complete none."""
        self._window += ids
        text = self._text()
        if not text or text.endswith(_UNFINISHED):
            return ""
        self._window = self._window[self._told :]
        self._told = len(self._window)
        return text

    def finish(self) -> str:
        """What is left of a sequence that ended within a character."""
        text = self._text()
        self._window, self._told = [], 0
        return text

    def _text(self) -> str:
        return self._decode(self._window)[len(self._decode(self._window[: self._told])) :]


def read_tokenizer(folder: Path, name: str, eos_token_ids: tuple[int, ...]) -> Tokenizer:
    """eos_token_ids: of the model's configuration; where there are none, its tokenizer_config.json may name one.

    Raises UserError for a missing or broken file.
    """
    path = folder / "tokenizer.json"
    if not path.exists():
        raise UserError(f"{path} is missing: the engine reads no other kind of tokenizer")
    try:
        rules = tokenizers.Tokenizer.from_str(path.read_text())
    except BaseException as error:
        raise UserError(f"{path} is no tokenizer: {_reason(error)}") from None
    rules.no_padding()
    rules.no_truncation()
    beside = folder / "tokenizer_config.json"
    settings = read_json(beside) if beside.exists() else {}
    eos_token = special_tokens(settings).get("eos_token", "")
    if not eos_token_ids and (eos := rules.token_to_id(eos_token)) is not None:
        eos_token_ids = (eos,)
    return Tokenizer(rules, _template(folder, settings), name, eos_token_ids)


def _reason(error: BaseException) -> str:
    """What the tokenizers library says. It raises bare Exceptions, and where its Rust code panics a BaseException that
    has no public name; what is neither goes on."""
    if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
        raise error
    return str(error)


def _template(folder: Path, settings: Mapping[str, Any]) -> ChatTemplate | None:
    """A file of its own, or a setting."""
    path = folder / "chat_template.jinja"
    try:
        source = path.read_text(errors="replace") if path.exists() else None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    try:
        return chat_template(settings, source)
    except ValueError as error:
        raise UserError(f"{folder}: the chat template cannot be read: {error}") from error
