"""The report's front door: what to compare, in words, and a client in; a Report out."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from clickhouse_connect.driver.client import Client

from analysis.attribution.build import ROUNDS, attribute, read_pair
from analysis.attribution.build import Asked as Question
from analysis.report.build import TooFew, build, check_enough
from analysis.report.metrics import METRICS, Metric
from analysis.report.model import Report
from analysis.report.reader import (
    check_known,
    check_not_empty,
    common,
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
    told what is being done. early: given the report as it stands before its attribution, which takes longest."""

    metric: str = "ttft"
    quantile: float | None = 0.5
    past: bool = True
    seed: int = 0
    rounds: int = ROUNDS
    progress: Callable[[str], None] = lambda _: None
    early: Callable[[Report], None] | None = None

    def of(self, metric: Metric) -> Question:
        """The same of a metric of any kind, as an attribution is asked."""
        return Question(metric.name, metric.meaning, self.quantile, self.seed, self.rounds, self.progress)


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
    metric, names, windows = METRICS[asked.metric], (a.name, b.name), (a.asked, b.asked)
    asked.progress("reading requests")
    sets = read(client, a, metric), read(client, b, metric)
    try:
        check_enough(metric, names, sets)
    except TooFew as error:
        raise UserError(f"{error}{spans_elsewhere(client, error.requests)}") from None
    shared = common(client, a, b)
    if asked.early:
        asked.early(build(metric, asked.quantile, names, sets, [], words, windows))
    question = asked.of(metric)
    pair = read_pair(client, a, b, metric, question)
    drawn = pair.drawn_for((sets[0].arrival, sets[1].arrival))
    report = build(metric, asked.quantile, names, sets, counters(client, *sets), words, windows, drawn)
    found = attribute(client, pair, a, metric, question, past=asked.past)
    return replace(
        report,
        attribution=found,
        answer=found.headline + cached_share(report.tokens),
        warnings=list(dict.fromkeys([*report.warnings, *found.notes, *_shared(shared, report)])),
        shared=shared,
    )


def _shared(shared: int, report: Report) -> list[str]:
    if not shared or report.a.name == report.b.name:
        return []
    return [
        f"{shared:,} requests are in both sets, which hides what differs: choose sets apart from each other"
    ]
