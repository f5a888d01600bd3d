"""`hitmap alerts --watch`: looks at the store again and again, prints what changed and tells the webhook."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import click
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

from analysis.alerts.alertmanager import Event
from analysis.alerts.evaluate import evaluate
from analysis.alerts.json import alert_data
from analysis.alerts.look import key
from analysis.alerts.model import Rule
from analysis.alerts.text import headline
from cachemodel.errors import UserError
from cachemodel.printable import printable
from hitmap.alerts.watch import Watch
from hitmap.alerts.webhook import NotDelivered, Webhook


@dataclass
class Rounds:
    """opened: opens the store; opened anew when it stopped answering. last: how far back each round looks."""

    opened: Callable[[], AbstractContextManager[Client]]
    table: Sequence[Rule]
    last: timedelta
    every_s: float
    webhook: Webhook | None
    as_json: bool
    _watch: Watch = field(default_factory=Watch)
    _said: str = ""
    _shown: set[tuple[str, str, str]] = field(
        default_factory=set
    )  # on the terminal, and not at the webhook yet
    _looked: bool = False

    def run(self, stopping: threading.Event) -> None:
        """Until `stopping`. Raises UserError where the first look fails; later ones are tried again."""
        while True:
            try:
                with self.opened() as client:
                    while True:
                        self._round(client, stopping)
                        if stopping.wait(self.every_s):
                            return
            except (UserError, ClickHouseError) as error:
                if not self._looked:
                    raise
                self._complain(f"not looked: {error}")
            if stopping.wait(self.every_s):
                return

    def _round(self, client: Client, stopping: threading.Event) -> None:
        """One look. What the webhook did not take is news again in the next."""
        now = datetime.now(UTC)
        report = evaluate(client, now - self.last, now, self.table, now=now)
        self._looked = True
        events = self._watch.news(report)
        complaints = [f"{v.rule.id}: not answered: {v.error}" for v in report.verdicts if v.error]
        for event in events:
            if (news := (event.status, event.note, key(event.alert))) not in self._shown:
                self._shown.add(news)
                click.echo(self._line(event))
        if self.webhook and events:
            try:
                self.webhook.tell(events, stopping)
            except NotDelivered as error:
                self._complain("; ".join([*complaints, f"{error}; tried again"]))
                return
        self._complain("; ".join(complaints))
        self._shown.clear()
        self._watch.heard(report, events)

    def _line(self, event: Event) -> str:
        if self.as_json:
            return json.dumps({"event": event.status, "note": event.note or None, **alert_data(event.alert)})
        note = f" ({event.note})" if event.note else ""
        return printable(
            f"{datetime.now(UTC):%H:%M:%S} {event.status}{note}: {headline(event.alert)}", lines=False
        )

    def _complain(self, said: str) -> None:
        """On stderr, once until it changes."""
        if said and said != self._said:
            click.echo(printable(f"hitmap alerts: {said}", lines=False), err=True)
        self._said = said
