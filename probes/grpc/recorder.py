"""Where calls go when they end, and the thread that tells them to the OpenTelemetry SDK.

The ring is a deque with a bound of ours. Measured against a preallocated list of slots with a counter and against
struct.pack_into a bytearray (benchmarks/probes_grpc.py --rings), it is the cheapest, and its append and popleft are
atomic by the documentation of collections, with the GIL and without it, so that no record can be seen half written.
Full means that the newest call is dropped and counted: what is there tells how the overload began.
"""

from __future__ import annotations

import atexit
import copy
import logging
import os
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Iterable

from opentelemetry import metrics, trace
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.trace import Tracer
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import SpanKind

from .call import SAMPLED, Call, Light, Method, Parent, Unsampled, bits
from .sampling import ALL, bound_of, rate_of
from .spans import SCOPE, SENSOR, GivenIds, tell, wants_all

LOST = "hitmap.probe.lost"
EXIT_WAIT_S = 2.0
GIVE_WAY = 8
"""Spans that the thread makes before it hands the GIL on: a call waits for so many at most."""

_log = logging.getLogger(__name__)
_all: weakref.WeakSet[Recorder] = weakref.WeakSet()


class Recorder:
    """Takes the calls of any number of interceptors.

    tracer_provider: OpenTelemetry SDK's; the global one by default, also where that is set later. sample: share of the
    calls without a parent that become spans; by default the rate of the provider's sampler (a sampler of your own is
    asked when a call has ended). A call with a parent follows the parent's flag. capacity: calls that wait for the
    thread, a few hundred bytes each. interval_s: how often the thread looks; half a full ring calls it too.

    A forked child starts empty and with a thread of its own: what waited is told by its parent, once.
    """

    def __init__(
        self,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
        *,
        sample: float | None = None,
        capacity: int = 16_384,
        interval_s: float = 0.1,
    ) -> None:
        if capacity < 1 or interval_s <= 0:
            raise ValueError(f"capacity={capacity}, interval_s={interval_s}: both must be above zero")
        self._bound = ALL if sample is None else bound_of(sample)
        self._sample = sample
        self._provider = tracer_provider
        self._capacity = capacity
        self._room = capacity // 2  # above it the thread is told to look
        self._interval_s = interval_s
        self._ring: deque[Call] = deque()
        self._ids = GivenIds()
        self._tracer: Tracer | None = None
        self._settled = True  # whether a call is sampled was decided when it began
        self._lost: Counter[str] = Counter()
        self.closed = False
        self._renew()
        self._meter = _watch(self, meter_provider)
        _all.add(self)

    def _renew(self) -> None:
        """All that a forked child must not share with its parent. A lock may be held by a thread that is not here."""
        self._thread: threading.Thread | None = None
        self._look = threading.Event()
        self._starting = threading.Lock()
        self._telling = threading.Lock()
        self._counting = threading.RLock()  # a collected stream may count in the middle of counting

    def forked(self) -> None:
        """In a child: forget what the parent tells."""
        self._ring.clear()
        self._lost.clear()
        self._renew()

    # the hot path

    def begin(self, method: Method, parent: Parent | None) -> Light:
        """The call's span, a `Call` where it is sampled."""
        if self._thread is None:
            self._start()
        if parent is None:
            low = bits(64)
            if low < self._bound:
                return Call(method, bits(64) << 64 | low or 1, bits(64) or 1, SAMPLED, None)
            if method.kind is SpanKind.CLIENT:  # its ids go over the wire in any case
                return Light(bits(64) << 64 | low or 1, bits(64) or 1)
            span: Unsampled = Unsampled()
            span.low = low
            return span
        if parent.flags & SAMPLED:
            return Call(method, parent.trace_id, bits(64) or 1, parent.flags, parent)
        return Light(parent.trace_id, parent.span_id, parent.flags, parent.state)

    def end(self, call: Call, code: object) -> None:
        """Once: what ends a call a second time is ignored. code: as grpc has it; None is OK."""
        if call.end_ns:
            return
        call.end_ns = time.monotonic_ns()
        call.code = code
        waiting = len(self._ring)
        if waiting < self._room:
            self._ring.append(call)
        elif waiting < self._capacity and not self.closed:
            self._ring.append(call)
            self._look.set()
        else:
            self.lose("closed" if self.closed else "ring_full")

    # the rest

    def lose(self, reason: str, count: int = 1) -> None:
        """Count what is not told, by why."""
        with self._counting:
            self._lost[reason] += count
            first = self._lost[reason] == count
        if first:
            _log.warning("gRPC probe: lost, %s (told once; counted in %s)", reason, LOST)

    @property
    def lost(self) -> dict[str, int]:
        """Spans and facts that were not told, by reason: ring_full, closed, no_provider, sdk, notes,
        cache_key_field, cache_key_callback, cache_hit_value, cache_hit_callback."""
        with self._counting:
            return dict(self._lost)

    @property
    def waiting(self) -> int:
        """Calls that ended and are not told yet."""
        return len(self._ring)

    def flush(self, timeout_s: float = 30.0) -> bool:
        """Tell all that has ended, then have the provider export it. False where time ran out."""
        until = time.monotonic() + timeout_s
        if not self._tell_all(until):
            return False
        provider = self._provider or trace.get_tracer_provider()
        force = getattr(provider, "force_flush", None)
        left_ms = max(0, int((until - time.monotonic()) * 1000))
        return force is None or bool(force(left_ms))

    def close(self) -> None:
        """Tell what is there and stop; calls that end later are counted as lost. Can be called again."""
        self.closed = True
        self._room = 0
        self._look.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(EXIT_WAIT_S)
        self._tell_all(time.monotonic() + EXIT_WAIT_S)
        atexit.unregister(self.close)

    def _start(self) -> None:
        with self._starting:
            if self._thread is not None or self.closed:
                return
            self._resolve()
            # exit runs backwards: what registers after the provider tells its calls before that shuts down
            atexit.unregister(self.close)
            atexit.register(self.close)
            thread = threading.Thread(target=_run, args=(weakref.ref(self), self._look, self._interval_s))
            thread.name, thread.daemon = "hitmap-grpc", True
            thread.start()
            self._thread = thread

    def _resolve(self) -> Tracer | None:
        """The tracer, once there is an SDK's provider. A copy of ours: its ids and sampling were settled before."""
        if self._tracer is None:
            provider = self._provider or trace.get_tracer_provider()
            tracer = provider.get_tracer(SCOPE, attributes=SENSOR)
            if isinstance(tracer, Tracer):
                tracer = copy.copy(tracer)
                rate = rate_of(provider) if self._sample is None else self._sample
                if rate is not None:
                    self._bound = bound_of(rate)
                    tracer.sampler = ALWAYS_ON
                self._settled = rate is not None
                tracer.id_generator = self._ids
                self._tracer = tracer
                atexit.unregister(self.close)
                atexit.register(self.close)
        return self._tracer

    def _tell_all(self, until: float) -> bool:
        """One thread at a time, so that `flush` returns when all is told. False where `until` came first."""
        if not self._telling.acquire(timeout=max(0.0, until - time.monotonic())):
            return False
        try:
            tracer = self._resolve() if self._ring else None
            whole = tracer is not None and (not self._settled or wants_all(tracer.span_processor))
            offset_ns = time.time_ns() - time.monotonic_ns()
            for n in range(len(self._ring)):
                self._tell(self._ring.popleft(), tracer, offset_ns, whole)
                if time.monotonic() > until:
                    return False
                if n % GIVE_WAY == 0 and len(self._ring) < self._room:
                    time.sleep(0)
            return True
        finally:
            self._telling.release()

    def _tell(self, call: Call, tracer: Tracer | None, offset_ns: int, whole: bool) -> None:
        if tracer is None:
            self.lose("no_provider")
            return
        if call.skipped:
            self.lose("notes", call.skipped)
        try:
            tell(call, tracer, self._ids, offset_ns, whole)
        except Exception:  # a processor of the user's, or the SDK: the other calls go on
            self.lose("sdk")


def _run(recorder: weakref.ref[Recorder], look: threading.Event, interval_s: float) -> None:
    """Holds no recorder while it waits: one that nobody has any more ends its thread."""
    while True:
        look.wait(interval_s)
        look.clear()
        alive = recorder()
        if alive is None or alive.closed:
            return
        alive._tell_all(time.monotonic() + 3600)
        del alive


def _watch(recorder: Recorder, provider: metrics.MeterProvider | None) -> object:
    """hitmap.probe.lost of this recorder, read by the metrics SDK where there is one."""
    known = weakref.ref(recorder)

    def lost(_: CallbackOptions) -> Iterable[Observation]:
        alive = known()
        return [Observation(n, {"reason": why}) for why, n in alive.lost.items()] if alive else ()

    meter = metrics.get_meter(SCOPE, meter_provider=provider)
    return meter.create_observable_counter(
        LOST, callbacks=[lost], unit="{point}", description="what it could not send or count, by why"
    )


def _after_fork() -> None:
    for recorder in list(_all):
        recorder.forked()


os.register_at_fork(after_in_child=_after_fork)
