"""What to do with the zones of a heatmap where no rule can: templates of how to ask, with an example each.

A rewriter moves and orders what stands in one request. These change how an application asks: they are shown, and
somebody has to want them. Each has requests as they are often sent and as the template writes them, which do the same
job; tests replay both, so that what is promised is what comes out.

Source: DESIGN.md, section 7 (heatmap-driven rewriting: above 90 % split the task chain and add domain constraints, 60
to 90 % anchors for truncation).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Body = dict[str, Any]


@dataclass(frozen=True)
class Treatment:
    """zone: of the heatmap that it is for, `hot` or `warm`. when: what to look for there; what: the imperative;
    template: how requests are written then, with what varies in <angle brackets>; differs: what the model sees
    differently. as_sent, rewritten: requests of an example in the order in which they are sent."""

    name: str
    zone: str
    when: str
    what: str
    template: str
    differs: str
    as_sent: tuple[Body, ...]
    rewritten: tuple[Body, ...]


_CONTRACT = " ".join(
    f"{number}. The {party} {duty} within {number + 6} days of the notice under section {number + 1}."
    for number, (party, duty) in enumerate(
        [
            ("lessee", "returns the machine to the yard it was taken from"),
            ("lessor", "repays the deposit less the cost of repairs"),
            ("carrier", "names the wagon and the hour of loading"),
            ("insurer", "sends an assessor to the place of the damage"),
        ]
        * 4,
        start=1,
    )
)
_STEPS = (
    ("extractor", "List every duty in the contract, one a line, with the number of its section."),
    ("classifier", "Mark each duty as payment, transport or inspection."),
    ("critic", "Name duties that contradict each other, or write: none."),
)
_RULES = (
    "Answer from the tariff tables of the port of Turku only. Quote the table and the year. Give sums in euros without"
    " value added tax. Where two tables differ, the later one holds. Never estimate a fee that no table has; name the"
    " office that decides it. Write numbers with a blank between thousands."
)
_QUESTIONS = (
    "What does a ship of 4,000 tons pay for a night at the coal quay?",
    "Is there a rebate for the third call within a month?",
    "Which fee is due for fresh water on a Sunday?",
    "Does the pilot's fee hang on the draught or on the length?",
)
_TURNS = tuple(
    (
        f"Week {number}: the {boat} came in with {17 * number} crates and left {number} behind, and the foreman asks"
        " where to put them.",
        f"Put them into shed {number % 5 + 1}, tell the customs office, and write the crates of the {boat} into the"
        " book.",
    )
    for number, boat in enumerate(("Aallotar", "Brage", "Capella", "Dagny", "Eos", "Freja") * 4, start=1)
)
_KEPT = 6  # turns of a conversation


def _say(role: str, text: str) -> Body:
    return {"role": role, "content": text}


def _chain(*, split: bool) -> tuple[Body, ...]:
    """Three steps of one task: each with a role of its own in front, or each asked behind what all have read."""
    head = "You read contracts for a forwarding company. You are asked for one step at a time."
    said: list[Body] = [_say("system", head), _say("user", f"The contract:\n{_CONTRACT}")]
    sent: list[Body] = []
    for role, task in _STEPS:
        if split:
            asked = [*said, _say("user", task)]
            said = [*asked, _say("assistant", f"[what the {role} found]")]
        else:
            asked = [
                _say("system", f"You are the {role}. {task}"),
                _say("user", f"The contract:\n{_CONTRACT}"),
            ]
        sent.append({"messages": asked})
    return tuple(sent)


def _constrained(*, in_head: bool) -> tuple[Body, ...]:
    """Questions of one domain: its rules behind each of them, or once in front of all."""
    head = "You answer what callers ask a harbour office."
    return tuple(
        {
            "messages": [
                _say("system", f"{head}\n{_RULES}" if in_head else head),
                _say("user", question if in_head else f"{question}\n{_RULES}"),
            ]
        }
        for question in _QUESTIONS
    )


def _conversation(*, anchored: bool) -> tuple[Body, ...]:
    """A long conversation of which no request may hold all: the last turns of it, or those from the last anchor on."""
    return tuple(
        {"messages": [_say("system", "You keep the books of a quay."), *_history(turn, anchored=anchored)]}
        for turn in range(len(_TURNS))
    )


def _history(turn: int, *, anchored: bool) -> list[Body]:
    # from the anchor on there are _KEPT / 2 to _KEPT turns, as many as the window holds at most
    half = _KEPT // 2
    first = max(0, turn // half * half - half) if anchored else max(0, turn - _KEPT + 1)
    earlier = [
        _say(role, text)
        for asked in _TURNS[first:turn]
        for role, text in zip(("user", "assistant"), asked, strict=True)
    ]
    return [*earlier, _say("user", _TURNS[turn][0])]


SPLIT = Treatment(
    name="split the task chain",
    zone="hot",
    when="steps of one task send the same long text, each with instructions of its own in front of it",
    what="give all steps one beginning, with the text in it, and ask for one step after the other behind it",
    template="""\
system:    <who you are and what all steps need; the same in all of them>
user:      <the text that all steps read>
user:      <step 1>
assistant: <what came of step 1>
user:      <step 2>
...""",
    differs="later steps see what earlier ones answered",
    as_sent=_chain(split=False),
    rewritten=_chain(split=True),
)
CONSTRAINTS = Treatment(
    name="put domain constraints in front",
    zone="hot",
    when="rules that hold for all questions of a domain stand behind what differs, in every request",
    what="end the shared beginning with the domain's rules, word by word the same, and send the question alone behind",
    template="""\
system:    <who you are>
           <the rules of the domain: sources, units, what to do where nothing is known; the same in all requests>
user:      <the question alone>""",
    differs="the model reads the rules before the question",
    as_sent=_constrained(in_head=False),
    rewritten=_constrained(in_head=True),
)
ANCHORS = Treatment(
    name="truncate at anchors",
    zone="warm",
    when="a long conversation is cut to its last turns, so that it begins elsewhere in every request",
    what="set an anchor every few turns; when there is too much, begin at a later anchor, and not before",
    template="""\
system:    <the same in all requests>
user:      <the first turn behind the anchor>
assistant: ...
user:      <the newest turn>
(the anchor moves on by half the window when the window is full, so that half of it or more stays)""",
    differs="between half and all of the turns that the window held",
    as_sent=_conversation(anchored=False),
    rewritten=_conversation(anchored=True),
)
TREATMENTS: tuple[Treatment, ...] = (SPLIT, CONSTRAINTS, ANCHORS)


def of_zones(zones: Sequence[str]) -> list[Treatment]:
    """Those that are for one of these zones."""
    return [treatment for treatment in TREATMENTS if treatment.zone in zones]
