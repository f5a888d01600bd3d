"""The current span of OpenTelemetry, set and reset in one step each.

OpenTelemetry's own functions do the same in a dozen; that is half of what an interceptor would cost. Where a process
has another runtime context than OpenTelemetry's usual one (OTEL_PYTHON_CONTEXT), they are used.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from opentelemetry import context as otel
from opentelemetry import trace
from opentelemetry.context import Context

KEY = next(iter(trace.set_span_in_context(trace.INVALID_SPAN, Context())))

_variable: ContextVar[Context] | None = getattr(otel._RUNTIME_CONTEXT, "_current_context", None)

now: Callable[[], Context] = otel.get_current if _variable is None else _variable.get
"""The current context."""
enter: Callable[[Context], Any] = otel.attach if _variable is None else _variable.set
"""Make a context current; returns what `leave` wants, in the same thread or task."""
leave: Callable[[Any], None] = otel.detach if _variable is None else _variable.reset
"""The context before."""


def with_span(span: trace.Span, around: Context) -> Context:
    """A context in which the span is the current one."""
    return Context({**around, KEY: span}) if around else Context({KEY: span})


def span_of(around: Context) -> trace.Span | None:
    """The current span of a context."""
    span = around.get(KEY)
    return span if isinstance(span, trace.Span) else None
