"""From the store to the answer to "why did it miss?": which requests, in words, and a client in; a MissReport out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np
from clickhouse_connect.driver.client import Client

from analysis.misses import wary, words
from analysis.misses.across import hits_across
from analysis.misses.alignments import Laws, climb_by_laws, laws, measured
from analysis.misses.assemble import subset
from analysis.misses.bins import Bins, bins, iso
from analysis.misses.ceilings import ceilings, too_long_units
from analysis.misses.choice import group_of, selected
from analysis.misses.columns import Texts
from analysis.misses.counters import counted_hits
from analysis.misses.events_alone import EventsAlone, Window, events_alone, window_of
from analysis.misses.model import NOT_TOLD, Flags, Hashes, Ints, Ladder
from analysis.misses.needs import unknown_needs
from analysis.misses.next_steps import next_steps
from analysis.misses.parts import HITS, PARTS, UNKNOWN, named, rows_of, split
from analysis.misses.reader import Reading, read
from analysis.misses.report_model import CeilingLine, MissLine, MissReport
from analysis.misses.silence import beside_requests
from analysis.misses.typical import typical
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
    asked = selection.asked if isinstance(what, Selection) else what.strip()
    return _of_requests(client, reading, by, selection, asked)


def _of_requests(client: Client, reading: Reading, by: str, selection: Selection, asked: str) -> MissReport:
    """asked: the SET as it was asked for, empty for none."""
    ladder, known_laws = climb_by_laws(reading, laws(reading.chains, measured(client)))
    mine = reading.asked.asked
    parts = split(rows_of(ladder, mine), reading.asked.tiers[mine])
    untold = np.where(ladder.derived[mine], parts[:, PARTS.index(UNKNOWN)], 0)
    rows = _Rows(parts, reading.chains.recomputed[mine], untold)
    cut, groups = bins(reading.begin, reading.end), _groups(reading, by)
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
        total=rows.line(requests=int(mine.sum()) + reading.unsized),
        lines=_lines(groups, rows, reading.asked.request_id[mine]),
        trend=_trend(cut, rows, reading),
        ceilings=_ceilings(reading, ladder, known_laws),
        events_alone=alone.lines,
        unknown_needs=unknown_needs(client, reading, ladder),
        events_since=iso(alone.since) if alone.lines else "",
        selected=reading.count,
        histories=_histories(reading),
    )
    beside = beside_requests(client, window, cut, alone.lines)
    report = _worded(report, reading, ladder, alone, beside)
    counters = (
        counted_hits(client, servers, reading.begin, reading.end) if words.hit_share(report.total) else None
    )
    chosen = rows_of(ladder, mine)
    request, group = typical(reading.asked.request_id[mine], groups, parts)
    worst = _set_of(by, group) if len(report.lines) > 1 else ""
    narrowed = ",".join(filter(None, [asked or selection.asked, worst])) if worst else ""
    prompts = bool(reading.chains.known[mine].any())
    return replace(
        report,
        answer=words.answer(report, words.where(chosen, parts), counters, prompts),
        next_steps=next_steps(report, request, narrowed, asked, prompts),
    )


def _worded(
    report: MissReport, reading: Reading, ladder: Ladder, alone: EventsAlone, beside: list[str]
) -> MissReport:
    mine = reading.asked.asked
    chains, chosen = subset(reading.chains, mine), rows_of(ladder, mine)
    return replace(
        report,
        warnings=[
            *beside,
            *wary.warnings(report, reading),
            *too_long_units(chains, chosen),
            *hits_across(chains, reading.blocks_sent, chosen),
            *wary.of_events(alone),
        ],
    )


def _set_of(by: str, group: str) -> str:
    """How a SET asks for a group; empty where none can."""
    plain = group and not set(group) & set(",*") and group == group.strip()
    return f"{by}={group}" if plain else ""


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
        warnings=wary.of_events(alone),
        next_steps=next_steps(report),
    )


def _ceilings(reading: Reading, ladder: Ladder, known_laws: Laws) -> list[CeilingLine]:
    mine = reading.asked.asked
    chains, chosen = subset(reading.chains, mine), rows_of(ladder, mine)
    return ceilings(chains, reading.events, reading.blocks_sent, chosen, known_laws.fits)


def _histories(reading: Reading) -> dict[str, str]:
    """Since when prompts are known, of each fleet by the models that were asked for; by its servers where these do not
    tell it from the others."""
    mine = reading.asked.asked
    fleet, found = reading.fleets.fleet[reading.chains.server[mine]], {}
    models = {
        at: sorted(set(reading.asked.model[mine][fleet == at].tolist()) - {""}) for at in reading.histories
    }
    for at, begun in sorted(reading.histories.items()):
        alone = models[at] and not any(
            set(models[at]) & set(other) for of, other in models.items() if of != at
        )
        servers = np.array(reading.fleets.servers)[reading.fleets.fleet == at].tolist()
        found[", ".join(models[at] if alone else servers)] = iso(begun)
    return found


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


@dataclass(frozen=True)
class _Rows:
    """Of each request: tokens by part, those computed again, and those that may have been served."""

    parts: Ints
    recomputed: Ints
    untold: Ints

    def line(
        self,
        rows: Flags | slice = slice(None),
        *,
        key: str = "",
        begin: str = "",
        example: str = "",
        requests: int | None = None,
    ) -> MissLine:
        """Some of them together."""
        counts = self.parts[rows].sum(axis=0)
        told = self.recomputed[rows]
        placed, told = len(told), told[told >= 0]
        return MissLine(
            key=key,
            requests=placed if requests is None else requests,
            placed=placed,
            prompt=int(counts.sum()),
            parts=named(counts),
            recomputed=int(told.sum()) if len(told) else None,
            begin=begin,
            untold=int(self.untold[rows].sum()),
            example=example,
        )


def _lines(groups: Texts, rows: _Rows, request_ids: Texts) -> list[MissLine]:
    """By group, those with the most computed tokens first, the smallest together."""
    names, inverse = np.unique(groups.astype(str), return_inverse=True)
    tokens = rows.parts[:, len(HITS) :].sum(axis=1)
    computed = np.bincount(inverse, tokens, minlength=len(names))
    order = np.argsort(-computed, kind="stable")
    lines = []
    for at in order[:MOST_LINES].tolist():
        those = np.flatnonzero(inverse == at)
        middle = those[np.argsort(tokens[those], kind="stable")][len(those) // 2]
        lines.append(rows.line(inverse == at, key=str(names[at]) or NONE, example=str(request_ids[middle])))
    if len(order) > MOST_LINES:
        lines.append(rows.line(np.isin(inverse, order[MOST_LINES:]), key=OTHERS))
    return lines


def _trend(cut: Bins, rows: _Rows, reading: Reading) -> list[MissLine]:
    number = cut.of(reading.chains.arrived[reading.asked.asked])
    return [rows.line(number == at, begin=cut.begin(at)) for at in np.unique(number).tolist()]
