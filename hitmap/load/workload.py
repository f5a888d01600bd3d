"""Workload files: OpenAI request bodies, one a line, with or without times; request logs are such files, too.

A line is a body (`messages` or `prompt`), or a record with a `body`: what `hitmap load --log` writes, logs of other
clients, OpenAI's batch files. `due_s` says when a request is due, else `due_unix_ns` or `sent_unix_ns`: a log is sent
again at its distances. A file without times goes by an arrival process. `session_id` binds requests into a session.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cachemodel.errors import UserError
from hitmap.load.files import decoded
from hitmap.load.plan import Body, Plan, Planned

LABELS = (
    "phase",
    "experiment",
    "arm",
    "tenant",
    "template",
    "tag",
)  # what a request log keeps of a request's names
_TIMES = {
    "due_s": 1.0,
    "due_unix_ns": 1e9,
    "sent_unix_ns": 1e9,
}  # units a second, the first that is there counts
_OURS = {*LABELS, *_TIMES, "session_id", "request_id", "client_request_id"}
_LATEST_S = 1e11


def plan(path: Path, untimed: Iterator[float], *, speed: float = 1.0) -> Plan:
    """The requests of the file. untimed: due times for a file that has none. speed: 2 sends it in half the time.

    Raises UserError.
    """
    records = list(decoded(path, dict[str, Any]))
    clocks = {next((name for name in _TIMES if record.get(name) is not None), "") for record in records}
    if len(clocks) > 1:
        told = ", ".join(clock or "no time" for clock in sorted(clocks))
        raise UserError(
            f"{path}: its requests have times of several kinds ({told}); give each of them a due_s"
        )
    clock = "".join(clocks)
    planned = []
    for number, record in enumerate(records, start=1):
        try:
            due_s = _time_s(record, clock) / speed if clock else next(untimed)
            planned.append(_planned(record, due_s))
        except ValueError as error:
            raise UserError(f"{path}: request {number} {error}") from None
    planned.sort(key=lambda request: request.due_s)
    if clock and clock != "due_s":  # points in time: the load begins with the first
        planned = [replace(request, due_s=request.due_s - planned[0].due_s) for request in planned]
    return Plan(f"workload {path.name}", lambda: iter(planned), own_times=bool(clock))


def _time_s(record: dict[str, Any], clock: str) -> float:
    value = record[clock]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"has a {clock} that is no number")
    if not 0 <= value < _LATEST_S * _TIMES[clock]:
        raise ValueError(f"has a {clock} that is no time")
    return value / _TIMES[clock]


def _planned(record: dict[str, Any], due_s: float) -> Planned:
    body = record.get("body")
    if body is None:
        body = {name: value for name, value in record.items() if name not in _OURS}
    if not isinstance(body, dict) or not (body.get("messages") or body.get("prompt")):
        raise ValueError("has neither messages nor a prompt")

    def same(_answers: Sequence[str]) -> Body:
        return body

    labels = {name: record[name] for name in LABELS if isinstance(record.get(name), str)}
    return Planned(due_s, same, labels, str(record.get("session_id") or ""))
