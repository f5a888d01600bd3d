"""Alerts in the shape of Alertmanager's webhook (version 4), which receivers of alerts read already.

https://prometheus.io/docs/alerting/latest/configuration/#webhook_config
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from analysis.alerts.model import Alert
from analysis.alerts.text import headline

Status = Literal["firing", "resolved"]
_NOT_ENDED = "0001-01-01T00:00:00Z"
RECEIVER = "hitmap"


class Event(NamedTuple):
    """What is told of an alert: that it fired, or that it is over. note: more to say than the alert itself does."""

    status: Status
    alert: Alert
    note: str = ""


def payload(events: Sequence[Event]) -> dict[str, Any]:
    """One notification of at least one event."""
    alerts = [_alert(event) for event in events]
    shared = [_shared([alert[name] for alert in alerts]) for name in ("labels", "annotations")]
    return {
        "version": "4",
        "groupKey": f"{{}}:{{receiver={RECEIVER!r}}}",
        "truncatedAlerts": 0,
        "status": "firing" if any(event.status == "firing" for event in events) else "resolved",
        "receiver": RECEIVER,
        "groupLabels": {},
        "commonLabels": shared[0],
        "commonAnnotations": shared[1],
        "externalURL": "",
        "alerts": alerts,
    }


def _alert(event: Event) -> dict[str, Any]:
    alert, rule = event.alert, event.alert.rule
    annotations = {"summary": headline(alert), "description": rule.means, "runbook": "\n".join(alert.look)}
    if event.note:
        annotations["note"] = event.note
    return {
        "status": event.status,
        "labels": {"alertname": rule.id, "severity": rule.severity, **alert.labels},
        "annotations": annotations,
        "startsAt": alert.start.isoformat().replace("+00:00", "Z"),
        "endsAt": _NOT_ENDED if event.status == "firing" else alert.end.isoformat().replace("+00:00", "Z"),
        "generatorURL": "",
        "fingerprint": alert.fingerprint,
    }


def _shared(maps: Sequence[dict[str, str]]) -> dict[str, str]:
    """What all of them say the same."""
    first, *others = maps
    return {name: value for name, value in first.items() if all(other.get(name) == value for other in others)}
