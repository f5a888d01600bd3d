"""The rules that put a slot right, where a request can be rewritten without knowing those before it."""

from __future__ import annotations

import re

from analysis.advisor.learning.cause import REMEDIES, Cause, Safety
from analysis.advisor.learning.model import HEAD_ROLES, Slot
from analysis.advisor.learning.whole import whole_pattern
from analysis.advisor.rewriting.canonical import is_array_key
from analysis.advisor.rewriting.rules import Action, Rule

_ANYTHING = ("", r"^[^\n]*?$", r"^[^\n]+?$", r"[^\n]*?", r"[^\n]+?")  # would move whatever stands first
RECURS = 0.5  # of the requests have a value of their own at most, where values come again
_LASTS = (Cause.SESSION_VALUE, Cause.USER_VALUE, Cause.VARIANT)
_UNOWNED = (Cause.UNKNOWN, Cause.ITEM_ORDER)  # nothing tells how long it lasts
_ROLES = {"model": "assistant"}  # Gemini's name
_FORMS = (Cause.WHITESPACE, Cause.UNICODE)
_JSON = ("assistant", "tool")  # whose calls and results are JSON as a whole


def rules_of(slot: Slot) -> tuple[Rule, ...]:
    """The rules; none where the history of the conversation, or something outside the prompt, is at fault, and none
    where the prompt is known by its tokens alone."""
    if slot.tokens_alone:
        return ()
    role = "system" if slot.role in HEAD_ROLES else _ROLES.get(slot.role, slot.role)
    if slot.cause in _FORMS and not _of_json(slot, role):
        return (Rule(Action.ONE_FORM, role),)
    # what one line lists no rule can tell apart: it moves as a whole
    in_line = slot.cause is Cause.ITEM_ORDER and bool(slot.pattern)
    if slot.cause in (Cause.KEY_ORDER, Cause.TOOL_ORDER, Cause.ITEM_ORDER, *_FORMS) and not in_line:
        return _ordering(slot, role)
    if slot.whole and role == "system":
        return _of_whole(slot)
    pattern = _described(slot.pattern) if role == "tools" else slot.pattern
    if pattern in _ANYTHING or REMEDIES[slot.cause].safety is Safety.NONE:
        return ()
    if role == "tools" and not _tells(pattern):
        return ()
    dropped = REMEDIES[slot.cause].safety is Safety.DROP and slot.alone
    if dropped:
        return (Rule(Action.DROP, role, pattern=pattern),)
    # what lasts for a session is shared by its turns; in a user's own message there is no other place
    within = _stays_within(slot) or role not in ("system", "prompt", "tools")
    return (Rule(Action.MOVE, role, pattern=pattern, within=within),)


def _of_whole(slot: Slot) -> tuple[Rule, ...]:
    """Of a message, or a block of one, that varies as a whole."""
    known_by = whole_pattern([one.value for one in slot.seen])
    if not known_by:
        return ()
    lasts = _stays_within(slot) and _is_block(slot)
    return (Rule(Action.MOVE_MESSAGE, "system", known_by, message=_ordinal(slot), within=lasts),)


def _stays_within(slot: Slot) -> bool:
    """Whether it goes to the end of what the system says: there its next value breaks all of the conversation. What
    comes again though nothing tells whose it is, such as flags, is shared there by those who have the same."""
    found = slot.behaviour
    comes_again = found is not None and found.distinct <= RECURS * found.n
    return slot.lasts and (slot.cause in _LASTS or (slot.cause in _UNOWNED and comes_again))


def _described(pattern: str) -> str:
    """A pattern that was learned from a definition's JSON as its description has it."""
    return pattern.replace(r'\\"', '"')


def _tells(pattern: str) -> bool:
    """Whether a pattern has a word of its own: one of numbers alone would find those of any other tool."""
    return re.search(r"[^\W\d_]{3,}", re.sub(r"\\[sdW]|\[\^[^\]]*\]", "", pattern)) is not None


def _of_json(slot: Slot, role: str) -> bool:
    """Whether it is about how JSON is written: the rule that sorts its keys writes it in one way."""
    return role != "tools" and (bool(slot.items) or (role in _JSON and slot.before[:2] in ('{"', "[{")))


def _ordering(slot: Slot, role: str) -> tuple[Rule, ...]:
    """Of what was seen in several orders, and of nothing else in the prompt."""
    if slot.cause is Cause.KEY_ORDER or slot.cause in _FORMS:
        if role == "tools":
            return (Rule(Action.SORT_KEYS, role),)
        # calls and results are JSON as a whole; other texts have some of which the order was never seen to vary
        whole = role in _JSON
        return (Rule(Action.SORT_KEYS, role, items=slot.items),) if slot.items or whole else ()
    if role == "tools":
        return (Rule(Action.SORT_TOOLS, role),) if slot.cause is Cause.TOOL_ORDER else ()
    if not slot.items:
        return ()
    action = Action.SORT_JSON if all(map(is_array_key, slot.items)) else Action.SORT_ITEMS
    return (Rule(action, role, items=slot.items),)


def _is_block(slot: Slot) -> bool:
    """Whether it is one of the blocks of a message, by its path: `system[0].text`, `messages[0].content[1].text`."""
    return slot.path.endswith(".text")


def _ordinal(slot: Slot) -> int:
    """Which of the texts of its prompt or conversation it is, by its path: messages that are moved stand at the head,
    and blocks in the first message that has several."""
    return sum(map(int, re.findall(r"\[(\d+)\]", slot.path)))
