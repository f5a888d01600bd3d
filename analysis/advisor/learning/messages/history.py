"""What becomes of a conversation from one request to the next: an honest one only grows at its end."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rapidfuzz.distance import Indel

from analysis.advisor.learning.cause import Cause
from analysis.advisor.learning.messages.examples import Examples, Key, key
from analysis.advisor.learning.messages.parallel import as_before
from analysis.advisor.learning.messages.unshared import carried
from analysis.advisor.learning.model import HEAD_ROLES, conversation
from analysis.advisor.learning.text.align import differences
from analysis.advisor.learning.text.json_forms import way
from analysis.advisor.rewriting.canonical import json_in_order, moved_items, sorted_json
from analysis.advisor.rewriting.words import normal, squeezed, words
from cachemodel.prompts.model import Kind, Part, Prompt

_THOUGHT = re.compile(r"\s*<(think|thinking|reasoning|thought)\b[^>]*>.*?</\1>\s*", re.DOTALL | re.IGNORECASE)

KNOWN_AGAIN = 64  # characters of messages that both have behind one that differs: it is one conversation
SHOWN = 80  # characters of a text that was changed as a whole

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


def changes(
    index: int, prompt: Prompt, earlier_index: int, earlier: Prompt, found: Examples = NO_EXAMPLES
) -> Iterator[Change]:
    """What differs before the end of what both have. The last message is no history but what is asked now: it may be
    another one behind the same beginning, such as a question put anew. found: examples, which are no history."""
    ours, theirs = found.behind(prompt), found.behind(earlier)
    first = len(prompt.parts) - len(ours)
    if last := carried(ours, theirs):
        ours, theirs = ours[:-last], theirs[:-last]
    if not ours or not theirs:
        return
    history = sum(part.message != ours[-1].message for part in ours)
    as_sent, (ours, moved) = ours, as_before(theirs, ours)
    if moved is not None:
        both = {key(part) for part in theirs}
        behind = sum(len(part.text) for part in ours[moved:history] if key(part) in both)
        texts = ours[moved].text[:SHOWN], as_sent[moved].text[:SHOWN]
        yield Change(index, earlier_index, Cause.ITEM_ORDER, first + moved, 0, *texts, behind)
    stretches = _stretches([key(part) for part in theirs], [key(part) for part in ours])
    if not any(one.same for one in stretches) and not _same_turns(ours, theirs):
        return
    for number, one in enumerate(stretches):
        if one.same:
            continue
        rest = any(later.same for later in stretches[number + 1 :])
        behind = sum(_in_both(later, theirs, ours, history) for later in stretches[number + 1 :])
        gone, come = theirs[one.first : one.last], ours[one.begin : min(one.end, history)]
        for why, part, offset, before, now, more in _told(gone, come, behind, one.first == 0, rest):
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


def _in_both(stretch: _Stretch, theirs: Sequence[Part], ours: Sequence[Part], history: int) -> int:
    """Characters that both have there; of messages that were changed one by one, what the shorter of each two has."""
    if stretch.same:
        return sum(len(part.text) for part in ours[stretch.begin : stretch.end])
    gone, come = theirs[stretch.first : stretch.last], ours[stretch.begin : min(stretch.end, history)]
    if len(gone) != len(come):
        return 0
    return sum(min(len(a.text), len(b.text)) for a, b in zip(gone, come, strict=True))


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
        after = behind + sum(rest[at + 1 : len(gone)])
        if old.role != new.role or old.kind != new.kind:
            return  # from here on it is another conversation
        if not _alike(_said(old.text), _said(new.text)):
            # What a tool answered, or what stands before the same messages, was replaced: cleared, or summed up.
            if old.kind is not Kind.RESULT and behind < KNOWN_AGAIN:
                return
            yield Cause.HISTORY_REWRITTEN, at, 0, old.text[:SHOWN], new.text[:SHOWN], after
            continue
        yield from (
            (why, at, offset, a, b, after + own) for why, offset, a, b, own in _text(old.text, new.text)
        )


def _text(old: str, new: str) -> Iterator[tuple[Cause, int, str, str, int]]:
    """How a message's text was changed: cause, offset in the new one, both values, characters behind that both have."""
    if old == new:
        return
    if len(_said(old)) < len(old) and squeezed(_said(old)) == squeezed(_said(new)):
        yield Cause.REASONING_STRIPPED, 0, old[:SHOWN], new[:SHOWN], len(new)
    elif _in_order(old) is not None and _in_order(old) == _in_order(new):
        yield way((old, new))[0], _first_difference(old, new), old[:SHOWN], new[:SHOWN], len(new)
    elif normal(old) == normal(new):
        yield Cause.UNICODE, _first_difference(old, new), old[:SHOWN], new[:SHOWN], len(new)
    elif squeezed(old) == squeezed(new):
        at = _first_difference(old, new)
        yield Cause.WHITESPACE, at, old[at : at + 20], new[at : at + 20], len(new) - at
    elif squeezed(json_in_order(old)) == squeezed(json_in_order(new)):
        yield Cause.KEY_ORDER, _first_difference(old, new), old[:SHOWN], new[:SHOWN], len(new)
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
