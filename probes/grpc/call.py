"""The span of one call while it runs: cheap to make, and told to the SDK after the call has ended.

It is the current span of OpenTelemetry while a handler runs, so that spans made there nest under it, and what a handler
sets on it (`trace.get_current_span().set_attribute(...)`) is kept and told along.
"""

from __future__ import annotations

import os
import random
import re
import time
import traceback
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from opentelemetry import trace
from opentelemetry.util import types

SAMPLED = 1
KNOWN_FLAGS = 3  # sampled, and level 2's "the trace id is random"
NOTES = 128
"""Most things that a handler may set on the span of one call; the rest is counted as lost."""

_random = random.Random()  # noqa: S311 - ids, not secrets. Not random's own: a seed of the user's would repeat them
os.register_at_fork(after_in_child=_random.seed)
bits = _random.getrandbits
"""bits(64) is one word of an id. Atomic, with the GIL and without."""

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)


class Parent(NamedTuple):
    """Whose child a call is. state: the tracestate header as it came, or empty. remote: it came over the wire."""

    trace_id: int
    span_id: int
    flags: int
    state: str
    remote: bool


class Method(NamedTuple):
    """A method as one side sees it, interned: calls refer to it. name: `package.Service/Method`. original: the name
    asked for, where it is not one that the server knows."""

    name: str
    kind: trace.SpanKind
    original: str | None = None


def read_traceparent(header: object, state: str = "") -> Parent | None:
    """W3C Trace Context, https://www.w3.org/TR/trace-context/#traceparent-header. None where it is malformed."""
    found = _TRACEPARENT.fullmatch(header) if isinstance(header, str) else None
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    parent = Parent(int(trace_id, 16), int(span_id, 16), int(flags, 16) & KNOWN_FLAGS, state, True)
    broken = version == "ff" or (version == "00" and more) or not parent.trace_id or not parent.span_id
    return None if broken else parent


class Light(trace.NonRecordingSpan):
    """Ids that a context carries on; the SpanContext is made when somebody asks for it."""

    flags = 0
    state = ""
    remote = False

    def __init__(self, trace_id: int, span_id: int, flags: int = 0, state: str = "") -> None:
        self.trace_id = trace_id
        self.span_id = span_id
        self.flags = flags
        self.state = state

    def get_span_context(self) -> trace.SpanContext:
        """The ids as OpenTelemetry's own type."""
        return span_context(self.trace_id, self.span_id, self.flags, self.state, self.remote)

    def traceparent(self) -> str:
        """The header that makes another process a child of this."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{self.flags:02x}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.traceparent()})"


class Unsampled(Light):
    """A call without a parent that was not chosen. Mostly nobody asks for its ids, so that they are made when asked.
    low: the lower half of the trace id, by which it was not chosen."""

    low: int
    __init__ = object.__init__  # a frame less for each call

    def __getattr__(self, name: str) -> int:
        if name not in ("trace_id", "span_id"):
            raise AttributeError(name)
        self.trace_id = bits(64) << 64 | self.low
        self.span_id = bits(64) or 1
        return int(getattr(self, name))


class Call(Light):
    """A sampled call. start_ns, end_ns: time.monotonic_ns(); end_ns is 0 while it runs. code: as grpc has it, None is
    OK. key, hit: cache.key and cache.hit, None where not told. notes: what the handler set, told to the SDK later;
    skipped: how many it could not keep of those."""

    end_ns = 0
    code: object = None
    key: str | None = None
    hit: bool | None = None
    notes: list[tuple[str, tuple[Any, ...]]] | None = None
    skipped = 0

    def __init__(
        self, method: Method, trace_id: int, span_id: int, flags: int, parent: Parent | None
    ) -> None:
        self.start_ns = time.monotonic_ns()
        self.trace_id = trace_id
        self.span_id = span_id
        self.flags = flags
        self.method = method
        self.parent = parent
        if parent is not None:
            self.state = parent.state

    def is_recording(self) -> bool:
        """True until the call has ended."""
        return not self.end_ns

    def _note(self, what: str, *arguments: Any) -> None:
        if self.end_ns:
            return  # as the SDK: a span that has ended changes no more
        if self.notes is None:
            self.notes = []
        if len(self.notes) < NOTES:
            self.notes.append((what, arguments))
        else:
            self.skipped += 1

    def set_attribute(self, key: str, value: types.AnyValue) -> None:
        """Kept for the SDK."""
        self._note("set_attribute", key, value)

    def set_attributes(self, attributes: Mapping[str, types.AnyValue]) -> None:
        """Kept for the SDK."""
        self._note("set_attributes", dict(attributes))

    def add_event(self, name: str, attributes: types.Attributes = None, timestamp: int | None = None) -> None:
        """Kept for the SDK, with the time now."""
        self._note("add_event", name, attributes, timestamp or time.time_ns())

    def add_link(self, context: trace.SpanContext, attributes: types.Attributes = None) -> None:
        """Kept for the SDK."""
        self._note("add_link", context, attributes)

    def update_name(self, name: str) -> None:
        """Kept for the SDK."""
        self._note("update_name", name)

    def set_status(self, status: trace.Status | trace.StatusCode, description: str | None = None) -> None:
        """Kept for the SDK."""
        self._note("set_status", status, description)

    def record_exception(
        self,
        exception: BaseException,
        attributes: types.Attributes = None,
        timestamp: int | None = None,
        escaped: bool = False,
    ) -> None:
        """Kept as text: the exception itself would keep the frames of the request alive."""
        told: dict[str, types.AnyValue] = {
            "exception.type": type(exception).__qualname__,
            "exception.message": str(exception),
            "exception.stacktrace": "".join(traceback.format_exception(exception)),
            "exception.escaped": str(escaped),
        }
        self.add_event("exception", told | dict(attributes or {}), timestamp)


def span_context(trace_id: int, span_id: int, flags: int, state: str, remote: bool) -> trace.SpanContext:
    """OpenTelemetry's own type. A tracestate that is malformed is left out, as the standard asks."""
    return trace.SpanContext(
        trace_id,
        span_id,
        is_remote=remote,
        trace_flags=trace.TraceFlags(flags),
        trace_state=trace.TraceState.from_header([state]) if state else None,
    )


def parent_in(metadata: Iterable[tuple[str, Any]] | None) -> Parent | None:
    """The parent that gRPC metadata name, None where they name none or are malformed."""
    header: object = None
    state = ""
    for key, value in metadata or ():
        if key == "traceparent":
            header = value
        elif key == "tracestate" and isinstance(value, str):
            state = f"{state},{value}" if state else value
    return None if header is None else read_traceparent(header, state)
