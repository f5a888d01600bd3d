"""Scrapes one /metrics endpoint at an interval, whatever that endpoint does meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from collector.fetch import FetchError, Response, get
from collector.otlp.check import DEFAULT_WINDOW, Window
from collector.prometheus import Exposition, parse
from collector.series import Batch, LastSample, Resolver, SeriesTracker
from collector.sink import Backpressure, Sink
from collector.source import FAILING, RUNNING, PollingSource, now_us

# vLLM answers in text whatever is asked for; OpenMetrics is what others give `_created` and units in.
ACCEPT = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
_TEXT = ("text/plain", "application/openmetrics-text", "application/octet-stream", "")


@dataclass(frozen=True, slots=True)
class Target:
    """What to scrape. server: the name its samples are stored under; token: bearer token, empty for none; window: which
    times of samples are kept."""

    server: str
    url: str
    interval_s: float = 5.0
    timeout_s: float = 5.0
    max_bytes: int = 16 << 20
    token: str = ""
    window: Window = DEFAULT_WINDOW


class Scraper(PollingSource):
    """Scrapes until stopped. A scrape that fails is told in the status, stored as `up` 0, and tried again later.

    The samples of a scrape that the sink refuses are given up: the growth of counters is not, it shows in the next.
    stored: asked once for the last samples, by fingerprint, of an earlier run.
    """

    def __init__(
        self,
        target: Target,
        resolve: Resolver,
        sink: Sink,
        stored: Callable[[], Mapping[int, LastSample]] = dict,
    ) -> None:
        super().__init__(f"metrics {target.server}", sink, target.interval_s)
        self._ask_stored: Callable[[], Mapping[int, LastSample]] | None = stored
        self._target = target
        self._tracker = SeriesTracker(target.server, resolve, target.window)

    def poll(self) -> None:
        if self._ask_stored:
            self._tracker.resume(self._ask_stored())
            self._ask_stored = None
        self.scrape()

    def scrape(self) -> None:
        """One scrape, stored."""
        at_us = now_us()
        self.counts["scrapes"] += 1
        try:
            exposition = self._read()
        except FetchError as error:
            self._failed(str(error), at_us)
            return
        if not exposition.whole:
            self._failed(f"the body broke off after {len(exposition.samples)} samples", at_us, exposition)
            return
        batch = self._store(exposition, at_us, up=True)
        if batch:
            self.failures = 0
            self.tell(RUNNING, _summary(exposition, batch.counts["bad_time"]))

    def _read(self) -> Exposition:
        target = self._target
        answer = get(
            target.url,
            timeout_s=target.timeout_s,
            max_bytes=target.max_bytes,
            accept=ACCEPT,
            token=target.token,
        )
        _check(answer)
        openmetrics = answer.content_type.startswith("application/openmetrics-text")
        return parse(answer.body, openmetrics=openmetrics, whole=answer.whole)

    def _failed(self, reason: str, at_us: int, exposition: Exposition | None = None) -> None:
        """Store that the server is not up (once in a row of failures) and whatever came in whole lines."""
        if exposition is not None or not self.failures:
            self._store(exposition or Exposition(), at_us, up=False)
        self.failures += 1
        self.tell(FAILING, reason)
        self.counts["failed"] += 1

    def _store(self, exposition: Exposition, at_us: int, up: bool) -> Batch | None:
        """The batch that was stored, None where the sink refused it."""
        batch = self._tracker.batch(exposition, at_us, up)
        self.counts.update(batch.counts)
        entries = batch.entries()
        try:
            self.counts["rows"] += self._sink.put(entries) if entries else 0
        except Backpressure as full:
            self.counts["refused"] += 1
            self.tell(FAILING, str(full))
            return None
        self._tracker.commit(batch)
        return batch


def _check(answer: Response) -> None:
    if 300 <= answer.status < 400:
        raise FetchError(f"HTTP {answer.status}: redirects are not followed, attach the address it points to")
    if answer.status in (401, 403):
        raise FetchError(f"HTTP {answer.status}: it wants a key, pass --api-key")
    if answer.status != 200:
        raise FetchError(f"HTTP {answer.status}")
    if answer.content_type.partition(";")[0].strip() not in _TEXT:
        raise FetchError(f"the answer is {answer.content_type}, not metrics")


def _summary(exposition: Exposition, bad_time: int) -> str:
    text = f"{len(exposition.samples)} samples"
    if bad_time:
        text += f", {bad_time} left out whose time is long ago or in the future"
    if exposition.malformed:
        text += f", {exposition.malformed} malformed lines, the first: {exposition.first_malformed!r}"
    return text
