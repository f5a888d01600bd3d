"""What Streamlit runs: the frame around the pages."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from dashboard.views import misses

ICON = Path(__file__).with_name("icon.svg")
st.set_page_config(page_title="hitmap", page_icon=str(ICON), layout="wide")

# A page has an address of its own from the start, so that links stay right when another page becomes the first.
PAGES = [
    st.Page(misses.page, title="Misses", icon=":material/layers:", url_path="misses"),
]


def _home() -> None:
    st.switch_page(PAGES[0], query_params=list(_pairs()))


def _pairs() -> list[tuple[str, str]]:
    return [(name, value) for name in st.query_params for value in st.query_params.get_all(name)]


st.navigation([st.Page(_home, title="hitmap", default=True, visibility="hidden"), *PAGES]).run()
