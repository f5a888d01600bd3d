"""Filters and addresses: what is shown can be sent as a link, and a broken link says what is wrong with it."""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import parse_qs, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.selection import parse_set
from dashboard.filters import LONGEST, Filters, from_query, known

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
texts = st.text(min_size=1, max_size=40).filter(lambda text: text.strip())
times = st.sampled_from([("-1h", "now"), ("-7d", "-15m"), ("2026-11-29T10:00", "2026-11-29T11:00:00+00:00")])


@given(
    times,
    st.tuples(texts, texts, texts),
    st.lists(texts, unique=True, max_size=5),
    st.sampled_from(["share", "tokens"]),
)
def test_an_address_shows_somebody_else_the_same(
    span: tuple[str, str], names: tuple[str, str, str], where: list[str], unit: str
) -> None:
    filters = Filters(
        *span, names[0], names[1], tuple(where), names[2], unit, request=names[0], request_server=names[1]
    )
    carried = parse_qs(urlencode(filters.query(), doseq=True), keep_blank_values=True)
    assert from_query(carried, NOW) == (filters, [])


def test_times_always_stand_in_the_address() -> None:
    assert Filters().query() == {"from": ["-1h"], "to": ["now"]}


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"from": ["yesterday"]}, "'yesterday' is no time; write now, -2h, -3m30s or"),
        ({"from": ["now"], "to": ["-1h"]}, "ends before it begins"),
        ({"from": ["-99999999d"]}, "longer than anything is kept"),
        ({"unit": ["miles"]}, "it is share or tokens"),
        ({"colour": ["red"]}, "colour=, which means nothing here"),
        ({"server": ["x" * (LONGEST + 1)]}, "server= in the address is too long"),
        ({"where": ["y" * (LONGEST + 1)]}, "where= in the address is too long"),
    ],
)
def test_what_cannot_be_is_named_and_replaced(query: dict[str, list[str]], words: str) -> None:
    filters, problems = from_query(query, NOW)
    assert filters == Filters()
    assert len(problems) == 1
    assert words in problems[0]


@given(st.dictionaries(st.text(max_size=12), st.lists(st.text(max_size=30), max_size=3), max_size=4))
def test_no_address_breaks_it(query: dict[str, list[str]]) -> None:
    filters, _ = from_query(query, NOW)
    assert from_query(filters.query(), NOW) == (filters, [])


def test_filters_are_the_selection_of_the_command_line() -> None:
    filters = Filters("-2h", "now", "vllm-a", "org/model,v2", ("phase=warm", "prompt_tokens>100"))
    selection = parse_set(filters.selection, now=NOW, labels=["phase"], prefix="a")
    assert list(selection.parameters.values())[2:] == ["vllm-a", "org/model%v2", "phase", "warm", 100.0]
    assert selection.texts == ("server", "model", "phase")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"by": "junk"}, "by=junk in the address: requests cannot be grouped by 'junk'"),
        ({"where": ("foo=bar",)}, "where=foo=bar in the address: requests have no column or label 'foo'"),
        ({"where": ("prompt_tokens>many",)}, "prompt_tokens is compared with a number"),
        ({"where": ("nonsense",)}, "'nonsense' is neither a window"),
        ({"server": "nope"}, "server=nope in the address: there is no such server; all are shown"),
        ({"model": "nope"}, "model=nope in the address: there is no such model; all are shown"),
    ],
)
def test_what_the_store_does_not_have_is_named_and_left_out(asked: dict[str, object], words: str) -> None:
    filters, problems = known(Filters(**asked), ["vllm-a"], ["m"], ["phase"], NOW)  # type: ignore[arg-type]
    assert filters == Filters()
    assert len(problems) == 1
    assert words in problems[0]


def test_each_of_several_is_named_and_the_rest_stays() -> None:
    asked = Filters(server="nope", model="m", where=("foo=bar", "phase=warm"), by="junk")
    filters, problems = known(asked, ["vllm-a"], ["m"], ["phase"], NOW)
    assert filters == Filters(model="m", where=("phase=warm",))
    assert [line.split("=")[0] for line in problems] == ["server", "where", "by"]


def test_what_the_store_has_stays() -> None:
    asked = Filters(server="vllm-*", model="m", where=("label.model=x", "ttft_us>5"), by="label.model")
    assert known(asked, ["vllm-a"], ["m"], ["model"], NOW) == (asked, [])


def test_what_is_said_of_an_address_is_not_about_a_terminal() -> None:
    _, problems = known(Filters(by="tenant"), ["vllm-a"], ["m"], [], NOW)
    (told,) = problems
    assert "by=isolation groups by salt and adapter" in told
    assert "--" not in told


@pytest.mark.parametrize(
    ("filters", "server"),
    [
        (Filters(), ""),
        (Filters(server="a"), "a"),
        (Filters(server="a", request_server="b"), "b"),
        (Filters(server="vllm-*"), ""),
    ],
)
def test_whose_request_is_looked_at(filters: Filters, server: str) -> None:
    assert filters.request_of == server
