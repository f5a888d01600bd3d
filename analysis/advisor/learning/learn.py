"""What breaks the prefix cache of these prompts: learned from the prompts alone."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from analysis.advisor.learning.behaviour import Seen, behaviour, cause
from analysis.advisor.learning.cause import Cause
from analysis.advisor.learning.clusters import clusters
from analysis.advisor.learning.lost import Again, Lost, lost, talks
from analysis.advisor.learning.messages.examples import Examples, examples, examples_in_orders
from analysis.advisor.learning.messages.history import Change, changes
from analysis.advisor.learning.messages.threads import Thread, threads
from analysis.advisor.learning.messages.tools import (
    definition_slots,
    list_slots,
    tool_name,
    tool_samples,
    tools,
)
from analysis.advisor.learning.messages.unshared import shared_behind
from analysis.advisor.learning.model import HEAD_ROLES, Cluster, Slot, head
from analysis.advisor.learning.remedy import rules_of
from analysis.advisor.learning.text.model import Sample, TextSlot, sample
from analysis.advisor.learning.text.passages import looked_up, passages
from analysis.advisor.learning.text.slots import MOST, text_slots
from analysis.advisor.learning.token_slots import token_slots
from cachemodel.prompts.model import Kind, Prompt

MIN_SHARE = 0.005  # of the characters of the log, that a slot costs at least
MIN_BEHIND = 32  # characters behind a slot on average: fewer are less than a block
MOST_PAIRS = 4000  # requests of a cluster whose conversation is followed
_TEXTS = (Kind.TEXT, Kind.RESULT)
_SEEN_AND_HEARD = (Kind.IMAGE, Kind.AUDIO, Kind.FILE)

Place = tuple[str, int]
"""Role, and which of its parts in the head; or one of the user's in the conversation."""
FIRST, LAST = "first of the user", "last of the user"


def learn(
    prompts: Sequence[Prompt], progress: Callable[[int, int], None] = lambda done, of: None
) -> list[Slot]:
    """The slots of all clusters, costliest first. prompts: in order of time."""
    found: list[Slot] = []
    groups = clusters(prompts)
    total = sum(len(part.text) for prompt in prompts for part in prompt.parts) or 1
    for done, cluster in enumerate(groups):
        if len(cluster.requests) > 1:
            found += _of_cluster(prompts, cluster)
        progress(done + 1, len(groups))
    found += shared_behind(prompts)
    worth = [
        slot
        for slot in found
        if slot.requests * slot.behind >= MIN_SHARE * total and slot.behind >= MIN_BEHIND
    ]
    return sorted(worth, key=lambda slot: -slot.lost)


def _of_cluster(prompts: Sequence[Prompt], cluster: Cluster) -> Iterator[Slot]:
    requests = [(index, prompts[index]) for index in cluster.requests]
    shown = examples(requests)
    again, followed = Again(requests), threads(requests, shown)
    talk_of = talks(followed)
    yield from _tool_slots(requests, cluster, again, followed, talk_of)
    begun = {index for index, thread in followed.items() if not thread.surely}
    whole = set[Place]()
    for place, texts in _places(requests, begun, talk_of).items():
        of_user = place[0] in (FIRST, LAST)
        for slot in _of_place(texts.samples, of_user):
            yield _with_reason(_slot(slot, cluster, prompts, texts, again, {} if of_user else talk_of))
            if slot.whole and not of_user:
                whole.add(place)
    yield from examples_in_orders(requests, cluster, shown)
    yield from _history_slots(prompts, cluster, followed, shown, whole)
    yield from token_slots(requests, cluster)


def _of_place(samples: Sequence[Sample], of_user: bool) -> list[TextSlot]:
    """The slots of a place. What users send may be made of documents, which tell more of their order than texts do."""
    if not of_user:
        return looked_up(samples, text_slots(samples, whole=True))
    found = passages(samples)
    others = text_slots(samples)
    return found + [slot for slot in others if not found or slot.cause is not Cause.ITEM_ORDER]


def _tool_slots(
    requests: Sequence[tuple[int, Prompt]],
    cluster: Cluster,
    again: Again,
    followed: Mapping[int, Thread],
    talk_of: Mapping[int, int],
) -> Iterator[Slot]:
    prompts = dict(requests)
    by_cause: dict[Cause, list[tuple[str, Slot]]] = defaultdict(list)
    for name, samples in tool_samples(requests).items():
        texts = _Texts(samples, partial(_tool_at, prompts, name))
        for slot in definition_slots(samples):
            by_cause[slot.cause].append((name, _slot(slot, cluster, prompts, texts, again, talk_of)))
    for (
        told
    ) in by_cause.values():  # what is wrong with one definition is wrong with most, and is one thing to mend
        _, costliest = max(told, key=lambda one: one[1].lost)
        names = ", ".join(dict.fromkeys(name for name, _ in told))
        yield replace(costliest, detail=f"in {names}: {costliest.detail}".rstrip(": "))
    for slot in list_slots(requests, {at: told.earlier for at, told in followed.items() if told.surely}):
        own = tools(prompts[slot.example])
        at = next((i for i, part in enumerate(own) if tool_name(part.text) == slot.after), len(own) - 1)
        yield _slot(slot, cluster, prompts, _Texts((), _always(max(0, at))), again, talk_of)


def _tool_at(prompts: Mapping[int, Prompt], name: str, index: int) -> int:
    parts = enumerate(prompts[index].parts)
    return next(at for at, part in parts if part.kind is Kind.TOOL and tool_name(part.text) == name)


def _always(part: int) -> Callable[[int], int]:
    return lambda _: part


class _Texts(NamedTuple):
    """The texts of a place, in order of time, and which part of a request that is."""

    samples: Sequence[Sample]
    part_of: Callable[[int], int]


def _slot(
    slot: TextSlot,
    cluster: Cluster,
    prompts: Sequence[Prompt] | Mapping[int, Prompt],
    texts: _Texts,
    again: Again,
    talk_of: Mapping[int, int],
) -> Slot:
    example = prompts[slot.example]
    part = example.parts[texts.part_of(slot.example)]
    told = _lost(slot, texts, again, talk_of)
    return Slot(
        cause=slot.cause,
        cluster=cluster.number,
        path=part.path,
        role=part.role,
        offset=slot.offset,
        before=slot.before,
        after=slot.after,
        example=example.request_id,
        seen=slot.seen,
        behaviour=slot.behaviour,
        requests=round(told.requests),
        of=len(cluster.requests),
        behind=told.behind,
        detail=slot.detail,
        pattern=slot.pattern,
        items=slot.items,
        whole=slot.whole,
        alone=slot.alone,
        anew=told.anew,
        compared=MOST if slot.stands_for > 1 else None,
        lasts=told.lasts,
    )


def _lost(slot: TextSlot, texts: _Texts, again: Again, talk_of: Mapping[int, int]) -> Lost:
    """What requests pay for it: by its values, or all that have something else than most where it is none."""
    if slot.anew is not None and texts.samples:
        return lost(slot, texts.samples, texts.part_of, again, talk_of)
    behind = [again.behind(index, texts.part_of(index) + 1) for index in slot.differing]
    mean = slot.fixed_behind + sum(behind) / max(1, len(behind))
    return Lost(len(slot.differing) * slot.stands_for, slot.anew, mean, lasts=True)


def _with_reason(slot: Slot) -> Slot:
    """The slot, which says why there is no rule where people would expect one."""
    if slot.cause is not Cause.MEMORY or slot.detail or rules_of(slot):
        return slot
    return replace(slot, detail="no rule can tell where it begins and ends: move it in the template")


def _places(
    requests: Sequence[tuple[int, Prompt]], begun: Set[int], talk_of: Mapping[int, int]
) -> dict[Place, _Texts]:
    """The texts of each place: of the head part by part, of the user's first and last message. begun: requests that
    begin a conversation; of the others the first message is a matter of their history. talk_of: what is a session where
    requests tell none."""
    told: dict[Place, list[Sample]] = defaultdict(list)
    parts: dict[Place, dict[int, int]] = defaultdict(dict)
    for index, prompt in requests:
        for place, at in _named(prompt):
            if place[0] == FIRST and index not in begun:
                continue
            own = sample(index, prompt, prompt.parts[at])
            told[place].append(own if own.session else replace(own, session=f"conversation {talk_of[index]}"))
            parts[place][index] = at
    return {place: _Texts(samples, parts[place].__getitem__) for place, samples in told.items()}


def _named(prompt: Prompt) -> Iterator[tuple[Place, int]]:
    """The places that a prompt has, and which of its parts each is."""
    counts: Counter[str] = Counter()
    begin = len(head(prompt))
    for at, part in enumerate(prompt.parts[:begin]):
        if part.kind in _TEXTS and part.text:
            yield (part.role, counts[part.role]), at
            counts[part.role] += 1
    asked = [
        at
        for at, part in enumerate(prompt.parts[begin:], start=begin)
        if part.kind in _TEXTS and part.role == "user"
    ]
    if asked:
        yield (FIRST, 0), asked[0]
        if len(asked) > 1:
            yield (LAST, 0), asked[-1]


def _history_slots(
    prompts: Sequence[Prompt],
    cluster: Cluster,
    followed: Mapping[int, Thread],
    shown: Examples,
    whole: Set[Place],
) -> Iterator[Slot]:
    """What was changed in conversations, by cause and place. whole: messages of the head that vary; where one of them
    did it breaks the prefix before its conversation can, and the request is a matter of that slot."""
    found, compared = defaultdict[tuple[Cause, str, str], list[Change]](list), 0
    for index in cluster.requests[-MOST_PAIRS:]:
        if (earlier := followed[index].earlier) is None:
            continue
        compared += 1
        for change in changes(index, prompts[index], earlier, prompts[earlier], shown):
            part = prompts[index].parts[min(change.part, len(prompts[index].parts) - 1)]
            found[change.cause, part.role, part.kind.value].append(change)
    for (why, role, _), told in found.items():
        first = [one for one in told if not _varied(prompts[one.request], prompts[one.earlier], whole)]
        yield _of_changes(prompts, cluster, why, role, first or told, compared)


def _varied(prompt: Prompt, earlier: Prompt, places: Set[Place]) -> bool:
    """Whether the texts of one of the places differ."""
    if not places:
        return False
    ours, theirs = ({place: one.parts[at].text for place, at in _named(one)} for one in (prompt, earlier))
    return any(ours.get(place) != theirs.get(place) for place in places)


def _of_changes(
    prompts: Sequence[Prompt], cluster: Cluster, why: Cause, role: str, told: Sequence[Change], compared: int
) -> Slot:
    change = max(told, key=lambda one: one.behind)
    prompt = prompts[change.request]
    part = prompt.parts[min(change.part, len(prompt.parts) - 1)]
    seen = tuple(
        Seen(one.request, one.now or one.before, p.time, p.session, p.user)
        for one in told
        for p in (prompts[one.request],)
    )
    behaves = None
    if why is Cause.HISTORY_REWRITTEN and len(seen) > 2:
        behaves = behaviour(seen)
        named = why if part.kind in _SEEN_AND_HEARD else cause(seen, behaves)
        why = named if named in (Cause.CLOCK, Cause.COUNTER, Cause.NONCE) else why
    detail = ""
    if why is Cause.INSERTED and part.role in HEAD_ROLES:
        detail = "a system message comes into the middle of the conversation"
    elif why is Cause.HISTORY_REWRITTEN and part.kind is Kind.RESULT:
        detail = "what tools answered is replaced or cut afterwards"
    elif why is Cause.ITEM_ORDER and part.kind is Kind.RESULT:
        detail = "results of calls that were made at once come in another order afterwards"
    elif why is Cause.HISTORY_REWRITTEN and part.kind in _SEEN_AND_HEARD:
        detail = f"the {part.kind.value} is another one: encoded anew, or another file"
    requests = {one.request for one in told}
    first = {one.request: max(c.behind for c in told if c.request == one.request) for one in told}
    return Slot(
        cause=why,
        cluster=cluster.number,
        path=part.path,
        role=role,
        offset=change.offset,
        before=change.before[:80],
        after=change.now[:80],
        example=prompt.request_id,
        seen=tuple({one.request: one for one in reversed(seen)}.values())[::-1],
        behaviour=behaves,
        requests=len(requests),
        of=max(1, compared),
        behind=sum(first.values()) / len(first),
        detail=detail,
    )
