"""May this change go out? A report held against budgets: how many milliseconds each cause may cost."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from enum import StrEnum

from analysis.attribution.certainty.gate import OWN_SIGMAS
from analysis.attribution.model import Attribution, Share, View
from analysis.attribution.words import CAUSES, change_bounds, unexplained
from analysis.numbers import ms, quantile_name, signed
from analysis.report.model import SCHEMA, Report
from cachemodel.causes import MissCause
from cachemodel.errors import UsageError
from cachemodel.layers import SERVING_LAYERS

TOTAL = "total"
_NONE = (None, None)
_HITS, _CAPACITY = "hits", "capacity"
_MISSES = frozenset(map(str, MissCause))
_BUDGET = re.compile(
    r"\s*(?P<name>[^=]+?)\s*=\s*(?P<size>\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*(?P<unit>us|ms|s)\s*"
)
_LAYERS = tuple(layer.name for layer in SERVING_LAYERS)
_MS = {"us": 1e-3, "ms": 1.0, "s": 1e3}


class Outcome(StrEnum):
    """Of a budget, and of all of them."""

    WITHIN = "within"
    EXCEEDED = "exceeded"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Budget:
    """How many milliseconds a cause, a mechanism or the change in total may cost."""

    name: str
    limit: float


@dataclass(frozen=True, slots=True)
class Line:
    """A budget and what became of it, ms. value: None where nothing tells it. view: where it was read."""

    name: str
    limit: float
    value: float | None
    low: float | None
    high: float | None
    outcome: Outcome
    view: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """All budgets: exceeded where one is, undecided where one is and none is exceeded."""

    schema: int = SCHEMA
    outcome: Outcome
    lines: list[Line]
    report: Report


def parse_budget(text: str) -> Budget:
    """`changed=20ms`; raises UsageError."""
    if not (found := _BUDGET.fullmatch(text)):
        raise UsageError(f"{text!r} is no budget; write changed=20ms, 'decode speed=5ms' or total=50ms")
    return Budget(found["name"], float(found["size"]) * _MS[found["unit"]])


def decide(report: Report, budgets: Sequence[Budget]) -> Decision:
    """Hold a report against budgets; raises UsageError for a name that nothing has, or that has two.

    A cause exceeds its budget when its share is larger and told from chance, however slight it is: what matters is
    what the budget says. Larger and not told from chance is not decided.
    """
    if report.shared and report.shared >= min(report.a.n, report.b.n):
        raise UsageError(
            "all requests of one set are in the other one, too, which decides nothing: choose another"
        )
    names = [budget.name for budget in budgets]
    if double := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(f"there are several budgets for {', '.join(double)}: give one each")
    lines = [_line(report, budget) for budget in budgets]
    outcomes = {line.outcome for line in lines}
    worst = next((o for o in (Outcome.EXCEEDED, Outcome.UNDECIDED) if o in outcomes), Outcome.WITHIN)
    return Decision(outcome=worst, lines=lines, report=report)


def _line(report: Report, budget: Budget) -> Line:
    if budget.name == TOTAL:
        return _total(report, budget)
    found = report.attribution
    if found is None:
        raise UsageError("budgets of causes need an attribution")
    shown = _share(found.shows, budget.name)
    if budget.name in CAUSES and not found.caused.refused:
        return _of_cause(_share(found.caused, budget.name), budget, found.caused)
    if budget.name in CAUSES:
        return _direct(shown, found, budget)
    if shown is None:
        if found.shows.refused and budget.name in {*_LAYERS, *(line.layer for line in report.layers)}:
            return Line(
                budget.name, budget.limit, None, None, None, Outcome.UNDECIDED, "shows", found.shows.refused
            )
        raise UsageError(_unknown(budget.name, found))
    return _judged(shown, budget, found.shows)


def _of_cause(share: Share | None, budget: Budget, caused: View) -> Line:
    if share is None and (why := _told_otherwise(budget.name, {share.name for share in caused.shares})):
        return Line(budget.name, budget.limit, None, None, None, Outcome.UNDECIDED, "caused", why)
    if share is None:  # what did not change is not looked at
        why = "its input did not change"
        return Line(budget.name, budget.limit, 0.0, None, None, Outcome.WITHIN, "caused", why)
    line = _judged(share, budget, caused)
    if line.outcome is Outcome.WITHIN and unexplained(caused):
        why = f"{signed(caused.residual)} of {signed(caused.change)} is not explained: it may be of this"
        return replace(line, outcome=Outcome.UNDECIDED, why=why)
    return line


def _told_otherwise(name: str, told: Set[str]) -> str:
    """Why a cause that is not told may have changed all the same; empty where it cannot have."""
    if name in _MISSES and _HITS in told:
        return (
            "which prompts lost their hits is not known here: hold hits, or let hitmap read the request log"
        )
    if name == _HITS and not _MISSES.isdisjoint(told):
        causes = ", ".join(sorted(_MISSES & told))
        return f"lost hits are told by cause here: hold {causes}"
    if name == MissCause.EVICTED and _CAPACITY in told:
        return f"the room for KV changed, and what is evicted counts as {_CAPACITY}: hold that"
    return ""


def _direct(shown: Share | None, found: Attribution, budget: Budget) -> Line:
    """Without a twin only the direct effect of a token source is told, which leaves out what others waited for it: it
    can exceed a budget, and not keep within it."""
    if shown is not None and (line := _judged(shown, budget, found.shows)).outcome is Outcome.EXCEEDED:
        return line
    value, low, high = (None, None, None) if shown is None else (shown.value, shown.low, shown.high)
    return Line(budget.name, budget.limit, value, low, high, Outcome.UNDECIDED, "shows", found.caused.refused)


def _judged(share: Share, budget: Budget, view: View) -> Line:
    outcome, why = Outcome.WITHIN, ""
    if math.isnan(share.value) or share.low is None or share.high is None:
        outcome, why = Outcome.UNDECIDED, "too few requests for an interval"
    elif share.value > budget.limit and share.told_from_chance:
        outcome, why = Outcome.EXCEEDED, share.own
    elif share.value > budget.limit:
        outcome, why = Outcome.UNDECIDED, f"{_missing(share, view)}; compare more requests"
    elif share.high > budget.limit:
        why = f"it may be up to {ms(share.high)}: compare more requests to be surer"
    return Line(budget.name, budget.limit, share.value, share.low, share.high, outcome, view.kind, why)


def _missing(share: Share, view: View) -> str:
    """What a share that is larger than its budget lacks to be told from chance."""
    if share.sigmas is not None and view.gate is not None and share.sigmas <= view.gate:
        return f"not told from chance, {share.sigmas:.1f} sigmas of the {view.gate:.1f} that it takes"
    if share.own_sigmas is None:
        return "not told from chance: nothing tells whether it changed itself"
    return f"it changed itself by {share.own_sigmas:.1f} sigmas of the {OWN_SIGMAS:g} that it takes ({share.own})"


def _total(report: Report, budget: Budget) -> Line:
    """The change of the quantile itself, with the attribution's interval, which knows how long load has a memory."""
    name = quantile_name(report.quantile, "mean")
    value = next(c for c in report.quantiles if c.name == name).change.value
    low, high = _NONE
    if found := report.attribution:
        views = [view for view in (found.caused, found.shows, found.composition) if not view.refused]
        low, high = change_bounds(views)
        value = views[0].change if views else value  # of the same requests as its interval
    outcome, why = Outcome.WITHIN, ""
    if low is None or high is None:
        outcome, why = Outcome.UNDECIDED, "too few requests for an interval"
    elif value > budget.limit and low > 0:
        outcome = Outcome.EXCEEDED
    elif value > budget.limit:
        outcome, why = Outcome.UNDECIDED, "not told from chance; compare more requests"
    elif high > budget.limit:
        why = f"it may be up to {ms(high)}: compare more requests to be surer"
    return Line(TOTAL, budget.limit, value, low, high, outcome, name, why)


def _share(view: View, name: str) -> Share | None:
    return next((share for share in view.shares if share.name == name), None)


def _unknown(name: str, found: Attribution) -> str:
    names = dict.fromkeys([TOTAL, *CAUSES, *(share.name for share in found.shows.shares)])
    close = difflib.get_close_matches(name.casefold(), names, n=1)
    hint = f"did you mean {close[0]}?" if close else f"budgets are for {', '.join(names)}"
    return f"nothing is called {name!r} here; {hint}"
