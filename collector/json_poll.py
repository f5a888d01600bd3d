"""Polls an endpoint that answers in JSON and stores the numbers in it as samples."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from collector.fetch import FetchError, get
from collector.prometheus import GAUGE, Exposition, Family, Labels, Sample
from collector.scrape import Target
from collector.series import Batch, LastSample, Resolver, SeriesTracker
from collector.sink import Sink
from collector.source import FAILING, RUNNING, PollingSource, now_us


class Reading(NamedTuple):
    """Samples of one moment (Unix microseconds)."""

    time_us: int
    samples: Exposition


Reader = Callable[[object, int], Iterable[Reading]]
"""Makes readings, oldest first, of a decoded answer and the time at which it came; raises ValueError for what is no
answer of its kind."""


class JsonPoller(PollingSource):
    """Polls until stopped. What one poll brings is kept until the sink takes it: the endpoint may not tell it again.

    stored: asked once for the last samples, by fingerprint, of an earlier run.
    """

    def __init__(
        self,
        name: str,
        target: Target,
        read: Reader,
        resolve: Resolver,
        sink: Sink,
        stored: Callable[[], Mapping[int, LastSample]] = dict,
    ) -> None:
        super().__init__(name, sink, target.interval_s)
        self._ask_stored: Callable[[], Mapping[int, LastSample]] | None = stored
        self._target = target
        self._read = read
        self._tracker = SeriesTracker(target.server, resolve, target.window)

    def poll(self) -> None:
        """One poll, stored."""
        if self._ask_stored:
            self._tracker.resume(self._ask_stored())
            self._ask_stored = None
        self.counts["polls"] += 1
        try:
            readings = list(self._read(self._answer(), now_us()))
        except FetchError as error:
            self._failed("failed", str(error))
            return
        except (ValueError, OverflowError, RecursionError) as error:
            self._failed("malformed", f"not the answer of such an endpoint: {error}")
            return
        self.failures = 0
        entries = self._rows(readings).entries()
        if not entries or self.deliver(entries):
            self.tell(RUNNING, f"{len(readings)} readings")

    def _answer(self) -> object:
        target = self._target
        answer = get(target.url, timeout_s=target.timeout_s, max_bytes=target.max_bytes, token=target.token)
        if answer.status != 200:
            raise FetchError(f"HTTP {answer.status}")
        if not answer.whole:
            raise FetchError("the body broke off")
        return json.loads(answer.body)

    def _failed(self, count: str, reason: str) -> None:
        self.failures += 1
        self.tell(FAILING, reason)  # before it is counted: who waits for the count finds the reason
        self.counts[count] += 1

    def _rows(self, readings: Iterable[Reading]) -> Batch:
        """The rows of all readings; each grows from the one before."""
        rows = Batch()
        oldest_ns, newest_ns = self._target.window.bounds()
        for time_us, samples in readings:
            if not oldest_ns <= time_us * 1000 <= newest_ns:
                self.counts["bad_time"] += len(samples.samples)
                continue
            batch = self._tracker.batch(samples, time_us, up=None)
            self._tracker.commit(batch)
            self.counts.update(batch.counts)
            rows.series_rows += batch.series_rows
            rows.sample_rows += batch.sample_rows
        return rows


def gauges(values: Iterable[tuple[str, Labels, object]]) -> Exposition:
    """Samples, by name and labels, of those values that are numbers; a truth value is 0 or 1."""
    exposition = Exposition()
    for name, labels, value in values:
        if isinstance(value, (int, float)):
            exposition.samples.append(Sample(name, labels, float(value), None))
            exposition.families.setdefault(name, Family(name, GAUGE))
    return exposition
