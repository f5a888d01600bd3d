"""The answer in a sentence or two: what rose, because of what, where it shows, and how often that is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from analysis.attribution.model import Onset, Placebo, Share, Verdict, View
from analysis.numbers import digits, ms, signed

MOST_NAMED = 4
_FEWEST_PAIRS = 20  # windows of the past, for a rate to be worth a place in the answer
_MOST_UNEXPLAINED = 0.5  # of the change, for a view to be quoted
_MOST_OF_IT = 0.7  # of the change: where less is named, a reader has to know
_WHOLE_MS = 20  # from which on tenths of a millisecond are not worth a reader's time
_BECAUSE: Mapping[str, tuple[str, str]] = {  # what a name did that made it slower, or faster
    "workload": ("the load changed", "the load changed"),
    "unaligned": ("more was lost to whole units", "less was lost to whole units"),
    "not_loaded": ("more was held and not loaded", "less was held and not loaded"),
    "elsewhere": ("more was held by other replicas only", "less was held by other replicas only"),
    "isolated": ("more was held under other salts", "less was held under other salts"),
    "evicted": ("more had been evicted", "less had been evicted"),
    "changed": ("prompts changed", "fewer prompts changed"),
    "cold": ("more was sent for the first time", "less was sent for the first time"),
    "unknown": ("more was computed, nothing tells why", "less was computed, nothing tells why"),
    "hits": ("less was served from a cache", "more was served from a cache"),
    "prefill speed": ("prefill got slower", "prefill got faster"),
    "decode speed": ("decode steps got slower", "decode steps got faster"),
    "tier speed": ("loads from slower tiers took longer", "loads from slower tiers got faster"),
    "capacity": ("there was less room", "there was more room"),
    "other": ("time outside the scheduler grew", "time outside the scheduler shrank"),
    "other arm": ("the other arm costs it more", "the other arm costs it less"),
}
CAUSES = tuple(_BECAUSE)
"""What a change can be put down to, by name."""


def because(share: Share) -> str:
    """What a cause did, to follow "because"."""
    slower, faster = _BECAUSE.get(share.name, (f"{share.name} changed",) * 2)
    return slower if share.value >= 0 else faster


def headline(
    what: str,
    ends: tuple[tuple[float, int], tuple[float, int]],
    caused: View,
    shows: View,
    placebo: Placebo,
    onsets: Sequence[Onset] = (),
) -> str:
    """The answer. what: "P99 time to first token"; ends: of A and of B the value in ms and n."""
    (before, n_before), (after, n_after) = ends
    change = after - before
    low, high = change_bounds((caused, shows))
    path = f"from {ms(before)} (n = {n_before:,}) to {ms(after)} (n = {n_after:,})"
    if low is None or high is None:
        told = f"{what} went {path}: {signed(change)}, of too few requests for an interval"
    elif low <= 0 <= high:
        interval = f"95% interval {signed(low)} to {signed(high)}"
        told = f"No clear change: {what} went {path}; {interval}"
    else:
        told = f"{what} {'rose' if change > 0 else 'fell'} by {ms(abs(change))}, {path}"
    clear = low is not None and high is not None and not low <= 0 <= high
    blame, shown = _blame(caused), _shown(shows) if clear else ""
    if not caused.refused and unexplained(caused):
        blame += f"; {signed(caused.residual)} of it is not explained"
    text = f"{told}{blame}{f'; it shows up as {shown}' if shown else ''}."
    return text[0].upper() + text[1:] + _since(caused, shows, onsets) + false_blame(placebo)


def change_bounds(views: Sequence[View]) -> tuple[float | None, float | None]:
    """The 95% interval of the whole change, from the first view that has one: they share their resamples."""
    for view in views:
        if view.change_low is not None:
            return view.change_low, view.change_high
    return None, None


def false_blame(placebo: Placebo) -> str:
    """How often somebody is named where nothing happened; empty where too few windows tell."""
    if placebo.rate is None or placebo.pairs < _FEWEST_PAIRS:
        return ""
    of = f"{placebo.blamed} of {placebo.pairs} pairs of windows without a change"
    return f" False blame on your fleet: {100 * placebo.rate:.2g} % ({of})."


def with_interval(share: Share) -> str:
    """`240 ± 25`: the interval as half its width."""
    if share.low is None or share.high is None:
        return digits(share.value)
    half = (share.high - share.low) / 2
    places = 0 if max(abs(share.value), half) >= _WHOLE_MS else 1
    return f"{share.value:z,.{places}f} ± {half:,.{places}f}"


def named(view: View) -> list[Share]:
    """The shares that are past the gate, the largest first."""
    found = [share for share in view.shares if share.verdict is Verdict.NAMED]
    return sorted(found, key=lambda share: -abs(share.value))


def _blame(caused: View) -> str:
    if caused.refused:
        return f". What caused it cannot be told ({caused.refused})"
    if found := named(caused):
        parts = [f"{with_interval(share)} because {because(share)}" for share in found[:MOST_NAMED]]
        return f": {', '.join(parts)} (ms, 95%)"
    likely = [share for share in caused.shares if share.value * caused.change > 0]
    most = max(likely, key=lambda share: abs(share.value), default=None)
    if most is None or (most.verdict is Verdict.NOISE and not _is_clear(caused)):
        return ". No cause is told from chance"
    largest = f"the largest is {most.name}, {with_interval(most)} ms"
    if most.verdict is Verdict.SLIGHT and caused.least is not None:
        return f". No cause is large enough to be named, {ms(caused.least)}; {largest}"
    return f". No cause is told from chance; {largest}"


def unexplained(view: View) -> bool:
    """Whether most of a change that is told from chance has no name."""
    return _is_clear(view) and _mostly_left(view)


def _mostly_left(view: View) -> bool:
    return abs(view.residual) > _MOST_UNEXPLAINED * abs(view.change)


def _is_clear(view: View) -> bool:
    """Whether the change itself is told from chance."""
    return (
        view.change_low is not None
        and view.change_high is not None
        and view.change_low * view.change_high > 0
    )


def _shown(shows: View) -> str:
    """Nothing where the view leaves most of the change unexplained; of how much it is where the rest is not told."""
    if _mostly_left(shows):
        return ""
    found = named(shows)[:MOST_NAMED]
    told = ", ".join(f"{share.name} {with_interval(share)}" for share in found)
    whole = abs(sum(share.value for share in found)) >= _MOST_OF_IT * abs(shows.change)
    return told if whole or not told else f"{told} of {ms(abs(shows.change))}, the rest not told from chance"


def _since(caused: View, shows: View, onsets: Sequence[Onset]) -> str:
    """When the largest of what is named began, where a deployment is near."""
    at = {onset.name: onset for onset in onsets}
    for share in (*named(caused), *named(shows)):
        onset = at.get(share.name)
        if onset and onset.deploy:
            when = f"{datetime.fromisoformat(onset.at):%H:%M:%S} UTC"
            return f" Onset of {share.name}: {when}, {near(onset)}."
    return ""


def near(onset: Onset) -> str:
    """`8 s after v42`, empty where no deployment is near."""
    if not onset.deploy or onset.deploy_s is None:
        return ""
    return f"{abs(onset.deploy_s):.0f} s {'after' if onset.deploy_s >= 0 else 'before'} {onset.deploy}"
