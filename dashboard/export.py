"""What a page shows as files: CSV, JSON, and one HTML file that needs nothing else."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from analysis.misses.report_model import MissLine
from cachemodel.printable import printable
from dashboard.colours import PARTS

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def to_csv(lines: Sequence[MissLine]) -> str:
    """A row a line, a column a part that occurs in any of them."""
    seen = {name for line in lines for name in line.parts}
    parts = [name for name in PARTS if name in seen] + sorted(seen - PARTS.keys())
    paper = io.StringIO()
    writer = csv.writer(paper)
    writer.writerow(["key", "begin", "requests", "placed", "prompt", *parts, "recomputed"])
    for line in lines:
        counts = [line.parts.get(name, 0) for name in parts]
        again = "" if line.recomputed is None else line.recomputed
        writer.writerow(
            [_cell(line.key), line.begin, line.requests, line.placed, line.prompt, *counts, again]
        )
    return paper.getvalue()


def csv_of_table(rows: Sequence[Mapping[str, object]]) -> str:
    """Rows that have the same keys; what is not known is an empty cell."""
    paper = io.StringIO()
    writer = csv.writer(paper)
    writer.writerow(rows[0] if rows else [])
    for row in rows:
        writer.writerow(_cell(value) if isinstance(value, str) else value for value in row.values())
    return paper.getvalue()


def to_html(title: str, headline: str, charts: Mapping[str, go.Figure]) -> str:
    """A page with plotly inside, to be read without a network. charts: by heading."""
    body = [f"<h1>{_html(title)}</h1>", f"<p>{_html(headline)}</p>"]
    for number, (heading, figure) in enumerate(charts.items()):
        drawn = figure.to_html(full_html=False, include_plotlyjs=number == 0, config={"displaylogo": False})
        body += [f"<h2>{_html(heading)}</h2>", drawn]
    style = "body{font-family:system-ui,sans-serif;max-width:1100px;margin:2rem auto;padding:0 1rem}"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{_html(title)}</title>'
        f"<style>{style}</style></head><body>{''.join(body)}</body></html>"
    )


def _html(text: str) -> str:
    return html.escape(printable(text, lines=False))


def _cell(text: str) -> str:
    """A name that a spreadsheet would take for a formula gets the apostrophe that stops it."""
    return f"'{text}" if text.startswith(_FORMULA) else text
