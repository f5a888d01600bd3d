"""Everything that was observed of a request, in numbers."""

from __future__ import annotations

import streamlit as st

from analysis.observed import words
from analysis.observed.model import Trace
from cachemodel.layers import ObservationLayer
from cachemodel.printable import printable
from dashboard.text import plain

_ORDER = list(ObservationLayer)


def observed(trace: Trace) -> None:
    """A row a number; what was counted and was none is one line."""
    rows, none = words.told(trace)
    if not trace.observed:
        st.info("Nothing beside its spans was observed while it ran.")
        return
    if rows:
        st.dataframe(
            {
                "layer": [one.layer.value for one in rows],
                "what": [_cell(words.name(one.metric, one.attributes)) for one in rows],
                "meanwhile": [words.amount(one.value, one.unit) for one in rows],
                "its part": [words.part(one, trace) for one in rows],
                "share": [words.share(one) for one in rows],
                "of": [_cell(one.of) for one in rows],
                "counted by": [_cell(one.source) for one in rows],
            },
            hide_index=True,
            height="content",
            column_config={
                "layer": st.column_config.TextColumn(width=80),
                "what": st.column_config.TextColumn(width=225),
                "share": st.column_config.TextColumn(width=140),
                "meanwhile": st.column_config.TextColumn(alignment="right"),
                "its part": st.column_config.TextColumn(alignment="right"),
            },
            key="table.observed",
        )
    if none:
        st.caption("Counted, and none:  \n" + "  \n".join(plain(line) for line in none))


def as_rows(trace: Trace) -> list[dict[str, object]]:
    """The same for a file, in full precision."""
    return [
        {
            "layer": one.layer.value,
            "metric": one.metric,
            "attributes": " ".join(f"{key}={value}" for key, value in sorted(one.attributes.items())),
            "unit": one.unit,
            "value": one.value,
            "share": one.share,
            "its_part": one.estimate,
            "covered": one.covered,
            "low": one.low,
            "high": one.high,
            "of": one.of,
            "source": one.source,
            "points": one.points,
        }
        for one in sorted(trace.observed, key=lambda one: _ORDER.index(one.layer))
    ]


def _cell(text: str) -> str:
    return printable(text, lines=False)
