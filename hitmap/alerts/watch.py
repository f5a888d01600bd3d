"""Which alerts are news: of one look at the store after the other, what has fired since and what is over. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from analysis.alerts.alertmanager import Event
from analysis.alerts.model import Alert, Report

_LOST = (
    "there was no data until it fell out of what is looked at: over for want of data, which is no all-clear"
)


@dataclass
class Watch:
    """Remembers what was told. The first look tells what fires at its end only."""

    _told: dict[str, Alert] = field(default_factory=dict)  # those that fire, by fingerprint
    _over: dict[str, datetime] = field(default_factory=dict)  # end of the newest that is over
    _looked: bool = False

    def news(self, report: Report) -> list[Event]:
        """What is to be told. It stays news until `heard` says that it was."""
        newest = _newest(report)
        events = [event for alert in newest.values() if (event := self._of(alert))]
        asked = {verdict.rule.id for verdict in report.verdicts if not verdict.error}
        events += [
            Event("resolved", alert, _LOST)
            for fingerprint, alert in self._told.items()
            if fingerprint not in newest and alert.rule.id in asked
        ]
        return events

    def heard(self, report: Report, events: list[Event]) -> None:
        """The events of this report were told."""
        newest = _newest(report)
        self._told |= {fingerprint: newest[fingerprint] for fingerprint in self._told.keys() & newest.keys()}
        for status, alert, _ in events:
            if status == "firing":
                self._told[alert.fingerprint] = alert
            else:
                self._told.pop(alert.fingerprint, None)
                self._over[alert.fingerprint] = alert.end
        if not self._looked:
            self._looked = True
            self._over |= {f: a.end for f, a in newest.items() if f not in self._told}
        for fingerprint, end in list(self._over.items()):
            if end < report.begin:
                del self._over[fingerprint]

    def _of(self, alert: Alert) -> Event | None:
        told = alert.fingerprint in self._told
        if told:
            return Event("resolved", alert) if alert.state == "resolved" else None
        if not self._looked:
            return Event("firing", alert) if alert.state == "firing" else None
        over = self._over.get(alert.fingerprint)
        # one that came and went between two looks is told, and that it is over at the next
        return None if over and alert.end <= over else Event("firing", alert)


def _newest(report: Report) -> dict[str, Alert]:
    """The newest alert of each rule about each subject."""
    return {alert.fingerprint: alert for alert in sorted(report.alerts, key=lambda alert: alert.start)}
