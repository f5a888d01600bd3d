"""What becomes of a conversation from one request to the next: an honest one only grows at its end."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from rapidfuzz.distance import Indel

from analysis.advisor.learning.cause import Cause
from analysis.advisor.learning.messages.examples import ANSWERING, Examples, Key, answers, examples, key
from analysis.advisor.learning.model import HEAD_ROLES, conversation
from analysis.advisor.learning.text.align import differences
from analysis.advisor.rewriting.canonical import json_in_order, moved_items, sorted_json
from analysis.advisor.rewriting.words import normal, squeezed, words
from cachemodel.prompts.model import Kind, Part, Prompt

MIN_CHARACTERS = 16  # of a message by which a conversation is known again
ENOUGH = 3  # messages of it, where the first one is another
_THOUGHT = re.compile(r"\s*<(think|thinking|reasoning|thought)\b[^>]*>.*?</\1>\s*", re.DOTALL | re.IGNORECASE)

NO_EXAMPLES = Examples(frozenset(), frozenset())


@dataclass(frozen=True, slots=True)
class Change:
    """What a request has otherwise than the one before it in its conversation. part: of the request, that it begins at;
    offset: characters of that part before it. before, now: of the text that differs. behind: characters behind it that
    both have."""

    request: int
    earlier: int
    cause: Cause
    part: int
    offset: int
    before: str
    now: str
    behind: int


@dataclass(frozen=True, slots=True)
class Thread:
    """Where a request stands in its conversation. earlier: the request before it, None where there is none. surely:
    whether what they say tells so, rather than the session that they name."""

    earlier: int | None
    surely: bool


def threads(requests: Sequence[tuple[int, Prompt]], found: Examples | None = None) -> dict[int, Thread]:
    """The request before each in the same conversation: the one that it goes on from word for word; else the latest one
    that has most of its messages and is known to be of the conversation. What stands between two others and is no
    answer tells nothing: many conversations may have it, such as instructions. found: examples, which tell nothing."""
    found = examples(requests) if found is None else found
    whole: dict[int, int] = {}
    known, told = _Known(), dict[int, Thread]()
    for index, prompt in requests:
        own = found.behind(prompt)
        keys = [key(part) for part in own]
        begun = list(accumulate(keys, _hashed, initial=0))
        before = _gone_on_from(own, begun, whole)
        if before is None:
            before = known.before(keys, prompt.session)
        told[index] = Thread(
            known.last_of.get(prompt.session) if before is None else before, before is not None
        )
        whole[begun[-1]] = index
        known.add(index, before, own, keys, prompt.session)
    return told


def _hashed(before: int, one: Key) -> int:
    return hash((before, one))


def _gone_on_from(own: Sequence[Part], begun: Sequence[int], whole: Mapping[int, int]) -> int | None:
    """The request that a conversation begins with, all of it, with nothing but answers between it and the last message.
    begun: hashes of the first n parts; whole: of all that requests said."""
    last = own[-1].message if own else 0
    at = sum(part.message != last for part in own)
    while at and begun[at] not in whole and answers(own[at - 1]):
        at -= 1
    long_enough = sum(len(part.text) for part in own[:at]) >= MIN_CHARACTERS
    return whole.get(begun[at]) if at and long_enough else None


class _Known:
    """The requests so far by what tells their conversations, which are named by their first one. last_of: the latest
    of each session."""

    def __init__(self) -> None:
        self.last_of: dict[str, int] = {}
        self._last_with: dict[Key, int] = {}
        self._said = Counter[Key]()
        self._first: dict[int, Key] = {}
        self._session: dict[int, str] = {}
        self._talk: dict[int, int] = {}

    def before(self, keys: Sequence[Key], session: str) -> int | None:
        """The latest request with most of these messages: of the same session, with the same first message, or with
        ENOUGH of them that were said once and are not all answers. Others may have been answered alike."""
        votes, once, asked = Counter[int](), Counter[int](), set[int]()
        for one in keys[:-1]:
            if (at := self._last_with.get(one)) is None:
                continue
            votes[at] += 1
            once[self._talk[at]] += self._said[one] == 1
            if one[0] not in ANSWERING:
                asked.add(self._talk[at])
        ranked = [
            (begins, count, at)
            for at, count in votes.items()
            if (begins := self._first.get(at) == keys[0])
            or (session and self._session[at] == session)
            or (once[self._talk[at]] >= ENOUGH and self._talk[at] in asked)
        ]
        return max(ranked)[2] if ranked else None

    def add(
        self, index: int, before: int | None, own: Sequence[Part], keys: Sequence[Key], session: str
    ) -> None:
        """A request that was sent, and the one before it in its conversation."""
        self._talk[index] = index if before is None else self._talk[before]
        self._last_with.update((one, index) for one in _telling(keys) if len(one[2]) >= MIN_CHARACTERS)
        self._said.update(key(part) for part in _new(own))
        self._session[index] = session
        if keys:
            self._first[index] = keys[0]
        if session:
            self.last_of[session] = index


def _new(own: Sequence[Part]) -> Iterator[Part]:
    """What a request says for the first time: its last message, and the answers before it."""
    for part in reversed(own):
        if part.message != own[-1].message and not answers(part):
            return
        yield part


def _telling(keys: Sequence[Key]) -> Iterator[Key]:
    """The first and the last message, and what was answered in between."""
    for at, one in enumerate(keys):
        role, kind, _ = one
        if at in (0, len(keys) - 1) or role in ANSWERING or kind in (Kind.CALL, Kind.RESULT):
            yield one


def changes(
    index: int, prompt: Prompt, earlier_index: int, earlier: Prompt, found: Examples = NO_EXAMPLES
) -> Iterator[Change]:
    """What differs before the end of what both have. The last message is no history but what is asked now: it may be
    another one behind the same beginning, such as a question put anew. found: examples, which are no history."""
    ours, theirs = found.behind(prompt), found.behind(earlier)
    if not ours or not theirs:
        return
    first = len(prompt.parts) - len(ours)
    history = sum(part.message != ours[-1].message for part in ours)
    stretches = _stretches([key(part) for part in theirs], [key(part) for part in ours])
    if not any(one.same for one in stretches) and not _same_turns(ours, theirs):
        return
    for number, one in enumerate(stretches):
        if one.same:
            continue
        rest = [part for same in stretches[number + 1 :] if same.same for part in ours[same.begin : same.end]]
        behind = sum(len(part.text) for part in rest)
        gone, come = theirs[one.first : one.last], ours[one.begin : min(one.end, history)]
        for why, part, offset, before, now, more in _told(gone, come, behind, one.first == 0, bool(rest)):
            yield Change(index, earlier_index, why, first + one.begin + part, offset, before, now, more)


class _Stretch(NamedTuple):
    """Parts first to last - 1 of the earlier conversation, begin to end - 1 of the later one, the same or not."""

    first: int
    last: int
    begin: int
    end: int
    same: bool


def _stretches(theirs: Sequence[Key], ours: Sequence[Key]) -> list[_Stretch]:
    """Both conversations from their beginning to their end."""
    told: list[_Stretch] = []
    for code in Indel.opcodes(theirs, ours):
        one = _Stretch(code.src_start, code.src_end, code.dest_start, code.dest_end, code.tag == "equal")
        if told and not told[-1].same and not one.same:
            told[-1] = _Stretch(told[-1].first, one.last, told[-1].begin, one.end, False)
        else:
            told.append(one)
    return told


def _same_turns(ours: Sequence[Part], theirs: Sequence[Part]) -> bool:
    """Whether two conversations of which no message is the same are one of which every message was changed."""
    both = list(zip(theirs[:-1], ours, strict=False))
    return bool(both) and all(a.role == b.role and _alike(a.text, b.text) for a, b in both)


def _alike(first: str, second: str) -> bool:
    a, b = words(first).words, words(second).words
    return Indel.normalized_similarity(a, b) > 0.5


Told = tuple[Cause, int, int, str, str, int]


def _told(
    gone: Sequence[Part], come: Sequence[Part], behind: int, at_start: bool, more: bool
) -> Iterator[Told]:
    """What a stretch that differs is. behind: characters that both have after it, more: whether there are parts."""
    thoughts = [part for part in gone if part.kind is Kind.REASONING]
    if thoughts and len(gone) > len(come) and not any(part.kind is Kind.REASONING for part in come):
        yield Cause.REASONING_STRIPPED, 0, 0, thoughts[0].text, "", behind
        gone = [part for part in gone if part.kind is not Kind.REASONING]
    if not gone and not come:
        return
    if not come:
        if more:
            yield (
                (Cause.SLIDING_WINDOW if at_start else Cause.HISTORY_REWRITTEN),
                0,
                0,
                gone[0].text,
                "",
                behind,
            )
        return
    if not gone:
        if more:
            yield Cause.INSERTED, 0, 0, "", come[0].text, behind
        return
    if len(gone) == len(come) or not more:
        yield from _pairs(gone, come, behind)
    elif at_start and len(gone) > len(come):
        yield Cause.SLIDING_WINDOW, 0, 0, gone[0].text, come[0].text, behind
    else:
        yield Cause.HISTORY_REWRITTEN, 0, 0, gone[0].text, come[0].text, behind


def _pairs(gone: Sequence[Part], come: Sequence[Part], behind: int) -> Iterator[Told]:
    """Messages that stand in one place and differ."""
    rest = [len(part.text) for part in come]
    for at, (old, new) in enumerate(zip(gone, come, strict=False)):
        if old.role != new.role or old.kind != new.kind or not _alike(_said(old.text), _said(new.text)):
            return  # from here on it is another conversation
        after = behind + sum(rest[at + 1 : len(gone)])
        yield from (
            (why, at, offset, a, b, after + own) for why, offset, a, b, own in _text(old.text, new.text)
        )


def _text(old: str, new: str) -> Iterator[tuple[Cause, int, str, str, int]]:
    """How a message's text was changed: cause, offset in the new one, both values, characters behind that both have."""
    if old == new:
        return
    if len(_said(old)) < len(old) and squeezed(_said(old)) == squeezed(_said(new)):
        yield Cause.REASONING_STRIPPED, 0, old[:80], new[:80], len(new)
    elif _in_order(old) is not None and _in_order(old) == _in_order(new):
        yield Cause.KEY_ORDER, _first_difference(old, new), old[:80], new[:80], len(new)
    elif normal(old) == normal(new):
        yield Cause.UNICODE, _first_difference(old, new), old[:80], new[:80], len(new)
    elif squeezed(old) == squeezed(new):
        at = _first_difference(old, new)
        yield Cause.WHITESPACE, at, old[at : at + 20], new[at : at + 20], len(new) - at
    elif squeezed(json_in_order(old)) == squeezed(json_in_order(new)):
        yield Cause.KEY_ORDER, _first_difference(old, new), old[:80], new[:80], len(new)
    elif moved := moved_items(old, new):
        yield Cause.ITEM_ORDER, _first_difference(old, new), moved[0], moved[-1], len(new)
    else:
        a, b = words(old), words(new)
        for span in differences(a, b):
            offset = b.starts[span.begin] if span.begin < len(b) else len(new)
            end = b.ends[span.end - 1] if span.end else 0
            told = a.between(span.first, span.last), b.between(span.begin, span.end)
            yield Cause.HISTORY_REWRITTEN, offset, *told, max(0, len(new) - end)


def _said(text: str) -> str:
    """Without its thoughts."""
    return _THOUGHT.sub("", text)


def _in_order(text: str) -> str | None:
    """JSON with its keys in order, those of arguments too, which are JSON in a text; None for anything else."""
    if (told := sorted_json(text)) is None or not isinstance(call := json.loads(told), dict):
        return told
    if isinstance(given := call.get("arguments"), str) and (arguments := sorted_json(given)):
        call["arguments"] = arguments
    return json.dumps(call, sort_keys=True)


def _first_difference(first: str, second: str) -> int:
    return next((at for at, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), 0)


def late_system(prompt: Prompt) -> list[int]:
    """Parts of system messages that stand behind others: templates hoist them, and what they say moves to the top."""
    ours = conversation(prompt)
    first = len(prompt.parts) - len(ours)
    return [first + at for at, part in enumerate(ours) if part.role in HEAD_ROLES]
