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
