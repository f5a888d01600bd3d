"""What a suggestion is called, the same in every log that has it, so that what was decided about it lasts. Pure.

What varies between logs is left out: values, counts, places in a conversation, and words that stand beside a value but
not in every prompt. What is left of a slot's surroundings are the words that its rule looks for.
"""

from __future__ import annotations

import hashlib
import re

from analysis.advisor.learning.model import HEAD_ROLES, Slot
from analysis.advisor.rewriting.words import words
from analysis.advisor.suggest import Suggestion

LENGTH = 12  # hexadecimal digits: of a thousand suggestions two are called alike once in some hundred million times
_OPEN = re.compile(r"\[\^\\n\][*+]\?|\[\^\\W\\d_\]\+|\\d\+|\\s\+|(?<!\\)[\^$]")  # what patterns leave open
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_MESSAGE, _INDEX = re.compile(r"^(messages|input|contents)\[\d+\]"), re.compile(r"\[\d+\]")


def key_of(one: Suggestion) -> str:
    """Short, of letters and digits."""
    return hashlib.blake2b(
        "\n".join(said_by(one)).encode(errors="replace"), digest_size=LENGTH // 2
    ).hexdigest()


def said_by(one: Suggestion) -> tuple[str, ...]:
    """What a key is the hash of: cause, role, shape of the path, words around that are always there, and what its
    rules do."""
    slot = one.slot
    actions = sorted(f"{rule.action.value} {rule.role}" for rule in one.rules)
    return (slot.cause.value, _role(slot), _shape(slot), " ".join(_always(slot)), ", ".join(actions))


def _role(slot: Slot) -> str:
    return "system" if slot.role in HEAD_ROLES else slot.role


def _shape(slot: Slot) -> str:
    """The path with the place of a message in front of the conversation, and no other number."""
    in_head = _MESSAGE.match(slot.path) if slot.role in HEAD_ROLES else None
    begin = in_head[0] if in_head else ""
    return begin + _INDEX.sub("[]", slot.path[len(begin) :])


def _always(slot: Slot) -> list[str]:
    """Words that the pattern of the slot has as they are, but for those of its values and for numbers, which may be
    the same all through one log and others in the next."""
    varying = {word for one in slot.seen for word in _words(one.value)}
    fixed = _ESCAPED.sub(r"\1", _OPEN.sub(" ", slot.pattern))
    return [word for word in _words(fixed) if word not in varying]


def _words(text: str) -> list[str]:
    return [word.casefold() for word in words(text).words if word.isalpha()]
