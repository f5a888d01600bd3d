"""What Streamlit runs: the frame around the pages."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import streamlit as st

from dashboard.filter_bar import NO_PAGE
from dashboard.views import attribution, heatmap, hosts, misses, request

ICON = Path(__file__).with_name("icon.svg")
st.set_page_config(page_title="hitmap", page_icon=str(ICON), layout="wide")


def _advisor() -> None:
    """Loaded when it is looked at: what replays prompts takes its time to load, and no other page needs it."""
    from dashboard.views.advisor import page

    page()


# A page has an address of its own from the start, so that links stay right when another page becomes the first.
PAGES = [
    st.Page(misses.page, title="Misses", icon=":material/layers:", url_path="misses"),
    st.Page(request.page, title="Request", icon=":material/view_timeline:", url_path="request"),
    st.Page(heatmap.page, title="Heatmap", icon=":material/grid_on:", url_path="heatmap"),
    st.Page(_advisor, title="Advisor", icon=":material/edit_note:", url_path="advisor"),
    st.Page(attribution.page, title="Attribution", icon=":material/waterfall_chart:", url_path="attribution"),
    st.Page(hosts.page, title="Hosts", icon=":material/memory:", url_path="hosts"),
]


def _home() -> None:
    """The first page; Streamlit also comes here for an address that is none."""
    path = urlsplit(st.context.url or "").path.strip("/")
    if path:
        st.session_state[NO_PAGE] = path
    # By name: of pairs, Streamlit keeps the last one of each name.
    query = {name: st.query_params.get_all(name) for name in st.query_params}
    st.switch_page(PAGES[0], query_params=query)


st.navigation([st.Page(_home, title="hitmap", default=True, visibility="hidden"), *PAGES]).run()
