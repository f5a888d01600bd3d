"""A report on a narrow terminal, and on one without colour."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from analysis.misses import explain_text, text
from analysis.misses.parts import PARTS, UNKNOWN
from analysis.misses.report_model import CeilingLine, Explanation, MissLine, MissReport, TokenRun
from analysis.misses.sentences import ago

TIME = "2026-11-29T12:00:00Z"
LINE = MissLine(
    "vllm-a", 10, 10, 15_000, {part: 1000 for part in PARTS if part != "cached"} | {UNKNOWN: 2000}
)
REPORT = MissReport(
    "all", "server", TIME, TIME, 1, 0, TIME, LINE, [replace(LINE, key="vllm-b"), LINE], [],
    [CeilingLine("vllm-a", 16, 0, 40, 15_000, 3000, 9000, 4000, 1000)], [], answer="an answer",
)  # fmt: skip
EXPLANATION = Explanation(
    "chatcmpl-1", "vllm-a", "m", TIME, 64, 16, False, "tokenizer", 16, "in units",
    [TokenRun(0, 16, "device", "served from the device, held since 12:00:00"),
     TokenRun(16, 64, "evicted/capacity", "evicted to make room 12:00:01, 5 s before")], {},
    next_steps=["hitmap advise requests.jsonl    # which part of the prompts, and what to write instead, word by word"],
)  # fmt: skip
CELL = "\N{FULL BLOCK}"


def shown(of: MissReport | Explanation, width: int, *, plain: bool) -> str:
    """What a terminal shows. plain: whether NO_COLOR is set on it."""
    file = io.StringIO()
    console = Console(
        width=width, file=file, force_terminal=True, no_color=plain, color_system="truecolor", highlight=False
    )
    if isinstance(of, MissReport):
        text.to_terminal(of, console)
    else:
        explain_text.to_terminal(of, console)
    return file.getvalue()


@pytest.mark.parametrize("of", [REPORT, EXPLANATION])
def test_without_colour_there_are_no_bars(of: MissReport | Explanation) -> None:
    assert CELL not in shown(of, 120, plain=True)
    assert CELL in shown(of, 120, plain=False)


@pytest.mark.parametrize("of", [REPORT, EXPLANATION])
@pytest.mark.parametrize("width", [60, 72, 80, 100])
def test_words_stay_whole(of: MissReport | Explanation, width: int) -> None:
    """Also those with a stroke in them; only commands are longer than a line."""
    plain = re.sub("\x1b[^m]*m", "", shown(of, width, plain=True))
    wide = re.sub("\x1b[^m]*m", "", shown(of, 300, plain=True))
    assert {word for word in plain.split() if "\N{BOX DRAWINGS LIGHT HORIZONTAL}" not in word} <= set(
        wide.split()
    )
    assert max(len(line.rstrip()) for line in plain.splitlines() if "hitmap " not in line) <= width
    assert EXPLANATION.next_steps[0] in shown(EXPLANATION, width, plain=True)


@pytest.mark.parametrize(
    ("us", "text"),
    [(-5, "0 ms"), (1_400, "1 ms"), (999_400, "999 ms"), (999_600, "1.0 s"), (1_500_000, "1.5 s"),
     (119_000_000, "119 s"), (120_000_000, "2 min"), (7_200_000_000, "2 h"), (172_800_000_000, "2 d")],
)  # fmt: skip
def test_a_stretch_of_time_has_the_unit_that_people_would_take(us: int, text: str) -> None:
    assert ago(us) == text
