"""What a heatmap says in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.heatmap.model import Cell, Heatmap, Mark
from analysis.heatmap.reader import Costs
from analysis.heatmap.scope import Scope


def answer(found: Heatmap) -> str:
    """One sentence: how much was sent before, and where it pays to rewrite."""
    if not found.blocks:
        return f"None of the {found.requests:,} prompts fills a block of {found.block_sizes[0]} tokens."
    cells = [cell for row in found.rows for cell in row.cells if cell.zone]
    hot = sum(cell.zone == "hot" for cell in cells)
    head = (
        f"{percent(found.reuse)} of the blocks of {found.requests:,} prompts had been part of an earlier one; {hot} of"
        f" {len(cells)} cells are hot."
    )
    if not found.marks:
        return f"{head} No position that most prompts of a row reach calls for rewriting."
    mark = found.marks[0]
    place = f"{subject(found, mark.key)} at tokens {spread(mark.start, mark.end)}"
    return f"{head} Rewriting pays most in {place}: {why(mark)}."


def why(mark: Mark) -> str:
    """What a mark rests on."""
    parts = [f"{percent(mark.frequency)} of its prompts come there"]
    if mark.stability is not None:
        parts.append(f"stability of responses {mark.stability:.2f}")
    if mark.reuse is not None:
        parts.append(f"{percent(mark.reuse)} of them had that block before")
    if mark.volatile and mark.bits is not None:
        parts.append(f"content varies most at tokens {spread(*mark.volatile)} ({mark.bits:.1f} bits)")
    if mark.computed is not None:
        ms = "" if mark.computed_ms is None else f", about {mark.computed_ms / 1000:,.1f} s of prefill"
        parts.append(f"{mark.computed:,} tokens computed there{ms}")
    return ", ".join(parts)


def subject(found: Heatmap, key: str) -> str:
    """A row in a sentence."""
    return (
        f"template {key}" if found.by == "template" else f"the time from {key[:19].replace('T', ' ')} UTC on"
    )


def spread(start: int, end: int) -> str:
    """Positions from the first to the one behind the last."""
    return f"{start:,}-{end:,}"


def percent(share: float | None) -> str:
    """A share for a sentence."""
    return "an unknown share" if share is None else f"{100 * share:.0f} %"


def shown(cell: Cell, layer: str) -> str:
    """What a layer says of a cell, with its unit."""
    if layer == "reuse":
        return "not known" if cell.reuse is None else percent(cell.reuse)
    if layer == "volatility":
        return "not known" if cell.volatility is None else f"{cell.volatility:.2f} bits"
    if layer == "stability":
        return "no responses kept" if cell.stability is None else f"{cell.stability:.2f}"
    if cell.computed is None:
        return "not told by the server"
    ms = "" if cell.computed_ms is None else f", {cell.computed_ms:,.0f} ms"
    return f"{cell.computed:,} tokens computed{ms}"


def warnings(asked: Scope, cost: Costs, responses: bool) -> list[str]:
    """What a reader must know to read it right."""
    found = []
    told, wanted = int(cost.requests.sum()) * cost.sampled, asked.requests
    if told < 0.98 * wanted:
        found.append(
            f"cost is that of {min(told, wanted):,} of {wanted:,} requests: of the others it is not told how much"
            " was served from a cache"
        )
    lacking = sorted({str(server) for server in cost.server} - cost.ms.keys())
    if lacking:
        found.append(
            f"milliseconds are not known of {', '.join(lacking[:3])}{' and others' if len(lacking) > 3 else ''}:"
            " hitmap canary URL measures what a prompt token takes"
        )
    if not responses:
        found.append(
            "no responses are kept (capture full keeps those on spans), so that rewriting is marked where less than"
            " 60 % of the blocks had been sent before"
        )
    if asked.sampled > 1:
        found.append(f"one request in {asked.sampled:,} was read; counts are estimates")
    return found


def next_steps(marks: Sequence[Mark]) -> list[str]:
    """What to do with the marks."""
    return ["hitmap advise LOG, with the log of these requests, says what to write instead"] if marks else []
