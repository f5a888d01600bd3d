"""Which request goes on from which: conversations, known by what they say, or by the session that requests name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from analysis.advisor.learning.messages.examples import ANSWERING, Examples, Key, answers, examples, key
from cachemodel.prompts.model import Kind, Part, Prompt

MIN_CHARACTERS = 16  # of a message by which a conversation is known again
ENOUGH = 3  # messages of it, where the first one is another


@dataclass(frozen=True, slots=True)
class Thread:
    """Where a request stands in its conversation. earlier: the request before it, None where there is none. surely:
    whether what they say tells so, rather than the session that they name."""

    earlier: int | None
    surely: bool


def threads(requests: Sequence[tuple[int, Prompt]], found: Examples | None = None) -> dict[int, Thread]:
    """The request before each in the same conversation: the one that it goes on from word for word, or a later one of
    that conversation that had what was answered since; else the latest one that has most of its messages and is known
    to be of the conversation. What stands between two others and is no
    answer tells nothing: many conversations may have it, such as instructions. found: examples, which tell nothing."""
    found = examples(requests) if found is None else found
    whole: dict[int, int] = {}
    known, told = _Known(), dict[int, Thread]()
    for index, prompt in requests:
        own = found.behind(prompt)
        keys = [key(part) for part in own]
        begun = list(accumulate(keys, _hashed, initial=0))
        at = _gone_on_from(own, begun, whole)
        of = whole[begun[at]] if at else None
        before = known.before(keys, prompt.session) if of is None else known.latest(of, keys[at:])
        told[index] = Thread(
            known.last_of.get(prompt.session) if before is None else before, before is not None
        )
        whole[begun[-1]] = index
        known.add(index, before, of, own, keys, prompt.session)
    return told


def _hashed(before: int, one: Key) -> int:
    return hash((before, one))


def _gone_on_from(own: Sequence[Part], begun: Sequence[int], whole: Mapping[int, int]) -> int:
    """How many parts the longest request has that a conversation begins with, all of it, with nothing but answers
    between it and the last one; 0 for none. begun: hashes of the first n parts; whole: of all that requests said."""
    last = own[-1].message if own else 0
    at = sum(part.message != last for part in own)
    while at and begun[at] not in whole and answers(own[at - 1]):
        at -= 1
    long_enough = sum(len(part.text) for part in own[:at]) >= MIN_CHARACTERS
    return at if begun[at] in whole and long_enough else 0


class _Known:
    """The requests so far by what tells their conversations, which are named by their first one. last_of: the latest
    of each session."""

    def __init__(self) -> None:
        self.last_of: dict[str, int] = {}
        self._last_with: dict[Key, int] = {}
        self._root: dict[int, int] = {}
        self._last_behind: dict[tuple[int, Key], int] = {}
        self._said = Counter[Key]()
        self._first: dict[int, Key] = {}
        self._session: dict[int, str] = {}
        self._talk: dict[int, int] = {}

    def latest(self, index: int, since: Sequence[Key]) -> int:
        """A request, or the latest that went on from the same one and had a message of those since: the steps of an
        agent are answers alone, so that each goes on from its first request, however the steps between were sent."""
        root = self._root[index]
        return max((self._last_behind.get((root, one), index) for one in since), default=index)

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
        self,
        index: int,
        before: int | None,
        goes_on_from: int | None,
        own: Sequence[Part],
        keys: Sequence[Key],
        session: str,
    ) -> None:
        """A request that was sent, the one before it in its conversation, and the one it goes on from word for word."""
        self._root[index] = root = index if goes_on_from is None else self._root[goes_on_from]
        self._talk[index] = index if before is None else self._talk[before]
        telling = [one for one in _telling(keys) if len(one[2]) >= MIN_CHARACTERS]
        self._last_with.update(dict.fromkeys(telling, index))
        self._last_behind.update(((root, one), index) for one in telling)
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
