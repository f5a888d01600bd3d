"""Prompts that nobody has sent before: random from their first token on, so that no entry of a user is used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random, SystemRandom

from collector.canary.words import WORDS

FEWEST_IDS = 64  # of fewer, too few different prompts can be made
CHAT_ALLOWANCE = 1024  # tokens that a template and a hidden system message may add
TEXT_ALLOWANCE = 16  # special tokens around a bare text


@dataclass(frozen=True, slots=True, eq=False)
class Prompt:
    """content: token ids or a text. tokens: how many it has, about so for a text. least, most: bounds of that, whatever
    the tokenizer: no text has more tokens than bytes, and a word has at least one."""

    content: list[int] | str
    tokens: int
    least: int
    most: int

    @property
    def exact(self) -> bool:
        return self.least == self.most


class Writer:
    """Writes prompts. ids: tokens to draw from; empty: texts of words instead. allowance: tokens the server may add."""

    def __init__(self, ids: Sequence[int] = (), allowance: int = 0, random: Random | None = None) -> None:
        self._ids, self._allowance = tuple(ids), allowance
        self._random = random or SystemRandom()

    def write(self, tokens: int) -> Prompt:
        """A new prompt of so many tokens, at least one."""
        if self._ids:
            return Prompt(self._random.choices(self._ids, k=tokens), tokens, tokens, tokens)
        text = " ".join(self._random.choices(WORDS, k=tokens))
        return Prompt(text, tokens, tokens, len(text.encode()) + self._allowance)

    @staticmethod
    def beginning(prompt: Prompt, tokens: int) -> Prompt:
        """The first tokens of a prompt of token ids."""
        return Prompt(prompt.content[:tokens], tokens, tokens, tokens)
