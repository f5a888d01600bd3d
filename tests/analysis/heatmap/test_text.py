"""A heatmap as text and as a picture."""

from __future__ import annotations

import io
import struct
import zlib
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from analysis.heatmap.cells import pays, zone_of
from analysis.heatmap.colours import RAMP, UNKNOWN, levels, rgb
from analysis.heatmap.marks import marks_of
from analysis.heatmap.model import LAYERS, SCHEMA_VERSION, Cell, Heatmap, Row, top_of, value_of
from analysis.heatmap.png import CELL, to_png
from analysis.heatmap.text import MARK, UNTOLD, to_markdown, to_terminal
from analysis.treatments import of_zones
from tests.dashboard.made import HOSTILE


def cell(column: int, reuse: float | None, **more: object) -> Cell:
    made = Cell(column * 16, column * 16 + 16, 90, 0.9, reuse, 1.5, None, 2880, 1234.5, zone_of(reuse),
                pays(0.9, reuse, None))  # fmt: skip
    return replace(made, **more)  # type: ignore[arg-type]


def made(columns: int = 60, rows: int = 2, name: str = HOSTILE) -> Heatmap:
    """Reuse falls from 1 at the first column to 0 at the last; the last cell of the second row is not known."""
    lines = [
        Row(f"{number:08x}", 100, [cell(n, 1 - n / max(columns - 1, 1)) for n in range(columns)])
        for number in range(rows)
    ]
    lines[-1].cells[-1] = cell(columns - 1, None)
    return Heatmap(
        SCHEMA_VERSION, name, "template", "2026-11-29T12:00:00+00:00", "2026-11-29T12:10:00+00:00", 200, 0.5, 12_000,
        [16], [name], dict.fromkeys(LAYERS, 1), 0, lines, 3, 17, marks_of(lines), f"About {name}.", [f"{name} warns"],
        ["hitmap advise LOG"], of_zones(["hot", "warm"]),
    )  # fmt: skip


def terminal(found: Heatmap, layer: str = "reuse", width: int = 80, colour: bool = False) -> str:
    paper = io.StringIO()
    system = "truecolor" if colour else None
    console = Console(file=paper, width=width, force_terminal=colour, color_system=system, highlight=False)  # type: ignore[arg-type]
    to_terminal(found, console, layer)
    return paper.getvalue()


def test_eighty_columns_without_colour() -> None:
    shown = terminal(made())
    assert max(map(len, shown.splitlines())) <= 80
    assert "\x1b" not in shown
    line = next(line for line in shown.splitlines() if line.startswith("00000001"))
    digits = line[9:69]
    assert digits[0] == "9"
    assert list(digits[:-1]) == sorted(digits[:-1], reverse=True)
    assert digits[-1] == UNTOLD
    assert line.endswith("100")
    below = shown.splitlines()[shown.splitlines().index(line) + 1]
    reuse = [value_of(one, "reuse") for one in made().rows[1].cells]
    marked = [n for n, share in enumerate(reuse) if share is not None and share < 0.6]
    assert [at - 9 for at, sign in enumerate(below) if sign == MARK] == marked


@pytest.mark.parametrize("layer", list(LAYERS))
def test_colours_do_not_change_the_text(layer: str) -> None:
    plain, coloured = terminal(made(), layer), terminal(made(), layer, colour=True)
    bare = Console(file=io.StringIO(), width=80)
    from rich.text import Text

    assert "\n".join(t.plain for t in [Text.from_ansi(coloured)]).split() == plain.split()
    assert "\x1b[" in coloured
    assert bare.width == 80


def test_what_zones_call_for_is_told() -> None:
    for shown in (" ".join(terminal(made()).split()), to_markdown(made())):
        assert "hot: split the task chain. Where steps of one task send the same long text" in shown
        assert "warm: truncate at anchors. Where a long conversation is cut" in shown


def test_what_has_no_room_is_said() -> None:
    shown = terminal(made(), width=50)
    assert max(map(len, shown.splitlines())) <= 50
    assert "columns fit" in " ".join(shown.split())


def test_what_is_left_out_is_said() -> None:
    assert "3 templates more, of 17 prompts, are not shown" in " ".join(terminal(made()).split())


def test_names_are_text_on_a_terminal_and_in_markdown() -> None:
    hostile = made(name="\x1b[31mred\x1b[0m [bold]x[/bold] <b>`")
    assert "\x1b" not in terminal(hostile)
    assert "[bold]x[/bold]" in terminal(hostile)
    page = to_markdown(hostile)
    assert "\x1b" not in page
    assert "<b>" not in page.replace("\\<b\\>", "")
    assert page.count("```") == 2


def decoded(data: bytes) -> np.ndarray:  # type: ignore[type-arg]
    """Pixels of a PNG, read by its specification."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, chunks = 8, {}
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        assert struct.unpack(">I", data[at + 8 + length : at + 12 + length])[0] == zlib.crc32(kind + body)
        chunks[kind] = body
        at += 12 + length
    width, height, depth, colour = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    assert (depth, colour) == (8, 2)
    lines = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, 1 + 3 * width)
    assert (lines[:, 0] == 0).all()
    return lines[:, 1:].reshape(height, width, 3)


def test_a_picture_has_the_colours_of_the_cells() -> None:
    found = made(columns=5)
    found.rows[0].cells.pop()
    pixels = decoded(to_png(found, "reuse"))
    assert pixels.shape == (2 * CELL, 5 * CELL, 3)
    middle = pixels[CELL // 2 :: CELL, CELL // 2 :: CELL]
    assert tuple(middle[0, 0]) == levels(RAMP[-1])
    assert tuple(middle[0, 4]) == (255, 255, 255), "no prompt reaches"
    assert tuple(middle[1, 4]) == levels(UNKNOWN)
    assert (pixels[CELL - 1, 3 * CELL + 2] != middle[0, 3]).any(), "a mark"


def test_pillow_reads_the_picture() -> None:
    image = pytest.importorskip("PIL.Image")
    data = to_png(made(), "cost")
    assert (np.asarray(image.open(io.BytesIO(data))) == decoded(data)).all()


def test_the_ramp_goes_from_dark_to_light() -> None:
    light = rgb(np.linspace(0, 1, 50)).astype(float) @ [0.299, 0.587, 0.114]
    assert (np.diff(light) > 0).all()


@pytest.mark.parametrize(
    ("reuse", "zone"), [(0.91, "hot"), (0.9, "warm"), (0.6, "warm"), (0.59, "cold"), (None, "")]
)
def test_zones(reuse: float | None, zone: str) -> None:
    assert zone_of(reuse) == zone


@pytest.mark.parametrize(
    ("frequency", "reuse", "stability", "marked"),
    [
        (0.86, 0.99, 0.39, True),
        (0.86, 0.1, 0.4, False),
        (0.85, 0.1, 0.1, False),
        (0.86, 0.59, None, True),
        (0.86, 0.6, None, False),
        (0.86, None, None, False),
    ],
)
def test_where_rewriting_pays(
    frequency: float, reuse: float | None, stability: float | None, marked: bool
) -> None:
    assert pays(frequency, reuse, stability) is marked


def test_scales() -> None:
    assert top_of(made(), "reuse") == 1.0
    assert top_of(made(), "cost") == 2880
    assert top_of(made(), "volatility") == 1.5
