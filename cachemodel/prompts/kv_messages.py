"""Tokens of a rendered chat as the messages that they were, by the marks that the chat template puts around them. Pure.

The marks are tokens that were added to the vocabulary. One opens a message where it names a role (`<|user|>`,
`[INST]`), where a line with a role follows (`<|im_start|>user`, `<start_of_turn>model`), or where a role stands between
it and the next mark (`<|start_header_id|>user<|end_header_id|>`). What stands before the first of them is the system's.
The order of roles and marks is the tokens' own, no template is known here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from cachemodel.prompts.kv_vocabulary import Vocabulary

ROLES = {
    **{one: one for one in ("system", "developer", "user", "assistant", "tool")},
    **dict.fromkeys(("human", "inst"), "user"),
    **dict.fromkeys(("model", "gpt", "bot", "chatbot", "ai", "/inst"), "assistant"),
    **dict.fromkeys(("ipython", "function", "observation"), "tool"),
}
_WORD = re.compile(r"/?[^\W\d_]+")


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a chain. Tokens begin to end - 1 of the chain are `head`, `content` and `tail`: marks and role,
    what was said, and what closes it; together they are all of the chain."""

    role: str
    head: str
    content: str
    tail: str
    begin: int
    end: int


class Marks:
    """The marks of a vocabulary."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._roles = {
            token: role for token, text in vocabulary.marks.items() if (role := _role_of_mark(text))
        }

    def messages(self, ids: Sequence[int]) -> list[Message]:
        """The messages of a chain; empty where nothing opens one."""
        marks = self._vocabulary.marks
        places = [at for at, one in enumerate(ids) if one in marks]
        opened = self._opened(ids, places)
        if not opened:
            return []
        first = opened[0][0]
        if self._said(ids, 0, first, places).strip():
            opened.insert(0, (0, "system", self._lead(ids, 0, first)))
        else:
            opened[0] = 0, opened[0][1], len(self._vocabulary.text(ids[:first])) + opened[0][2]
        ends = [*(begin for begin, _, _ in opened[1:]), len(ids)]
        return [self._message(ids, *one, end) for one, end in zip(opened, ends, strict=True)]

    def _opened(self, ids: Sequence[int], places: Sequence[int]) -> list[tuple[int, str, int]]:
        """Where messages begin, whose they are, and characters of what opens them."""
        told: list[tuple[int, str, int]] = []
        for at, place in enumerate(places):
            mark = self._vocabulary.marks[ids[place]]
            if role := self._roles.get(ids[place]):
                told.append((place, role, len(mark)))
                continue
            behind = places[at + 1] if at + 1 < len(places) else len(ids)
            text = self._vocabulary.text(ids[place + 1 : min(behind, place + 9)])  # a role is short
            line, more, _ = text.partition("\n")
            if role := ROLES.get(line.strip().lower()):
                if more or behind == len(ids):
                    told.append((place, role, len(mark) + len(line) + len(more)))
                elif text == line:  # as far as the next mark, which closes it
                    told.append((place, role, self._header(ids, place, behind)))
        return told

    def _header(self, ids: Sequence[int], begin: int, closing: int) -> int:
        """Characters of a role between two marks, and of the line ends behind it."""
        after = self._vocabulary.text(ids[closing + 1 : closing + 3])
        return len(self._vocabulary.text(ids[begin : closing + 1])) + len(after) - len(after.lstrip("\n"))

    def _lead(self, ids: Sequence[int], begin: int, end: int) -> int:
        """Characters of marks that a text begins with."""
        at = begin
        while at < end and ids[at] in self._vocabulary.marks:
            at += 1
        return len(self._vocabulary.text(ids[begin:at]))

    def _said(self, ids: Sequence[int], begin: int, end: int, places: Sequence[int]) -> str:
        marks = {at for at in places if at < end}
        return self._vocabulary.text([ids[at] for at in range(begin, end) if at not in marks])

    def _message(self, ids: Sequence[int], begin: int, role: str, lead: int, end: int) -> Message:
        own = ids[begin:end]
        text = self._vocabulary.text(own)
        last = len(own)
        while last and (own[last - 1] in self._vocabulary.marks or self._blank_behind_mark(own, last)):
            last -= 1
        close = max(min(lead, len(text)), len(self._vocabulary.text(own[:last])))
        return Message(role, text[:lead], text[lead:close], text[close:], begin, end)

    def _blank_behind_mark(self, ids: Sequence[int], last: int) -> bool:
        """Whether a token is the blank that a template puts behind a closing mark."""
        return (
            last > 1
            and ids[last - 2] in self._vocabulary.marks
            and not self._vocabulary.text(ids[last - 1 : last]).strip()
        )


def _role_of_mark(text: str) -> str:
    """The role that a mark names and nothing else; empty where it names none."""
    words = [word for word in _WORD.findall(text.lower()) if word not in ("token", "start")]
    return ROLES.get(words[0], "") if len(words) == 1 else ""
