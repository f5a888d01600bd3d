"""Values in descriptions of tools, in whichever line or sentence of them."""

from __future__ import annotations

import json
import random
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.advisor.learning.cause import Cause
from analysis.advisor.learning.messages.tools import in_lines
from analysis.advisor.rewriting.rules import apply
from cachemodel.prompts.text import compact
from tests.analysis.advisor.forms import FORMS, Block, Talk
from tests.analysis.advisor.test_advice_forms import CAREFUL, RULES, advised, requests

LINE = "Stock as of {}."
DESCRIPTIONS = {
    "a line between": f"Searches the shelves.\n{LINE}\nAsk it first.",
    "the first line": f"{LINE}\nSearches the shelves.",
    "the last line": f"Searches the shelves.\n{LINE}",
    "the first sentence": f"{LINE} Searches the shelves.",
    "the last sentence": f"Searches the shelves. {LINE}",
    "a long one": f"{CAREFUL}\n{LINE}\n{CAREFUL}",
    "quoted": f'The word "now" is the time.\n{LINE}\nAsk "first".',
    "a list": f"Usage:\n- {LINE}\n- Ask it first.",
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", DESCRIPTIONS)
def test_a_clock_is_cut_out_of_a_description_wherever_it_stands_in_it(name: str, form: str) -> None:
    def told(time: datetime, asked: str, _: random.Random) -> Talk:
        own = DESCRIPTIONS[name].format(f"{time:%Y-%m-%d %H:%M:%S}")
        tools = [("search", own, "What to look for."), ("hold", "Keeps a book.", "Which one.")]
        return Talk([Block(RULES)], [[Block(asked)]], tools)

    log = requests(form, told)
    found = advised(log)
    (one,) = found.suggestions
    assert one.slot.cause is Cause.CLOCK
    assert one.rules
    assert one.gain
    assert one.diff
    rewritten = [(time, apply(one.rules, body)) for time, body in log]
    after = advised(rewritten)
    assert after.as_sent == one.gain.most.after.total
    assert after.as_sent.computed < 0.5 * found.as_sent.computed
    (left,) = {json.dumps([body.get("tools"), body.get("toolConfig")]) for _, body in rewritten}
    for kept in ("Searches the shelves.", "Ask it first.", 'Ask \\"first\\".', "Usage:"):
        assert (kept in left) == (kept.replace("\\", "") in DESCRIPTIONS[name])


@given(
    st.recursive(st.text('ab"\\\n é{}:', max_size=9), lambda inner: st.lists(inner, max_size=2)), st.text()
)
def test_a_definition_in_lines_is_as_long_and_has_its_descriptions_line_by_line(
    other: object, told: str
) -> None:
    text = compact({"name": "a", "description": told, "x": other, "description2": other})
    lines = in_lines(text)
    assert len(lines) == len(text)
    changed = [(a, b) for a, b in zip(text, lines, strict=True) if a != b]
    assert set(changed) <= {('"', "\n"), ("\\", " "), ("n", "\n")}
    assert lines.count("\n") == 2 + told.count("\n")
