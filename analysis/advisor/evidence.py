"""What was seen of a slot, in words."""

from __future__ import annotations

from collections.abc import Mapping

from analysis.advisor.learning.behaviour import Behaviour
from analysis.advisor.learning.cause import Cause
from analysis.advisor.learning.model import Slot


def evidence(slot: Slot, token: int | None = None) -> str:
    """What was seen, in one sentence. token: at which it begins."""
    about, by = ("about ", f" ({slot.compared:,} were compared)") if slot.compared else ("", "")
    begin = f"differs in {about}{slot.requests:,} of {slot.of:,} requests{by}"
    begin += "" if token is None else f", from token {token:,} on"
    facts = [slot.detail] if slot.detail else []
    if slot.behaviour:
        facts += _facts(slot.cause, slot.behaviour)
    return f"{begin}: {'; '.join(facts)}" if facts else begin


def mends_as_well(mended: Slot, slot: Slot) -> str:
    about = "about " if slot.compared else ""
    before = " ".join(slot.after.split())
    what = "the same" if slot.cause is mended.cause else f"{slot.cause.value}"
    place = f" before \N{LEFT DOUBLE QUOTATION MARK}{before}\N{RIGHT DOUBLE QUOTATION MARK}" if before else ""
    return f"{what} in {about}{slot.requests:,} of {slot.of:,} others{place}, which it mends as well"


def _facts(cause: Cause, behaves: Behaviour) -> list[str]:
    told = [f"{behaves.distinct:,} different values in {behaves.n:,}"]
    shown: Mapping[Cause, str | None] = {
        Cause.CLOCK: _order(behaves),
        Cause.COUNTER: f"up by {behaves.step:g} each time" if behaves.step else None,
        Cause.SESSION_VALUE: _constant("session", behaves.in_session),
        Cause.USER_VALUE: _constant("user", behaves.in_user) or _constant("session", behaves.in_session),
    }
    return told + [fact for fact in (shown.get(cause),) if fact]


def _order(behaves: Behaviour) -> str | None:
    if behaves.with_time is not None and behaves.with_time > 0.9:
        return f"going up with the time of the request (rank correlation {behaves.with_time:.2f})"
    return f"going up in {behaves.rising:.0%} of the steps" if behaves.rising is not None else None


def _constant(what: str, share: float | None) -> str | None:
    return (
        f"the same within a {what} in {share:.0%} of the steps" if share is not None and share > 0.5 else None
    )
