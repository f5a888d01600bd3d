"""Why no cause was named on this machine, and what to try: the end of a demo that did not get there."""

from __future__ import annotations

from analysis.attribution.model import Verdict
from analysis.report.model import Report

SPEEDS = ("prefill speed", "decode speed")
BUSY = 0.7  # processes that want a processor, for each there is, beside a demo that wants one or two itself


def unnamed(report: Report, busy: float | None, seconds: float) -> list[str]:
    """Sentences; none where a cause is named, or without a twin what it shows as.

    busy: as in Watched. seconds: of load before the change, and as many after it.
    """
    found = report.attribution
    if found is None:
        return []
    caused = found.caused
    if any(share.verdict is Verdict.NAMED for share in (found.shows if caused.refused else caused).shares):
        return []
    why = caused.refused or "on this machine, what moved is not told from what moves by chance"
    lines = [f"No cause is named: {why}."]
    if speeds := [share.own for share in caused.shares if share.name in SPEEDS and share.own]:
        lines.append(
            f"How fast it was itself, before -> after: {'; '.join(speeds)}. Nothing of the demo changes that."
        )
    if busy is not None and busy > BUSY:
        lines.append(
            f"It was busy with something else when the demo began: {busy:.1f} processes wanted each processor."
        )
    longer = f"hitmap demo --seconds {20 * round(seconds / 10)}"
    lines.append(
        f"Try it again while nothing else runs here, or {longer}, which sends twice as many requests."
    )
    return lines
