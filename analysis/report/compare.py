"""The report's front door: what to compare, in words, and a client in; a Report out."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime, timedelta

from clickhouse_connect.driver.client import Client

from analysis.report.build import build
from analysis.report.model import Report
from analysis.report.reader import check_not_empty, counters, deploy_time, label_names, read
from analysis.selection import Selection, around, parse_set


def compare(client: Client, a: str, b: str, *, metric: str = "ttft", quantile: float = 0.5) -> Report:
    """Compare two sets of requests, each written as `analysis.selection` says; raises UserError."""
    check_not_empty(client)
    labels, now = label_names(client), datetime.now(UTC)
    left, right = (parse_set(text, now=now, labels=labels, prefix=p) for text, p in ((a, "a"), (b, "b")))
    asked = f"--a {shlex.quote(a)} --b {shlex.quote(b)}"
    return _compared(client, left, right, metric, quantile, asked)


def compare_deploy(
    client: Client, name: str, window: timedelta, *, metric: str = "ttft", quantile: float = 0.5
) -> Report:
    """Compare the requests before and after a marked deployment; raises UserError."""
    asked = f"--deploy {shlex.quote(name)} --window {window.total_seconds():.0f}s"
    return _compared(client, *around(deploy_time(client, name), window, name), metric, quantile, asked)


def _compared(client: Client, a: Selection, b: Selection, metric: str, quantile: float, asked: str) -> Report:
    before, after = read(client, a, metric), read(client, b, metric)
    return build((a.name, b.name), before, after, metric, quantile, counters(client, before, after), asked)
