"""The definitions of tools, request by request: their order, their set, and the text of each."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import msgspec

from analysis.advisor.learning.behaviour import Seen
from analysis.advisor.learning.cause import Cause
from analysis.advisor.learning.text.model import Sample, TextSlot, sample
from analysis.advisor.learning.text.slots import text_slots
from cachemodel.prompts.model import Kind, Part, Prompt

SHOWN = 8
_DESCRIPTION = re.compile(r'("description":)"((?:[^"\\]|\\.)*)(?:"|$)')
_LINE_END = re.compile(r"(?<!\\)((?:\\\\)*)\\n")
_ORDERS = (Cause.KEY_ORDER, Cause.ITEM_ORDER)


def tools(prompt: Prompt) -> list[Part]:
    """The tools of a request, in order."""
    return [part for part in prompt.parts if part.kind is Kind.TOOL]


def tool_name(text: str) -> str:
    """Its name in the forms of OpenAI, Anthropic, Gemini and Bedrock; the beginning of anything else."""
    try:
        told = msgspec.json.decode(text.encode(errors="replace"))
    except (msgspec.DecodeError, RecursionError):
        told = None
    inner = told.get("function", told.get("toolSpec", told)) if isinstance(told, dict) else None
    name = inner.get("name") if isinstance(inner, dict) else None
    return name if isinstance(name, str) and name else text[:40]


def tool_samples(requests: Sequence[tuple[int, Prompt]]) -> dict[str, list[Sample]]:
    """The definitions of each tool, by its name."""
    told: dict[str, list[Sample]] = defaultdict(list)
    for index, prompt in requests:
        for part in tools(prompt):
            told[tool_name(part.text)].append(sample(index, prompt, part))
    return told


def definition_slots(samples: Sequence[Sample]) -> list[TextSlot]:
    """The slots of one tool's definitions. Their JSON tells of orders; where it tells of none, descriptions are read as
    other texts are, line by line."""
    if len({one.text for one in samples}) < 2:
        return []
    found = text_slots(samples)
    if any(slot.cause in _ORDERS for slot in found):
        return found
    return text_slots([replace(one, text=in_lines(one.text)) for one in samples])


def in_lines(text: str) -> str:
    """A definition whose descriptions stand on lines of their own, each as its lines are; as long as it was, so that
    every character stands where it stood."""
    return _DESCRIPTION.sub(lambda match: f"{match[1]}\n{_LINE_END.sub(_line_end, match[2])}\n", text)


def _line_end(match: re.Match[str]) -> str:
    return f"{match[1]} \n"


def list_slots(
    requests: Sequence[tuple[int, Prompt]], earlier: Mapping[int, int | None]
) -> Iterator[TextSlot]:
    """Slots of the list as a whole. earlier: the request before each in its conversation."""
    lists = [(index, tuple(tool_name(part.text) for part in tools(prompt))) for index, prompt in requests]
    if len({names for _, names in lists}) < 2:
        return
    yield from _order(lists)
    yield from _set(lists, earlier)


def _order(lists: Sequence[tuple[int, tuple[str, ...]]]) -> Iterator[TextSlot]:
    """The same tools in another order than most requests have them in."""
    usual = Counter(names for _, names in lists).most_common(1)[0][0]
    place = {name: at for at, name in enumerate(usual)}
    moved = {}
    for index, names in lists:
        known = [place[name] for name in names if name in place]
        if known != sorted(known):
            moved[index] = names
    if not moved:
        return
    first = min(
        next((at for at, (a, b) in enumerate(zip(usual, names, strict=False)) if a != b), 0)
        for names in moved.values()
    )
    orders = len({names for _, names in lists})
    yield _slot(Cause.TOOL_ORDER, lists, moved, usual, first, f"{len(usual)} tools in {orders} orders")


def _set(
    lists: Sequence[tuple[int, tuple[str, ...]]], earlier: Mapping[int, int | None]
) -> Iterator[TextSlot]:
    """Tools that nobody had before, or not the request before in the conversation. Senders that have tools of their own
    each and keep them find them again."""
    sets = {index: frozenset(names) for index, names in lists}
    if len(set(sets.values())) < 2:
        return
    by_index, known, last = dict(lists), set[frozenset[str]](), lists[0][0]
    changed, pairs = dict[int, tuple[str, ...]](), list[tuple[tuple[str, ...], tuple[str, ...]]]()
    for index, names in lists:
        before, own = earlier.get(index), sets[index]
        if before is not None and sets[before] != own:
            pairs.append((by_index[before], names))
            changed[index] = names
        elif known and own not in known:
            pairs.append((by_index[last], names))
            changed[index] = names
        known.add(own)
        last = index
    usual = Counter(names for _, names in lists).most_common(1)[0][0]
    growing = all(set(a) < set(b) for a, b in pairs)
    added = list(dict.fromkeys(name for a, b in pairs for name in sorted(set(b) - set(a))))
    what = "grows" if growing else "changes"
    detail = f"the set of tools {what} {len(pairs)} times: {', '.join(added[:SHOWN])}"
    first = min(len(usual), *(_first_changed(a, b) for a, b in pairs))
    yield _slot(Cause.TOOL_SET, lists, changed, usual, first, detail)


def _first_changed(before: Sequence[str], now: Sequence[str]) -> int:
    """The place of the first tool that one of two lists has and the other has not, in whatever order the rest is."""
    both = set(before) & set(now)
    return min(
        next((at for at, name in enumerate(names) if name not in both), len(names)) for names in (before, now)
    )


def _slot(
    why: Cause,
    lists: Sequence[tuple[int, tuple[str, ...]]],
    differing: dict[int, tuple[str, ...]],
    usual: tuple[str, ...],
    first: int,
    detail: str,
) -> TextSlot:
    """first: the tool at which they differ."""
    return TextSlot(
        cause=why,
        offset=0,
        before=usual[first - 1] if first else "",
        after=usual[first] if first < len(usual) else "",
        example=next(index for index, names in lists if names == usual),
        seen=tuple(Seen(index, ", ".join(names)) for index, names in list(differing.items())[:SHOWN]),
        behaviour=None,
        differing=frozenset(differing),
        fixed_behind=0,
        detail=detail,
    )
