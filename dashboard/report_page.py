"""A report as one HTML file that needs no network: figures, tables, and how they came about."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from analysis.attribution.model import View
from analysis.numbers import quantile_name
from analysis.report.attributed import finding_lines
from analysis.report.model import Report
from analysis.report.page import answers, described, details, method
from analysis.report.tables import TextTable
from cachemodel.printable import printable
from dashboard.charts.attribution import composition, waterfall

_STYLE = """
:root{color-scheme:light}
body{font:15px/1.5 system-ui,sans-serif;color:#1b1b1b;background:#fff}
body{max-width:1120px;margin:2rem auto;padding:0 1.5rem}
h1{font-size:1.5rem;margin:0 0 .6rem} h2{font-size:1.1rem;margin:2.2rem 0 .4rem}
p.answer{font-size:1.1rem;margin:.2rem 0 .8rem}
ul{margin:.3rem 0;padding-left:1.2rem} li{margin:.15rem 0}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;margin:.4rem 0}
th,td{padding:.22rem .8rem .22rem 0;border-bottom:1px solid #e4e4e4;text-align:left;vertical-align:top}
td.number,th.number{text-align:right} tr.strong td{font-weight:600}
.note{color:#5a5a5a;font-size:.9rem} pre{background:#f5f5f5;padding:.7rem 1rem;overflow-x:auto;font-size:.88rem}
.plot{margin:.3rem 0}
"""


def to_html(report: Report) -> str:
    """The page. Whatever telemetry or a user named is text in it."""
    title = f"{report.a.name} against {report.b.name}"
    body = [f"<h1>{_text(title)}</h1>", f'<p class="answer">{_text(report.answer)}</p>']
    body.append(_list([described(side, line) for side, line in (("A", report.a), ("B", report.b))]))
    charts = dict(_charts(report))
    for table in answers(report):
        body += _section(table, charts.pop(table.title, None))
    for finding in report.attribution.findings if report.attribution else []:
        body += [f"<h2>{_text(finding.title)}</h2>", _list(finding_lines(finding))]
    for table in details(report):
        body += _section(table)
    if report.warnings:
        body += ["<h2>Be wary</h2>", _list(report.warnings)]
    body += ["<h2>How these figures came about</h2>", _list(method(report), "note")]
    body += ["<h2>Next</h2>", f"<pre>{_text(chr(10).join(report.next_steps), lines=True)}</pre>"]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{_text(title)}</title>'
        f"<style>{_STYLE}</style><script>{get_plotlyjs()}</script></head><body>{''.join(body)}</body></html>\n"
    )


def _charts(report: Report) -> Iterator[tuple[str, go.Figure]]:
    """By the title of the table that they stand above."""
    titles = {table.title: table for table in answers(report)}
    views: list[View] = [report.attribution.caused, report.attribution.shows] if report.attribution else []
    for view, title in zip(views, titles, strict=False):
        if not view.refused:
            yield title, waterfall(view)
    made_of = f"What {quantile_name(report.quantile)} is made of, ms"
    if made_of in titles:
        yield made_of, composition(report.layers, (report.a.name, report.b.name))


def _section(table: TextTable, chart: go.Figure | None = None) -> list[str]:
    drawn = []
    if chart is not None:
        chart.update_layout(template="plotly_white")
        plot = chart.to_html(
            full_html=False, include_plotlyjs=False, config={"displaylogo": False, "displayModeBar": False}
        )
        drawn = [f'<div class="plot">{plot}</div>']
    rows = [_table(table)] if table.rows else []
    notes = [_list(table.notes, "note" if table.rows else "")] if table.notes else []
    return [f"<h2>{_text(table.title)}</h2>", *drawn, *rows, *notes]


def _table(table: TextTable) -> str:
    kinds = ['class="number"' if column.number else "" for column in table.columns]
    head = "".join(
        f"<th {kind}>{_text(c.heading)}</th>" for kind, c in zip(kinds, table.columns, strict=True)
    )
    rows = [
        f"<tr{' class=strong' if strong else ''}>"
        + "".join(f"<td {kind}>{_text(cell)}</td>" for kind, cell in zip(kinds, row, strict=True))
        + "</tr>"
        for row, strong in zip(table.rows, table.strong, strict=True)
    ]
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _list(lines: Sequence[str], kind: str = "") -> str:
    return f'<ul class="{kind}">' + "".join(f"<li>{_text(line)}</li>" for line in lines) + "</ul>"


def _text(text: str, *, lines: bool = False) -> str:
    return html.escape(printable(text, lines=lines))
