"""From the store to the answer to "why did it miss?": which requests, in words, and a client in; a MissReport out."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
from clickhouse_connect.driver.client import Client

from analysis.misses import words
from analysis.misses.across import hits_across
from analysis.misses.alignments import Laws, climb_by_laws, laws, measured
from analysis.misses.assemble import subset
from analysis.misses.bins import Bins, bins, iso
from analysis.misses.ceilings import ceilings, too_long_units
from analysis.misses.choice import group_of, selected
from analysis.misses.columns import Texts
from analysis.misses.events_alone import EventsAlone, Window, events_alone, window_of
from analysis.misses.model import NOT_TOLD, Flags, Hashes, Ints, Ladder
from analysis.misses.needs import unknown_needs
from analysis.misses.parts import HITS, named, rows_of, split
from analysis.misses.reader import Reading, read
from analysis.misses.report_model import CeilingLine, MissLine, MissReport
from analysis.report.reader import label_names
from analysis.selection import Selection
from cachemodel.errors import UserError

MOST_LINES = 40
OTHERS, NONE = "(others)", "(none)"


def build(
    client: Client, what: str | Selection = "", *, by: str = "server", now: datetime | None = None
) -> MissReport:
    """Take the requests of a selection through the ladder.

    what: as analysis.selection says; empty for the last hour, or the last in which there were any. by: server, model,
    template, isolation, a text column or a label. now: what `-1h` counts from. Where KV events are all there is of a
    time, only the part of the report that rests on them alone is filled. Raises UserError, in words for a person, where
    nothing matches.
    """
    now, labels = now or datetime.now(UTC), label_names(client)
    selection = what if isinstance(what, Selection) else selected(client, what, now, labels)
    group = group_of(by, labels)
    try:
        reading = read(client, selection, group)
    except UserError:
        window = window_of(client, selection)
        if window is None:
            raise
        return _of_events(client, selection, by, window)
    return _of_requests(client, reading, by)


def _of_requests(client: Client, reading: Reading, by: str) -> MissReport:
    ladder, known_laws = climb_by_laws(
        reading.chains,
        reading.events,
        reading.blocks_sent,
        reading.pieces_sent,
        laws(reading.chains, measured(client)),
    )
    mine = reading.asked.asked
    parts = split(rows_of(ladder, mine), reading.asked.tiers[mine])
    cut = bins(reading.begin, reading.end)
    servers = tuple(
        sorted({reading.chains.servers[at] for at in np.unique(reading.chains.server[mine]).tolist()})
    )
    window = Window(servers, reading.begin, reading.end)
    alone = events_alone(client, window, cut)
    report = MissReport(
        name=reading.name,
        by=by,
        begin=iso(reading.begin),
        end=iso(reading.end),
        sampled=reading.sampled,
        derived=int(ladder.derived[mine].sum()),
        history_begin="" if reading.history_begin == NOT_TOLD else iso(reading.history_begin),
        total=_total(reading, parts),
        lines=_lines(_groups(reading, by), parts, reading),
        trend=_trend(cut, parts, reading),
        ceilings=_ceilings(reading, ladder, known_laws),
        events_alone=alone.lines,
        unknown_needs=unknown_needs(client, reading, ladder),
        events_since=iso(alone.since) if alone.lines else "",
    )
    return _worded(report, reading, ladder, parts, alone)


def _worded(
    report: MissReport, reading: Reading, ladder: Ladder, parts: Ints, alone: EventsAlone
) -> MissReport:
    mine = reading.asked.asked
    chains, chosen = subset(reading.chains, mine), rows_of(ladder, mine)
    return replace(
        report,
        answer=words.answer(report, words.where(chosen, parts)),
        warnings=[
            *words.warnings(report, reading),
            *too_long_units(chains, chosen),
            *hits_across(chains, reading.blocks_sent, chosen),
            *words.of_events(alone),
        ],
        next_steps=words.next_steps(report, _worst(reading, parts)),
    )


def _worst(reading: Reading, parts: Ints) -> str:
    """The request with most tokens of the largest cause."""
    if not len(parts):
        return ""
    of_cause = parts[:, len(HITS) :]
    row = int(of_cause[:, int(of_cause.sum(axis=0).argmax())].argmax())
    return str(reading.asked.request_id[reading.asked.asked][row])


def _of_events(client: Client, selection: Selection, by: str, window: Window) -> MissReport:
    """The report of a time of which no request is known."""
    alone = events_alone(client, window, bins(window.begin, window.end))
    report = MissReport(
        name=selection.name,
        by=by,
        begin=iso(window.begin),
        end=iso(window.end),
        sampled=1,
        derived=0,
        history_begin="",
        total=MissLine("", 0, 0, 0, {}),
        lines=[],
        trend=[],
        ceilings=[],
        events_alone=alone.lines,
        events_since=iso(alone.since),
    )
    return replace(
        report,
        answer=words.answer_of_events(report),
        warnings=words.of_events(alone),
        next_steps=words.next_steps(report),
    )


def _ceilings(reading: Reading, ladder: Ladder, known_laws: Laws) -> list[CeilingLine]:
    mine = reading.asked.asked
    chains, chosen = subset(reading.chains, mine), rows_of(ladder, mine)
    return ceilings(chains, reading.events, reading.blocks_sent, chosen, known_laws.fits)


def _groups(reading: Reading, by: str) -> Texts:
    """What each of the requests is grouped by."""
    asked, mine = reading.asked, reading.asked.asked
    if by == "template":
        return _hexed(asked.template[mine])
    if by == "isolation":
        return _hexed(reading.chains.isolation[mine])
    return asked.group[mine]


def _hexed(hashes: Hashes) -> Texts:
    distinct, inverse = np.unique(hashes, return_inverse=True)
    names = np.array([f"{value:016x}"[:8] if value else "" for value in distinct.tolist()], dtype=np.object_)
    return names[inverse.reshape(-1)]


def _total(reading: Reading, parts: Ints) -> MissLine:
    mine = reading.asked.asked
    every = np.ones(len(parts), np.bool_)
    requests = int(mine.sum()) + reading.unsized
    return _line("", every, parts, reading.chains.recomputed[mine], requests=requests)


def _lines(groups: Texts, parts: Ints, reading: Reading) -> list[MissLine]:
    """By group, those with the most computed tokens first, the smallest together."""
    recomputed = reading.chains.recomputed[reading.asked.asked]
    names, inverse = np.unique(groups.astype(str), return_inverse=True)
    computed = np.bincount(inverse, parts[:, len(HITS) :].sum(axis=1), minlength=len(names))
    order = np.argsort(-computed, kind="stable")
    lines = [
        _line(str(names[at]) or NONE, inverse == at, parts, recomputed) for at in order[:MOST_LINES].tolist()
    ]
    if len(order) > MOST_LINES:
        lines.append(_line(OTHERS, np.isin(inverse, order[MOST_LINES:]), parts, recomputed))
    return lines


def _trend(cut: Bins, parts: Ints, reading: Reading) -> list[MissLine]:
    mine = reading.asked.asked
    number = cut.of(reading.chains.arrived[mine])
    recomputed = reading.chains.recomputed[mine]
    return [
        _line("", number == at, parts, recomputed, begin=cut.begin(at)) for at in np.unique(number).tolist()
    ]


def _line(
    key: str, rows: Flags, parts: Ints, recomputed: Ints, *, requests: int | None = None, begin: str = ""
) -> MissLine:
    counts = parts[rows].sum(axis=0)
    told = recomputed[rows]
    told = told[told >= 0]
    placed = int(rows.sum())
    return MissLine(
        key=key,
        requests=placed if requests is None else requests,
        placed=placed,
        prompt=int(counts.sum()),
        parts=named(counts),
        recomputed=int(told.sum()) if len(told) else None,
        begin=begin,
    )
