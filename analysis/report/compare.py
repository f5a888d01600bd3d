"""The report's front door: what to compare, in words, and a client in; a Report out."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime, timedelta

from clickhouse_connect.driver.client import Client

from analysis.report.build import TooFew, build
from analysis.report.metrics import METRICS
from analysis.report.model import Report
from analysis.report.reader import (
    check_known,
    check_not_empty,
    counters,
    deployment,
    label_names,
    read,
    spans_elsewhere,
)
from analysis.selection import Selection, around, parse_set
from cachemodel.errors import UserError


def compare(client: Client, a: str, b: str, *, metric: str = "ttft", quantile: float = 0.5) -> Report:
    """Compare two sets of requests, each written as `analysis.selection` says.

    metric: a name in METRICS. quantile: between 0 and 1, exclusive. Raises UserError.
    """
    check_not_empty(client)
    labels, now = label_names(client), datetime.now(UTC)
    left, right = (parse_set(text, now=now, labels=labels, prefix=p) for text, p in ((a, "a"), (b, "b")))
    return _compared(client, left, right, metric, quantile, shlex.join(["--a", a, "--b", b]))


def compare_deploy(
    client: Client, name: str, window: timedelta, *, metric: str = "ttft", quantile: float = 0.5
) -> Report:
    """Compare the requests before and after a marked deployment, `window` long each; raises UserError."""
    moment, server = deployment(client, name)
    check_known(client, name, server)
    before, after = around(moment, window, name, server)
    asked = shlex.join(["--deploy", name, "--window", f"{window.total_seconds():.0f}s"])
    return _compared(client, before, after, metric, quantile, asked)


def _compared(client: Client, a: Selection, b: Selection, metric: str, quantile: float, asked: str) -> Report:
    chosen = METRICS[metric]
    before, after = read(client, a, chosen), read(client, b, chosen)
    grown = counters(client, before, after)
    try:
        return build(chosen, quantile, (a.name, b.name), (before, after), grown, asked)
    except TooFew as error:
        raise UserError(f"{error}{spans_elsewhere(client, error.requests)}") from None
