"""What stands under "Link and refresh" on a page."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import streamlit as st

from analysis.selection import parse_time
from dashboard import address, data
from dashboard.filter_bar import set_filters
from dashboard.filters import Filters


def link(place: Any, made: datetime, filters: Filters, command: str = "") -> None:
    """made: when what is shown was read. command: shows the same on a terminal, empty for none."""
    with place.popover("Link and refresh", width="stretch"):
        st.button("Read the store again", on_click=_again)
        st.button(
            "Fix these times in the link",
            help="A link with `-1h` shows the last hour of whoever opens it; this one will show what you see.",
            on_click=lambda: set_filters(
                begin=parse_time(filters.begin, made).isoformat(),
                end=parse_time(filters.end, made).isoformat(),
            ),
        )
        if command:
            st.caption("The same on a terminal:")
            st.code(command, language=None)


def _again() -> None:
    address.chose()
    data.forget()
