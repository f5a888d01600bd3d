"""What to look at after an alert about a process: a request of the server whose spans name it."""

from __future__ import annotations

from datetime import timedelta

from analysis.alerts.evaluate import evaluate
from analysis.alerts.model import Alert
from tests.analysis.observed.world import HOST, PID, START, put_points, put_request, put_span
from tests.databases import Database

SECONDS = 12


def storm(db: Database) -> Alert:
    """Major page faults of one process, above the threshold for all of the time."""
    put_points(db.client, [(1000 * at, 1000 * (at + 1), 500) for at in range(SECONDS)])
    told = evaluate(db.client, START, START + timedelta(seconds=SECONDS))
    (alert,) = (alert for alert in told.alerts if alert.rule.id == "major-fault-storm")
    return alert


def test_the_slowest_request_of_the_server_whose_spans_name_the_process(db: Database) -> None:
    for name, server, pid in (("ours", "s", PID), ("slower", "another", PID + 1)):
        length = 500 if server == "s" else 900
        for at in range(SECONDS):
            put_request(db.client, f"{name}-{at}", 1000 * at + 10, 1000 * at + 10 + length, server=server)
        resource = {"host.name": HOST, "process.pid": str(pid)}
        put_span(db.client, f"{pid:016x}", "", "llm_request", 2000, 2500, service=server, resource=resource)
    look = storm(db).look
    assert look[0].startswith("hitmap trace ours-")
    assert any(command.startswith("hitmap report") and "server=s" in command for command in look)
    assert look[-1] == "hitmap doctor"


def test_a_process_that_no_span_names_has_no_request(db: Database) -> None:
    put_request(db.client, "a", 100, 900)
    assert storm(db).look == ("hitmap doctor",)
