"""Alerts for machines."""

from __future__ import annotations

import json
from typing import Any

from analysis.alerts.model import Alert, Report, Rule, Verdict

SCHEMA = 1


def to_json(report: Report) -> str:
    """Indented JSON; times are ISO 8601 in UTC, what is unknown is null."""
    data = {
        "schema": SCHEMA,
        "from": report.begin.isoformat(),
        "to": report.end.isoformat(),
        "alerts": [alert_data(alert) for alert in report.alerts],
        "rules": [_verdict(verdict) for verdict in report.verdicts],
    }
    return json.dumps(data, indent=2, allow_nan=False)


def alert_data(alert: Alert) -> dict[str, Any]:
    """One alert, complete without its rule's line."""
    rule = alert.rule
    return {
        "fingerprint": alert.fingerprint,
        "rule": rule.id,
        "severity": rule.severity,
        "means": rule.means,
        "labels": dict(alert.labels),
        "state": alert.state,
        "start": alert.start.isoformat(),
        "end": alert.end.isoformat(),
        "value": rule.value,
        "unit": rule.unit,
        "breach": rule.breach,
        "threshold": rule.threshold,
        "worst": alert.worst,
        "worst_at": alert.worst_at.isoformat(),
        "window_s": rule.window_s,
        "windows": alert.windows,
        "samples": alert.samples,
        "samples_of": rule.of,
        "look": list(alert.look),
    }


def _verdict(verdict: Verdict) -> dict[str, Any]:
    return {
        **_rule(verdict.rule),
        "alerts": len(verdict.alerts),
        "subjects": [
            {"labels": dict(s.labels), "windows": s.windows, "last": s.last.isoformat()}
            for s in verdict.subjects
        ],
        "thin_windows": verdict.thin,
        "no_data": verdict.no_data or None,
        "error": verdict.error or None,
    }


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "rule": rule.id,
        "severity": rule.severity,
        "threshold": rule.threshold,
        "breach": rule.breach,
        "unit": rule.unit,
        "window_s": rule.window_s,
        "for_s": rule.hold_s,
        "minimum": rule.minimum,
        "minimum_of": rule.of,
    }
