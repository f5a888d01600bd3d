"""A heatmap as a PNG: cells and nothing else. Names of rows and positions stand in the HTML, which draws the same."""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

from analysis.heatmap.colours import UNKNOWN, levels, rgb
from analysis.heatmap.model import Heatmap, top_of, value_of

CELL = 14  # pixels
_GROUND, _MARK = (255, 255, 255), (213, 94, 0)


def to_png(found: Heatmap, layer: str) -> bytes:
    """A row a row, a column a column; white where no prompt reaches, grey where nothing is known, a line below cells
    where rewriting pays."""
    columns = max((len(row.cells) for row in found.rows), default=1) or 1
    shares = np.full((max(len(found.rows), 1), columns), np.nan)
    unknown, marked = np.zeros((2, *shares.shape), np.bool_)
    top = top_of(found, layer)
    for y, row in enumerate(found.rows):
        for x, cell in enumerate(row.cells):
            value = value_of(cell, layer)
            unknown[y, x], marked[y, x] = value is None, cell.rewrite
            if value is not None:
                shares[y, x] = value / top
    pixels = rgb(np.nan_to_num(shares))
    pixels[np.isnan(shares)] = _GROUND
    pixels[unknown] = levels(UNKNOWN)
    large = pixels.repeat(CELL, axis=0).repeat(CELL, axis=1)
    for y, x in np.argwhere(marked):
        large[(y + 1) * CELL - 3 : (y + 1) * CELL, x * CELL : (x + 1) * CELL] = _MARK
    return encoded(large)


def encoded(pixels: NDArray[np.uint8]) -> bytes:
    """(h, w, 3) as a PNG of 8-bit RGB (ISO/IEC 15948): lines without a filter, one IDAT."""
    height, width, _ = pixels.shape
    lines = np.zeros((height, 1 + 3 * width), np.uint8)
    lines[:, 1:] = pixels.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
