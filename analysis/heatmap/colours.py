"""The colours of a heatmap, from least to most: darker to lighter all the way, so that grey tones tell the same."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

RAMP = ("#440154", "#3B528B", "#21918C", "#5EC962", "#FDE725")  # viridis at its quarters
UNKNOWN = "#9A9A9A"
ZONES = {"hot": "#D55E00", "warm": "#E69F00", "cold": "#56B4E9", "": UNKNOWN}


def colour_of(share: float) -> str:
    """Of 0 to 1, as #RRGGBB."""
    red, green, blue = (round(float(level)) for level in rgb(np.array([share]))[0])
    return f"#{red:02X}{green:02X}{blue:02X}"


def rgb(shares: NDArray[np.float64]) -> NDArray[np.uint8]:
    """(..., 3) of shares from 0 to 1."""
    stops = np.array([levels(colour) for colour in RAMP], np.float64)
    where = np.linspace(0.0, 1.0, len(RAMP))
    mixed = [np.interp(np.clip(shares, 0.0, 1.0), where, stops[:, channel]) for channel in range(3)]
    return np.stack(mixed, axis=-1).round().astype(np.uint8)


def levels(colour: str) -> tuple[int, int, int]:
    """Of #RRGGBB."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def ink_on(colour: str) -> str:
    """Black or white, whichever stands out."""
    red, green, blue = levels(colour)
    return "#000000" if 0.299 * red + 0.587 * green + 0.114 * blue > 128 else "#FFFFFF"
