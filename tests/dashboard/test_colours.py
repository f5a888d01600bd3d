"""Parts can be told apart, with all eyes and on both themes."""

from __future__ import annotations

import itertools
import tomllib
from pathlib import Path

import numpy as np
import pytest

import dashboard
from analysis.misses.parts import COLOURS, HITS
from analysis.misses.parts import PARTS as NAMES
from analysis.observed.model import Observed, Span, Trace
from cachemodel.observed import BY_NAME, SPAN_COUNTERS
from dashboard.charts.counters import strips
from dashboard.colours import PARTS, SEAM, part_of

# How people without red or green cones see linear RGB (Machado, Oliveira and Fernandes 2009, severity 1.0).
EYES = {
    "all cones": np.eye(3),
    "no red": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "no green": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]]
    ),
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WHITE = np.array([0.9505, 1.0, 1.089])
APART = 13.0  # CIE76 units; 2.3 is the smallest difference that can be seen side by side
CLEAR, CLEARER = (
    22.0,
    35.0,
)  # where nothing but colour tells, and bars of up to three, or of two kinds lie on each other


def linear(colour: str) -> np.ndarray:
    levels = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(levels <= 0.04045, levels / 12.92, ((levels + 0.055) / 1.055) ** 2.4)


def lab(light: np.ndarray) -> np.ndarray:
    x, y, z = (np.cbrt(v) if v > 0.008856 else 7.787 * v + 16 / 116 for v in TO_XYZ @ light / WHITE)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def contrast(a: str, b: str) -> float:
    bright, dark = sorted((float(TO_XYZ[1] @ linear(c)) for c in (a, b)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def theme(name: str) -> dict[str, str]:
    config = tomllib.loads((Path(dashboard.__file__).parent / ".streamlit/config.toml").read_text())
    return config["theme"][name]


@pytest.mark.parametrize("eyes", EYES)
def test_parts_differ_by_colour_or_hatching(eyes: str) -> None:
    seen = {name: lab(np.clip(EYES[eyes] @ linear(part.colour), 0, 1)) for name, part in PARTS.items()}
    for a, b in itertools.combinations(PARTS, 2):
        same = PARTS[a].hatching == PARTS[b].hatching
        assert not same or np.linalg.norm(seen[a] - seen[b]) >= APART, f"{a} and {b}"


def test_parts_are_those_of_the_analysis_in_its_colours() -> None:
    assert list(PARTS) == list(NAMES)
    assert {name for name, part in PARTS.items() if part.hit} == set(HITS)
    assert all(PARTS[name].colour == COLOURS[name].upper() for name in PARTS if "/" not in name)
    assert all(part.meaning for part in PARTS.values())


def test_a_part_of_a_later_version_is_shown() -> None:
    assert part_of("evaporated").label == "evaporated"


@pytest.mark.parametrize("name", ["light", "dark"])
def test_themes_are_legible(name: str) -> None:
    colours = theme(name)
    for ground in (colours["backgroundColor"], colours["secondaryBackgroundColor"]):
        assert contrast(colours["textColor"], ground) >= 7
        assert contrast(colours["primaryColor"], ground) >= 4.5
    seam = "#808080"  # whatever a part's colour, its edge shows (WCAG 1.4.11)
    assert SEAM["color"].startswith("rgba(128,128,128")
    assert contrast(seam, colours["backgroundColor"]) >= 3


def everything_counted() -> Trace:
    """A request whose threads and process counted all there is to count, and whose GPU moved over every link."""
    span = Span(
        "b", "", "llm_request", "s", 0.0, 1e6, 0, own=True, counted={c.name: 5.0 for c in SPAN_COUNTERS}
    )
    named = [(c.metric, dict(c.attributes)) for c in SPAN_COUNTERS]
    named += [(name, {}) for name in ("hw.gpu.io", "hitmap.gpu.nvlink.io", "hitmap.gpu.c2c.io")]
    observed = [
        Observed(BY_NAME[metric].layer, metric, attributes, BY_NAME[metric].unit, "", "p (1)", 5.0, 1.0, "procfs", 1,
                 series=[(0.0, 1e6, 5.0)])
        for metric, attributes in named
    ]  # fmt: skip
    return Trace("r", "s", "", "2026-11-30T12:00:00Z", 1e6, None, {}, {}, [], [span], [], observed, [], None)


@pytest.mark.parametrize("eyes", EYES)
def test_lines_of_a_strip_are_told_apart_and_from_the_ground(eyes: str) -> None:
    """What a process and what the threads of a request counted, of up to three kinds: bars over each other."""
    found = {strip.title: strip for strip in strips(everything_counted())}
    four = [title for title, strip in found.items() if len(strip.lines) == 4]
    assert four == ["threads on and off CPU", "context switches/s"]
    grounds = {name: theme(name)["backgroundColor"] for name in ("light", "dark")}
    for title, strip in found.items():
        colours = {line.name: line.colour for line in strip.lines} | grounds
        seen = {name: lab(np.clip(EYES[eyes] @ linear(colour), 0, 1)) for name, colour in colours.items()}
        for a, b in itertools.combinations(seen, 2):
            least = CLEARER if title in four and not {a, b} & set(grounds) else CLEAR
            assert np.linalg.norm(seen[a] - seen[b]) >= least or {a, b} == set(grounds), (
                f"{title}: {a} and {b}"
            )
