"""The report's front door: what to compare, in words, and a client in; a Report out."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from clickhouse_connect.driver.client import Client

from analysis.attribution.build import ROUNDS, attribute
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
from analysis.report.words import cached_share
from analysis.selection import Selection, around, parse_set
from cachemodel.errors import UserError


@dataclass(frozen=True)
class Asked:
    """What is asked of two sets. metric: a name in METRICS. quantile: between 0 and 1, exclusive; None for the mean.
    past: whether windows in which nothing was deployed calibrate the gate. seed, rounds: of the bootstrap. progress:
    told what is being done."""

    metric: str = "ttft"
    quantile: float | None = 0.5
    past: bool = True
    seed: int = 0
    rounds: int = ROUNDS
    progress: Callable[[str], None] = lambda _: None


def compare(client: Client, a: str, b: str, asked: Asked = Asked()) -> Report:
    """Compare two sets of requests, each written as `analysis.selection` says; raises UserError."""
    check_not_empty(client)
    labels, now = label_names(client), datetime.now(UTC)
    left, right = (parse_set(text, now=now, labels=labels, prefix=p) for text, p in ((a, "a"), (b, "b")))
    return _compared(client, left, right, asked, shlex.join(["--a", a, "--b", b]))


def compare_deploy(client: Client, name: str, window: timedelta, asked: Asked = Asked()) -> Report:
    """Compare the requests before and after a marked deployment, `window` long each; raises UserError."""
    moment, server = deployment(client, name)
    check_known(client, name, server)
    before, after = around(moment, window, name, server)
    words = shlex.join(["--deploy", name, "--window", f"{window.total_seconds():.0f}s"])
    return _compared(client, before, after, asked, words)


def _compared(client: Client, a: Selection, b: Selection, asked: Asked, words: str) -> Report:
    metric, q = METRICS[asked.metric], asked.quantile
    asked.progress("reading requests")
    before, after = read(client, a, metric), read(client, b, metric)
    grown = counters(client, before, after)
    try:
        report = build(
            metric, q, (a.name, b.name), (before, after), grown, words, (a.asked, b.asked), asked.seed
        )
    except TooFew as error:
        raise UserError(f"{error}{spans_elsewhere(client, error.requests)}") from None
    found = attribute(
        client,
        a,
        b,
        metric,
        q,
        seed=asked.seed,
        rounds=asked.rounds,
        past=asked.past,
        progress=asked.progress,
    )
    return replace(
        report,
        attribution=found,
        answer=found.headline + cached_share(report.tokens),
        warnings=list(dict.fromkeys([*report.warnings, *found.notes])),
    )
