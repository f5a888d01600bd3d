"""Reports as tables. Cells are drawn on a canvas: what stands in them is text whatever it looks like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st

from analysis.misses.report_model import CeilingLine, EventsLine, MissReport
from analysis.misses.words import hit_share
from cachemodel.printable import printable
from dashboard import words
from dashboard.colours import PARTS, part_of

MOST_ROWS = 1_000


def lines(report: MissReport) -> None:
    """All requests together, then a row a group."""
    shown = [report.total, *report.lines][:MOST_ROWS]
    seen = [name for name in PARTS if any(line.parts.get(name) for line in shown)]
    seen += sorted({name for line in shown for name in line.parts} - PARTS.keys())
    rows: dict[str, list[Any]] = {
        report.by: ["all", *(printable(line.key, lines=False) or "(none)" for line in report.lines)][
            :MOST_ROWS
        ],
        "requests": [line.requests for line in shown],
        "prompt tokens": [line.prompt for line in shown],
        "served share": [
            words.hits(line) / line.prompt if line.prompt and not hit_share(line) else None for line in shown
        ],
        **{part_of(name).label: [line.parts.get(name, 0) for line in shown] for name in seen},
        "computed again": [line.recomputed for line in shown],
    }
    if all(count is None for count in rows["computed again"]):
        del rows["computed again"]
    numbers = {name: st.column_config.NumberColumn(format="localized") for name in list(rows)[1:]}
    numbers["served share"] = st.column_config.NumberColumn(format="percent")
    key = {report.by: st.column_config.TextColumn(width=190)}
    st.dataframe(rows, hide_index=True, column_config={**key, **numbers}, key="table.lines")


def ceilings(found: Sequence[CeilingLine]) -> None:
    """How each server's hits are aligned, and what that and the routing cost."""
    if not found:
        return
    rows: dict[str, list[Any]] = {
        "server": [printable(line.server, lines=False) for line in found],
        "unit, tokens": [line.unit for line in found],
        "units dropped": [line.dropped_units for line in found],
        "fitted from": [line.fitted_from for line in found],
        "prompt tokens": [line.prompt for line in found],
        "achieved": [line.achieved for line in found],
        "reachable": [line.reachable for line in found],
        "attainable": [line.attainable for line in found],
        "lost to routing": [line.routing_loss for line in found],
    }
    numbers = {name: st.column_config.NumberColumn(format="localized") for name in list(rows)[1:]}
    key = {"server": st.column_config.TextColumn(width=190)}
    st.dataframe(rows, hide_index=True, column_config={**key, **numbers}, key="table.ceilings")
    st.caption(
        'Hits come in whole units; "fitted from" counts the measured pairs that say so, 0 where the unit is the block '
        "size. Reachable: with what all replicas held at that moment. Attainable: with every prompt ever sent held."
    )


def events(found: Sequence[EventsLine]) -> None:
    """A row a window and server."""
    shown = found[:MOST_ROWS]
    seen = [name for name in PARTS if any(line.parts.get(name) for line in shown)]
    rows = {
        "server": [printable(line.server, lines=False) for line in shown],
        "from, UTC": [line.begin[:19].replace("T", " ") for line in shown],
        "to, UTC": [line.end[:19].replace("T", " ") for line in shown],
        "tokens stored": [line.stored for line in shown],
        **{part_of(name).label: [line.parts.get(name, 0) for line in shown] for name in seen},
    }
    numbers = {name: st.column_config.NumberColumn(format="localized") for name in list(rows)[3:]}
    st.dataframe(rows, hide_index=True, column_config=numbers, key="table.events")


def legend() -> None:
    """What the parts mean, and what must be known to tell a cause."""
    with st.expander("What the colours mean"):
        st.table(
            {
                "part": [part.label for part in PARTS.values()],
                "means": [part.meaning for part in PARTS.values()],
                "evidence it needs": [part.evidence for part in PARTS.values()],
            },
            hide_index=True,
        )
