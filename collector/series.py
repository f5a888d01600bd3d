"""Turns the expositions of one server into rows of `series` and `samples`: fingerprints, growth, restarts. Pure.

A counter's growth (`delta`) is the difference to the sample stored before it. After a restart of the counter it is the
whole value, since the count began at 0. A restart shows by a fallen value, by a later `_created` or by a later start
of the process. What grew unseen before a restart is lost, as with every scraper.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from sys import getsizeof
from typing import Any, NamedTuple

import msgspec

from collector.metric import Metric, metric_of
from collector.otlp.check import DEFAULT_WINDOW, Window
from collector.prometheus import (
    COUNTER,
    GAUGE,
    HISTOGRAM,
    SUMMARY,
    UNKNOWN,
    Exposition,
    Family,
    Labels,
    Sample,
)
from collector.ranks import Leaders, is_copy, leaders
from collector.sink import Entry

Resolver = Callable[[Iterable[str]], Mapping[str, Metric]]
Key = tuple[str, Labels]

UP = Metric("up", GAUGE, "", "1 where the scrape came whole, else 0", ())

MAX_SERIES = 100_000
MAX_BYTES = 64 << 20
"""Memory for the names and labels of a server's series."""
_PROCESS_START = "process_start_time_seconds"
# A start time that moved by less is the same start: some servers work it out anew for every scrape.
_RESTART_TOLERANCE_S = 2.0
_GROWING = {
    (COUNTER, "_total"),
    *((kind, s) for kind in (HISTOGRAM, SUMMARY) for s in ("_bucket", "_sum", "_count")),
}
_SINGLE = {COUNTER, GAUGE, UNKNOWN}  # kinds whose samples are one number each
_PER_PART = {"le", "quantile"}  # labels that tell the parts of one histogram or summary apart

_encode = msgspec.json.Encoder().encode


def fingerprint(server: str, name: str, labels: Labels) -> int:
    """64 bits that stand for a series, the same in every process and version."""
    text = "\xff".join([server, name, *(part for label in labels for part in label)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


class LastSample(NamedTuple):
    """The newest sample of a series that is stored. time_us: Unix microseconds."""

    time_us: int
    value: float


@dataclass(slots=True)
class _Series:
    """What a series is, and the last sample of it that the sink took."""

    fingerprint: int
    grows: bool
    origin: Key  # the series whose `_created` is this one's
    time_us: int = 0
    value: float = math.nan
    created: float | None = None


class _Seen(NamedTuple):
    series: _Series
    time_us: int
    value: float
    created: float | None


class _Scrape(NamedTuple):
    """What all samples of a scrape share. names: metrics by family; created: start times (Unix seconds) by origin;
    restarted: the process was started since the scrape before; leaders: the ranks that are read."""

    now_us: int
    names: Mapping[str, Metric]
    created: Mapping[Key, float]
    restarted: bool
    leaders: Leaders


@dataclass(slots=True)
class Batch:
    """The rows of one scrape, and what `SeriesTracker.commit` will remember of it.

    counts: samples left out, by reason: malformed, stale, not_finite, bad_time, too_many.
    """

    series_rows: list[dict[str, Any]] = field(default_factory=list)
    sample_rows: list[dict[str, Any]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    new: dict[Key, _Series] = field(default_factory=dict)
    seen: dict[int, _Seen] = field(default_factory=dict)
    bytes: int = 0
    started: float | None = None

    def entries(self) -> list[Entry]:
        """At most two entries: new series first, so that no sample is stored before what it means."""
        kinds = (("series", self.series_rows), ("samples", self.sample_rows))
        return [
            Entry(kind, b"".join(_encode(row) + b"\n" for row in rows), len(rows))
            for kind, rows in kinds
            if rows
        ]


class SeriesTracker:
    """All series of one server. window: which times of samples are kept."""

    def __init__(
        self,
        server: str,
        resolve: Resolver,
        window: Window = DEFAULT_WINDOW,
        *,
        max_series: int = MAX_SERIES,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._server = server
        self._resolve = resolve
        self._window = window
        self._max_series, self._max_bytes = max_series, max_bytes
        self._bytes = 0  # of the keys of what is known
        self._known: dict[Key, _Series] = {}
        self._stored: Mapping[int, LastSample] = {}
        self._started: float | None = None

    def resume(self, stored: Mapping[int, LastSample]) -> None:
        """Let growth go on from samples, by fingerprint, that an earlier run of the collector stored."""
        self._stored = stored
        start = stored.get(fingerprint(self._server, _PROCESS_START, ()))
        self._started = start.value if start else None

    def batch(self, exposition: Exposition, now_us: int, up: bool | None = True) -> Batch:
        """The rows of a scrape made at `now_us` (Unix microseconds), with the sample `up` unless that is None.

        A sample that has a time keeps it, and is left out where that is not later than its last one: it was stored
        before. `up` takes the newest such time, so that an unchanged exposition adds no row at all.
        """
        batch = Batch()
        batch.counts["malformed"] = exposition.malformed
        created, batch.started = _origins(exposition)
        families = (exposition.family_of(sample.name)[0].name for sample in exposition.samples)
        names = {**self._resolve(families), UP.name: UP}
        rules = {metric.ranks for metric in names.values() if metric.ranks}
        if rules and all((sample.name, sample.labels) in self._known for sample in exposition.samples):
            rules = set()  # which rank is read is decided once, when a series is new
        lowest = leaders(rules, {sample.labels for sample in exposition.samples})
        scrape = _Scrape(now_us, names, created, _is_later(batch.started, self._started), lowest)
        times = (s.time_s for s in exposition.samples if s.time_s is not None)
        told = (
            max((time_s for time_s in times if self._window.holds(time_s, now_us / 1e6)), default=None)
            if up
            else None
        )
        up_samples = () if up is None else (Sample(UP.name, (), float(up), told),)
        for sample in (*up_samples, *exposition.samples):
            family, suffix = exposition.family_of(sample.name)
            if suffix != "_created" and (reason := self._add(batch, scrape, sample, family, suffix)):
                batch.counts[reason] += 1
        return batch

    def commit(self, batch: Batch) -> None:
        """The sink took the batch: the next one grows from here."""
        self._known |= batch.new
        self._bytes += batch.bytes
        for series, time_us, value, created in batch.seen.values():
            series.time_us, series.value, series.created = time_us, value, created
        if batch.started is not None:
            self._started = batch.started

    def _add(self, batch: Batch, scrape: _Scrape, sample: Sample, family: Family, suffix: str) -> str:
        """Add a sample to the batch; where it is left out, the reason."""
        if not math.isfinite(sample.value):
            return "not_finite"
        if sample.time_s is not None and not math.isfinite(sample.time_s):
            return "bad_time"
        time_us = scrape.now_us if sample.time_s is None else round(sample.time_s * 1e6)
        if not self._window.holds(time_us / 1e6, scrape.now_us / 1e6):
            return "bad_time"
        key = (sample.name, sample.labels)
        series = self._known.get(key) or batch.new.get(key)
        if series is None:
            size = _size(key)
            is_room = self._bytes + batch.bytes + size <= self._max_bytes
            if not is_room or len(self._known) + len(batch.new) >= self._max_series:
                return "too_many"
            batch.bytes += size
            metric = metric_of(scrape.names, family.name, sample.labels)
            family = _corrected(family, metric)
            if metric and metric.ranks and is_copy(metric.ranks, sample.labels, scrape.leaders):
                metric = None
            series = batch.new[key] = _new_series(self._server, sample, family, suffix)
            series.time_us, series.value = self._stored.get(series.fingerprint, (0, math.nan))
            batch.series_rows.append(_describe(series, self._server, sample, family, suffix, metric))
        if time_us <= series.time_us or series.fingerprint in batch.seen:
            return "stale"
        created = scrape.created.get(series.origin)
        delta = None
        if series.grows and series.time_us:
            reset = scrape.restarted or sample.value < series.value or _is_later(created, series.created)
            delta = max(sample.value - (0.0 if reset else series.value), 0.0)
        batch.seen[series.fingerprint] = _Seen(series, time_us, sample.value, created)
        batch.sample_rows.append(
            {"time": time_us / 1e6, "fingerprint": series.fingerprint, "value": sample.value, "delta": delta}
        )
        return ""


def _size(key: Key) -> int:
    """Bytes of memory that a key's texts take."""
    name, labels = key
    return getsizeof(name) + sum(getsizeof(text) for label in labels for text in label)


def _corrected(family: Family, metric: Metric | None) -> Family:
    """The family with the kind that the dialect knows it to be: servers declare high-water marks as counters."""
    if metric and {metric.kind, family.kind} <= _SINGLE:
        return replace(family, kind=metric.kind)
    return family


def _new_series(server: str, sample: Sample, family: Family, suffix: str) -> _Series:
    owner = tuple(label for label in sample.labels if label[0] not in _PER_PART)
    grows = (family.kind, suffix) in _GROWING or (family.kind == COUNTER and not suffix)
    return _Series(fingerprint(server, sample.name, sample.labels), grows, (family.name, owner))


def _describe(
    series: _Series, server: str, sample: Sample, family: Family, suffix: str, metric: Metric | None
) -> dict[str, Any]:
    part = f".{suffix[1:]}" if suffix in ("_bucket", "_sum", "_count") else ""
    labels = dict(sample.labels)
    if metric and metric.origin and (source := metric.origin.source(labels)):
        labels["source"] = source
    return {
        "fingerprint": series.fingerprint,
        "server": server,
        "metric": metric.name + part if metric else "",
        "raw_name": sample.name,
        "kind": family.kind,
        "unit": metric.unit if metric else family.unit,
        "labels": labels,
    }


def _origins(exposition: Exposition) -> tuple[dict[Key, float], float | None]:
    """When each counter, histogram or summary began, and when the process did (Unix seconds)."""
    created, started = {}, None
    for sample in exposition.samples:
        if sample.name == _PROCESS_START:
            started = sample.value
        elif sample.name.endswith("_created"):
            family, suffix = exposition.family_of(sample.name)
            if suffix:
                created[family.name, sample.labels] = sample.value
    return created, started


def _is_later(time_s: float | None, before_s: float | None) -> bool:
    return time_s is not None and before_s is not None and time_s > before_s + _RESTART_TOLERANCE_S
