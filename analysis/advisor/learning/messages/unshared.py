"""Text that many requests send word for word behind something that none of them shares."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from analysis.advisor.learning.behaviour import Seen
from analysis.advisor.learning.cause import Cause
from analysis.advisor.learning.messages.examples import Key, examples, key
from analysis.advisor.learning.messages.threads import threads
from analysis.advisor.learning.model import Slot
from cachemodel.prompts.model import Kind, Part, Prompt

MIN_CHARACTERS = 200
FEWEST = 3  # requests that have it
OFTEN = 0.03  # of all requests: of one service among many
APART = 0.5  # of those that have it do so behind something else
# of the conversations: what the model chose to read costs the others, were it sent in front to all
LOOKED_UP = 2 / 3
MODELS = ("assistant", "model")
_PICTURES = (Kind.IMAGE, Kind.AUDIO, Kind.FILE)


@dataclass
class _Found:
    """Where a text stands: (request, part), and what stands before it in the conversation."""

    places: list[tuple[int, int]] = field(default_factory=list)
    behind: set[int] = field(default_factory=set)
    pictures: int = 0
    results: int = 0


def shared_behind(prompts: Sequence[Prompt]) -> Iterator[Slot]:
    """A slot for every text of a conversation that is computed again because what precedes it there is another. What
    stands in the head is a matter of its slots, and what was changed in a conversation of its history: of each, only
    the first request that says it counts, and those that carry it along at their end."""
    found: dict[Key, _Found] = defaultdict(_Found)
    talk: dict[int, int] = {}
    said: set[tuple[int, Key]] = set()
    shown = examples(list(enumerate(prompts)))
    for index, thread in threads(list(enumerate(prompts)), shown).items():
        surely = thread.earlier if thread.surely else None
        talk[index] = index if surely is None else talk[surely]
        prompt = prompts[index]
        own = shown.behind(prompt)
        moving = len(own) if surely is None else len(own) - carried(own, shown.behind(prompts[surely]))
        first, examples_first = len(prompt.parts) - len(own), shown.of(prompt)
        before = hash(tuple(map(key, examples_first))) if examples_first else 0
        for at, part in enumerate(own):
            new = at >= moving or (talk[index], key(part)) not in said
            said.add((talk[index], key(part)))
            if new and before and _may_move(part):
                told = found[key(part)]
                told.places.append((index, first + at))
                told.behind.add(before)
                told.pictures += prompt.parts[first + at - 1].kind in _PICTURES
                told.results += part.kind is Kind.RESULT
            before = hash((before, key(part)))
    conversations = len(set(talk.values()))
    for told in found.values():
        n = len(told.places)
        often = LOOKED_UP * conversations if told.results > APART * n else OFTEN * len(prompts)
        if n >= max(FEWEST, often) and len(told.behind) > APART * n:
            yield _slot(prompts, told)


def carried(own: Sequence[Part], earlier: Sequence[Part]) -> int:
    """How many parts at the end of a conversation are those at the end of the request before, which moved on behind
    what was said since: instructions that every request sends last. Each is worth its place, and stands there alone."""
    if not own or len(own) <= len(earlier):
        return 0
    told = 0
    for ours, theirs in zip(reversed(own), reversed(earlier), strict=False):
        is_last = ours.message == own[-1].message
        if not is_last or key(ours) != key(theirs) or not _may_move(ours) or _times(ours, own) > 1:
            break
        told += 1
    return told


def _times(part: Part, own: Sequence[Part]) -> int:
    return sum(key(one) == key(part) for one in own)


def _may_move(part: Part) -> bool:
    """Whether it is worth its place, and no answer of the model, which stands where it was given."""
    looked_up = part.kind is Kind.RESULT or (part.kind is Kind.TEXT and part.role not in MODELS)
    return looked_up and len(part.text) >= MIN_CHARACTERS


def _slot(prompts: Sequence[Prompt], found: _Found) -> Slot:
    index, at = found.places[0]
    prompt = prompts[index]
    part, before = prompt.parts[at], prompt.parts[at - 1]
    pictures = found.pictures > APART * len(found.places)
    return Slot(
        cause=Cause.IMAGE_FIRST if pictures else Cause.SHARED_BEHIND,
        cluster=-1,
        path=part.path,
        role=part.role,
        offset=0,
        before=before.kind.value if pictures else before.text[-40:],
        after=" ".join(part.text[:60].split()[:4]),
        example=prompt.request_id,
        seen=tuple(Seen(one, prompts[one].parts[where - 1].text[:60]) for one, where in found.places),
        behaviour=None,
        requests=len(found.behind) - 1,
        of=len(prompts),
        behind=float(len(part.text)),
        detail=f"{len(found.places):,} requests send it, behind {len(found.behind):,} different beginnings",
    )
