"""The address of a page, and who wrote it: the page itself, or somebody who opened a link or went back.

A browser sends the address that it has with each choice. Where two choices follow one another faster than the page is
drawn, that is with the second one still the address from before the first: it asks for nothing, and would undo both.
"""

from __future__ import annotations

import streamlit as st

Query = dict[str, list[str]]
_CHOSE = "address.chose"


def query() -> Query:
    """The part after `?`, as the browser has it."""
    return {name: st.query_params.get_all(name) for name in st.query_params}


def chose() -> None:
    """Somebody chose something on the page itself. In every callback of a page that has its state in the address."""
    st.session_state[_CHOSE] = True


def asks(known: str) -> Query | None:
    """What somebody else wrote: at first, by a link that was pasted, by back and forward; empty after a change of page.
    None where it is what this page wrote there. known: where in the session is kept what that was."""
    state, told = st.session_state, query()
    if state.pop(_CHOSE, False) or (told and told == state.get(known)):
        return None
    if told:
        state[known] = told
    return told


def write(known: str, told: Query) -> None:
    """Make the address say this. What it said last may still be on its way to the browser, which has an older one."""
    if told != query() or told != st.session_state.get(known, told):
        st.query_params.from_dict(told)
    st.session_state[known] = told
