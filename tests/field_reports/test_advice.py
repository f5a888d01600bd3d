"""Each field report about prompts draws the advice that it needs, in every phrasing and language, and no other."""

from __future__ import annotations

import json
import zlib
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from analysis.advisor.advice import advise
from analysis.advisor.rewriting.rules import Body
from tests.analysis.advisor.planted import RULES
from tests.field_reports.advice import ROWS, Row, template_of

CASES = [(row, language, phrasing) for row in ROWS for language in RULES for phrasing in range(row.phrasings)]
NUMBERS = {12, 13, 17, 21, 33, 70, 71, 73, 75, 76, 77, 79, 81, 82, 83, 85, 86, 88, 92, 96}


@pytest.mark.parametrize(
    ("row", "language", "phrasing"), CASES, ids=[f"{row.name}-{lang}-{way}" for row, lang, way in CASES]
)
def test_a_report_draws_its_advice_and_no_other(row: Row, language: str, phrasing: int) -> None:
    template = template_of(row)

    def tokens(body: Body) -> NDArray[np.uint32]:
        messages = [plain(message) for message in body.get("messages", ())]
        text = (
            json.dumps(body.get("tools") or [], ensure_ascii=False) + template.render(messages)
            if messages
            else ""
        )
        words = [char for word in text.split() for char in (word if not word.isascii() else [word])]
        return np.array([zlib.crc32(word.encode()) for word in words], dtype=np.uint32)

    prompts = row.make(language, phrasing)
    found = advise(prompts, tokens, row.cache, cache_name="c", tokens_by="t")
    named = {one.slot.cause for one in found.suggestions} | {one.cause for one in found.beside}
    assert named == row.expected, [(one.slot.cause, one.slot.path, one.share) for one in found.suggestions]


def plain(message: dict[str, Any]) -> dict[str, Any]:
    """With its content as a text, as templates of text models want it."""
    content = message.get("content")
    told = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False) if content else ""
    calls = json.dumps(message["tool_calls"], ensure_ascii=False) if message.get("tool_calls") else ""
    return {**message, "content": told + calls}


def test_every_report_about_prompts_has_its_row() -> None:
    assert {row.number for row in ROWS} == NUMBERS
    assert all(row.phrasings >= 2 for row in ROWS)
    assert len(RULES) >= 3
