"""A miss report's tables as rows of text, with the parts that a bar beside each row shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from analysis.misses.parts import CAUSES, HITS, PARTS, UNKNOWN, total
from analysis.misses.report_model import CeilingLine, EventsLine, MissLine, MissReport
from analysis.misses.words import WHY, hit_share, known_computed, missed_parts, why_unknown
from analysis.report.tables import Column, TextTable

_LARGEST = 3  # causes named in a line
NAMED_BY_HASH = ("template", "isolation")  # groups whose names mean nothing to a person
MOST_LINES = 20  # of groups; JSON has more


@dataclass(frozen=True, slots=True)
class BarTable:
    """bars: of each row tokens by part and the whole that they are a part of."""

    table: TextTable
    bars: list[tuple[Mapping[str, int], int]]


def tables(report: MissReport) -> Iterator[BarTable]:
    """In the order a reader needs them."""
    if report.total.prompt:
        yield _causes(report.total)
    if len(report.lines) > 1:
        more = f", the first {MOST_LINES} of {len(report.lines)}" if len(report.lines) > MOST_LINES else ""
        examples = report.by in NAMED_BY_HASH
        yield _lines(f"By {report.by}{more}", report.by, report.lines[:MOST_LINES], examples)
    if len(report.trend) > 1:
        yield _lines("Over time", "from, UTC", report.trend)
    if report.ceilings:
        yield _ceilings(report.ceilings)
    if report.events_alone:
        yield _events(report)


def _causes(line: MissLine) -> BarTable:
    told = missed_parts(line)
    missed = known_computed(line)
    rows: list[list[str]] = []
    bars: list[tuple[Mapping[str, int], int]] = []
    for name in (*HITS, *CAUSES, UNKNOWN):
        tokens = line.parts.get(name, 0)
        if not tokens:
            continue
        of_missed = _share(told[name], missed) if told.get(name) else ""
        why = "hits" if name in HITS else why_unknown(line) if name == UNKNOWN else WHY[name]
        rows.append([name, f"{tokens:,}", _share(tokens, line.prompt), of_missed, why])
        bars.append(({name: tokens}, line.prompt))
    if line.recomputed:
        rows.append(
            ["recomputed", f"{line.recomputed:,}", "", "", "again after a preemption, beside the prompt"]
        )
        bars.append(({}, line.prompt))
    columns = [
        Column("", number=False),
        Column("tokens"),
        Column("% of prompt"),
        Column("% of computed"),
        Column("because", number=False),
    ]
    return BarTable(TextTable("Prompt tokens by cause", columns, rows, [False] * len(rows)), bars)


def _lines(title: str, heading: str, lines: Sequence[MissLine], examples: bool = False) -> BarTable:
    """examples: whether each row names a request of it."""
    rows = [
        [
            line.key or shown_time(line.begin),
            f"{line.requests:,}",
            f"{line.prompt:,}",
            hit_share(line) or _share(total(line.parts, HITS), line.prompt),
            f"{known_computed(line):,}" if known_computed(line) or not line.untold else "",
            "; ".join(filter(None, [largest(missed_parts(line)), _untold(line)])),
            *([line.example] if examples else []),
        ]
        for line in lines
    ]
    columns = [
        Column(heading, number=False),
        Column("requests", detail=True),
        Column("prompt"),
        Column("hits"),
        Column("computed"),
        Column("of the computed", number=False),
        *([Column("such as", number=False)] if examples else []),
    ]
    table = TextTable(title, columns, rows, [False] * len(rows))
    return BarTable(table, [(line.parts, line.prompt) for line in lines])


def _untold(line: MissLine) -> str:
    return f"nothing tells of {line.untold:,}" if line.untold else ""


def _ceilings(lines: Sequence[CeilingLine]) -> BarTable:
    rows = [
        [
            line.server,
            "unknown"
            if line.unit is None
            else f"{line.unit:,}" + (f", {line.dropped_units} dropped" if line.dropped_units else ""),
            f"{line.fitted_from:,} requests that tell" if line.fitted_from else "its blocks",
            _share(line.achieved, line.prompt),
            "no KV events" if line.reachable is None else _share(line.reachable, line.prompt),
            "" if line.routing_loss is None else f"{line.routing_loss:,}",
            _share(line.attainable, line.prompt),
        ]
        for line in lines
    ]
    columns = [
        Column("server", number=False),
        Column("unit, tokens"),
        Column("known from", number=False, detail=True),
        Column("achieved"),
        Column("reachable"),
        Column("lost to routing", detail=True),
        Column("attainable"),
    ]
    title = (
        "What could have been served of the prompts as they are written: achieved, with what all replicas held, with"
        " all that was sent before"
    )
    return BarTable(TextTable(title, columns, rows, [False] * len(rows)), [])


def _events(report: MissReport) -> BarTable:
    lines = report.events_alone
    several = len({line.server for line in lines}) > 1
    rows = [_events_row(line, several) for line in lines]
    columns = [
        *([Column("server", number=False)] if several else []),
        Column("from, UTC", number=False),
        Column("stored"),
        Column("of the stored", number=False),
    ]
    title = "From KV events alone: tokens of the blocks stored on devices (hits leave no trace in them)"
    return BarTable(
        TextTable(title, columns, rows, [False] * len(rows)), [(x.parts, x.stored) for x in lines]
    )


def _events_row(line: EventsLine, several: bool) -> list[str]:
    cells = [shown_time(line.begin), f"{line.stored:,}", largest(line.parts, EVENT_NAMES)]
    return [line.server, *cells] if several else cells


EVENT_NAMES = {
    "device": "told again while held",
    "host": "loaded from host memory",
    "remote": "loaded from remote",
}
"""What hits are called among stored blocks."""


def largest(parts: Mapping[str, int], also: Mapping[str, str] | None = None) -> str:
    """The largest causes, each with its share of all of them. also: names of hits that count here too."""
    names = [name for name in PARTS if parts.get(name) and (name not in HITS or name in (also or ()))]
    whole = sum(parts[name] for name in names)
    order = sorted(names, key=lambda name: -parts[name])[:_LARGEST]
    return ", ".join(f"{(also or {}).get(name, name)} {_share(parts[name], whole)}" for name in order)


def shown_time(text: str) -> str:
    """An ISO time as people write it."""
    return text.replace("T", " ").removesuffix("Z")


def _share(part: int, whole: int) -> str:
    if not whole:
        return ""
    share = 100 * part / whole
    return "<1%" if 0 < share < 1 else f"{share:.0f}%"
