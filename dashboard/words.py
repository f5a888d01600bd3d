"""Numbers and sentences as the pages write them."""

from __future__ import annotations

from datetime import UTC, datetime

from analysis.misses.report_model import MissLine, MissReport
from analysis.misses.words import hit_share
from dashboard.colours import part_of
from dashboard.text import plain


def tokens(count: int | None) -> str:
    """A count that fits a tile: 48.4 M; `unknown` where nothing tells."""
    if count is None:
        return "unknown"
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(count) >= size:
            return f"{count / (1e3 if unit == 'k' else size):,.1f} {unit}"
    return f"{count:,}"


def share(part: int | None, whole: int) -> str:
    """`61.2 %`; `unknown` where nothing tells or there is no whole."""
    return "unknown" if part is None or not whole else f"{part / whole:.1%}".replace("%", " %")


def hits(line: MissLine) -> int:
    """Tokens that were served, as far as anything tells."""
    return sum(count for name, count in line.parts.items() if part_of(name).hit)


def served(line: MissLine) -> str:
    """The share of hits: `61.2 %`, `>=40%` or `unknown` where nothing tells enough."""
    return hit_share(line) or share(hits(line), line.prompt)


def computed(line: MissLine) -> int:
    """Tokens that were computed, each once; where nothing tells whether some were served, these too."""
    return sum(count for name, count in line.parts.items() if not part_of(name).hit)


def ceiling_sums(report: MissReport) -> tuple[int | None, int | None, int]:
    """Attainable and reachable tokens of the servers that have a ceiling, and their prompt tokens; None: not told."""
    lines = report.ceilings
    if not lines:
        return None, None, 0
    reachable = [line.reachable for line in lines]
    known = None if any(r is None for r in reachable) else sum(r or 0 for r in reachable)
    return sum(line.attainable for line in lines), known, sum(line.prompt for line in lines)


def moment(iso: str) -> str:
    """An ISO time, UTC, as people read it; what is none stays as it is."""
    try:
        return f"{datetime.fromisoformat(iso).astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    except ValueError:
        return plain(iso)
