"""The log of a load: a JSON line for each request that was sent, in the form that collector.request_log reads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import msgspec

from cachemodel.errors import UsageError, UserError
from hitmap.load.client import Answer
from hitmap.load.plan import Body


class Sent(msgspec.Struct, omit_defaults=True):
    """A request and what became of it. What is not known is left out.

    due_unix_ns: when the plan had it; a turn of a session may have had to wait for the answer before it. ttft_s,
    total_s: from sending to the first generated text and to the end. error_kind, error: where it failed. The labels and
    what the response said beside its text follow as fields.
    """

    client_request_id: str
    body: Body
    due_unix_ns: int
    sent_unix_ns: int
    done_unix_ns: int
    total_s: float
    session_id: str = ""
    trace_id: str = ""
    parent_span_id: str = ""
    status: int | None = None
    response_id: str = ""
    ttft_s: float | None = None
    first_token_unix_ns: int | None = None
    last_token_unix_ns: int | None = None
    finish_reason: str = ""
    error_kind: str = ""
    error: str = ""


_TAKEN = {
    *Sent.__struct_fields__,
    "usage",
    "metrics",
    "timings",
    "system_fingerprint",
    "model",
    "response",
    "request_id",
}


def checked_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels, if none has the name of a field of the log, and all are text. Raises UsageError."""
    for name, value in labels.items():
        if not (name + value).isprintable():
            raise UsageError(f"the label {name!r} is no line of text")
        if not name or name in _TAKEN:
            raise UsageError(f"a label cannot be called {name!r}: the log has a field of that name")
    return dict(labels)


def line(
    request_id: str,
    body: Body,
    due_ns: int,
    answer: Answer,
    labels: Mapping[str, str],
    session: str = "",
    trace: tuple[str, str] = ("", ""),
) -> bytes:
    """A line of the log. trace: trace id and span id that were sent as parent."""
    first_ns = answer.first_ns
    sent = Sent(
        client_request_id=request_id,
        body=body,
        due_unix_ns=due_ns,
        sent_unix_ns=answer.sent_ns,
        done_unix_ns=answer.done_ns,
        total_s=(answer.done_ns - answer.sent_ns) / 1e9,
        session_id=session,
        trace_id=trace[0],
        parent_span_id=trace[1],
        status=answer.status,
        response_id=answer.response_id,
        ttft_s=None if first_ns is None else (first_ns - answer.sent_ns) / 1e9,
        first_token_unix_ns=first_ns,
        last_token_unix_ns=answer.last_ns,
        finish_reason=answer.finish_reason,
        error_kind=answer.failure,
        error=answer.error,
    )
    fields: dict[str, Any] = msgspec.to_builtins(sent)
    return msgspec.json.encode(dict(labels) | fields | answer.said) + b"\n"


class Log:
    """A file to which lines are added as requests end; nothing is written without a path. Raises UserError."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Self:
        if self._path is not None:
            try:
                self._file = self._path.open("ab", buffering=0)
            except OSError as error:
                raise UserError(f"the log {self._path} cannot be written: {error.strerror}") from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file:
            self._file.close()

    def write(self, line: bytes) -> None:
        """Append a whole line."""
        if self._file is None:
            return
        try:
            self._file.write(line)
        except OSError as error:
            raise UserError(f"the log {self._path} cannot be written: {error.strerror}") from None
