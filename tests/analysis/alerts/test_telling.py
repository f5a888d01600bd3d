"""A report as JSON, on a terminal and in the shape of Alertmanager's webhook."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from datetime import timedelta

from rich.console import Console

from analysis.alerts.alertmanager import Event, payload
from analysis.alerts.json import to_json
from analysis.alerts.model import Alert, Report, Subject, Verdict
from analysis.alerts.table import rules
from analysis.alerts.text import to_terminal
from tests.analysis.alerts.planted import START, second

RATIO, *_, TENSOR = rules()
ALERT = Alert(
    rule=RATIO, labels={"server": "blue"}, start=second(10), end=second(20), worst=0.25, worst_at=second(12),
    windows=10, samples=20_000, state="firing", look=("hitmap misses '-1h/now,server=blue'",),
)  # fmt: skip
SUBJECTS = (Subject({"server": "blue"}, 60, second(60)), Subject({"server": "gone"}, 5, second(5)))
REPORT = Report(
    START,
    START + timedelta(minutes=10),
    (
        Verdict(RATIO, (ALERT,), SUBJECTS, thin=3),
        Verdict(rules()[1], (), (replace(SUBJECTS[0], last=second(600)),)),
        Verdict(rules()[2], error="Code: 60. no such table"),
        Verdict(TENSOR, no_data="it takes a card"),
    ),
)


def shown(report: Report, width: int = 160) -> str:
    paper = io.StringIO()
    to_terminal(report, Console(file=paper, width=width, highlight=False))
    return " ".join(paper.getvalue().split())


def test_a_terminal_shows_what_fired_what_explains_it_and_what_is_not_told() -> None:
    flat = shown(REPORT)
    assert flat.startswith("1 alert from 2026-11-29 12:00:00 to 2026-11-29 12:10:00")
    assert (
        "warning hit-ratio-low server blue 2026-11-29 12:00:10 12:00:20, firing 0.250 < 0.850 10 x 1 s"
        " 20,000 prompt tokens" in flat
    )
    assert "hitmap misses '-1h/now,server=blue'" in flat
    assert f"{TENSOR.id}: no data: it takes a card" in flat
    assert f"{rules()[2].id}: not answered: Code: 60. no such table" in flat
    assert "hit-ratio-low: no data at the end of the range: server blue; server gone" in flat
    assert f"Judged, and no alert {rules()[1].id}" in flat
    assert f"{rules()[1].id}: no data at the end" not in flat


def test_no_alert_is_said_and_is_no_all_clear_for_rules_without_data() -> None:
    flat = shown(replace(REPORT, verdicts=REPORT.verdicts[1:]))
    assert flat.startswith("No alerts from")
    assert "no data" in flat


def test_a_name_that_would_steer_a_terminal_is_shown_as_text() -> None:
    alert = replace(ALERT, labels={"server": "\x1b[31mred[bold]"}, look=("hitmap misses '\x1b[2J'",))
    flat = shown(replace(REPORT, verdicts=(Verdict(RATIO, (alert,), SUBJECTS),)))
    assert "\x1b" not in flat
    assert "red[bold]" in flat


def test_json_has_all_of_it() -> None:
    told = json.loads(to_json(REPORT))
    assert (told["schema"], told["from"], told["to"]) == (
        1,
        "2026-11-29T12:00:00+00:00",
        "2026-11-29T12:10:00+00:00",
    )
    (alert,) = told["alerts"]
    assert alert == {
        "fingerprint": ALERT.fingerprint, "rule": "hit-ratio-low", "severity": "warning", "means": RATIO.means,
        "labels": {"server": "blue"}, "state": "firing", "start": "2026-11-29T12:00:10+00:00",
        "end": "2026-11-29T12:00:20+00:00", "value": "hit ratio", "unit": "ratio", "breach": "below",
        "threshold": 0.85, "worst": 0.25, "worst_at": "2026-11-29T12:00:12+00:00", "window_s": 1, "windows": 10,
        "samples": 20_000, "samples_of": "prompt tokens", "look": ["hitmap misses '-1h/now,server=blue'"],
    }  # fmt: skip
    ratio, grows, storm, tensor = told["rules"]
    assert (ratio["alerts"], ratio["thin_windows"], ratio["no_data"], ratio["error"]) == (1, 3, None, None)
    assert ratio["subjects"][1] == {
        "labels": {"server": "gone"},
        "windows": 5,
        "last": "2026-11-29T12:00:05+00:00",
    }
    assert (grows["alerts"], grows["no_data"]) == (0, None)
    assert storm["error"] == "Code: 60. no such table"
    assert tensor["no_data"] == "it takes a card"


def test_a_notification_has_the_fields_that_receivers_of_alertmanager_read() -> None:
    other = replace(ALERT, labels={"server": "green"}, state="resolved")
    told = payload([Event("firing", ALERT), Event("resolved", other, "for a reason")])
    assert (told["version"], told["status"], told["truncatedAlerts"]) == ("4", "firing", 0)
    assert told["commonLabels"] == {"alertname": "hit-ratio-low", "severity": "warning"}
    assert told["commonAnnotations"].keys() == {"description", "runbook"}
    firing, resolved = told["alerts"]
    assert firing["labels"] == {"alertname": "hit-ratio-low", "severity": "warning", "server": "blue"}
    assert (firing["status"], firing["startsAt"], firing["endsAt"]) == (
        "firing",
        "2026-11-29T12:00:10Z",
        "0001-01-01T00:00:00Z",
    )
    assert firing["fingerprint"] == ALERT.fingerprint
    assert "note" not in firing["annotations"]
    assert (resolved["status"], resolved["endsAt"]) == ("resolved", "2026-11-29T12:00:20Z")
    assert resolved["annotations"]["note"] == "for a reason"
    assert payload([Event("resolved", other)])["status"] == "resolved"
