"""What goes wrong on purpose, switchable while the engine runs. A fault is one line:

    layer=host,delay_ms=5[,p=0.1]       every passage of a serving layer (one in ten) waits 5 ms
    layer=decode,slowdown=2[,p=0.1]     the decoder takes twice its time in steps with prefill or decode in them
    evict=0.5[,every_s=2]               half of the device's cached blocks go, every 2 seconds (1 unless told)
    device_blocks=64                    no more than 64 blocks of the device may be used
    step_ms=12                          every pass over the device takes 12 ms longer, whoever is in it
    token_ms=0.2                        and 0.2 ms longer for each prompt token that it computes
    lose_events=0.1                     one in ten batches of KV events is lost, its number used up
    layer=prefix,cold_mb=1[,salt=S]     every passage (of requests with that salt) reads a megabyte of a file that no
                                        cache holds, through a mapping: major page faults. `prefix`, `host`, `prefill`
    layer=prefix,unmap_mb=8[,salt=S]    every passage maps, writes and unmaps so much beside a busy thread: minor
                                        page faults, and TLB shootdowns
    layer=host,fail=1                   no load from the host comes through (of `remote`: from the disk); its tokens
                                        are computed, and the blocks stay where they are

and each may end with `for_s=30`: it is over after 30 seconds. A slow disk is a delay of `remote`.
"""

from __future__ import annotations

import itertools
import math
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from cachemodel.errors import UsageError
from engine.clock import now_ns
from engine.faults.memory import MEGABYTE, Memory
from engine.faults.spec import COMPUTED, KINDS, LAYERS, LOADED, OWN, Fault, parse

__all__ = ["COMPUTED", "KINDS", "LAYERS", "LOADED", "NOTHING", "OWN", "Fault", "Faults", "Fired"]


class Fired(NamedTuple):
    """What the faults of a layer do this time. delay_s: seconds to wait; slowdown: factor on the work's own time;
    mark: which faults, for spans; empty where none fired. fails: the load comes to nothing, at once. cold_bytes: to be
    read from a file that no cache holds; unmap_bytes: to be mapped, written and unmapped."""

    delay_s: float = 0.0
    slowdown: float = 1.0
    mark: str = ""
    fails: bool = False
    cold_bytes: int = 0
    unmap_bytes: int = 0


NOTHING = Fired()
_OF_ALL = (
    "evict",
    "device_blocks",
    "step_ms",
    "token_ms",
)  # they strike whoever runs, and no layer in particular
_MOST_SPELLS = 1000
MOST_ON = 64  # each is drawn in every step, and named on every span it strikes


@dataclass(slots=True)
class _On:
    """What is on, replaced as a whole and never changed, so that it is read without a lock."""

    ends_at: dict[Fault, float] = field(default_factory=dict)
    by_layer: dict[str, tuple[Fault, ...]] = field(default_factory=dict)
    by_kind: dict[str, tuple[Fault, ...]] = field(default_factory=dict)
    first_end: float = math.inf


@dataclass(slots=True)
class _Spell:
    """When a fault that strikes all was on, Unix nanoseconds."""

    fault: Fault
    start_ns: int
    end_ns: float = math.inf


class Faults:
    """The faults that are on. Thread-safe; nothing is locked, drawn or measured where none is.

    seed: of what is left to chance. clock: seconds that never go back.
    """

    def __init__(self, seed: int = 0, clock: Callable[[], float] = time.monotonic) -> None:
        self._random = random.Random(seed)  # noqa: S311 - chance, not secrets
        self._clock = clock
        self._lock = threading.Lock()
        self._ids = itertools.count(1)
        self._on = _On()
        self._evicts_at: dict[int, float] = {}
        self._spells: deque[_Spell] = deque(maxlen=_MOST_SPELLS)
        self._cleared = threading.Event()
        self._memory = Memory()

    def add(self, spec: str) -> Fault:
        """Switch a fault on. Raises UsageError with what is allowed where the line says none, or too many are on."""
        fault = parse(spec, next(self._ids))
        self._prepare(fault)
        self._now()
        with self._lock:
            if len(self._on.ends_at) >= MOST_ON:
                raise UsageError(f"{MOST_ON} faults are on already: clear them first")
            self._set({**self._on.ends_at, fault: self._clock() + fault.for_s})
        return fault

    def remove(self, fault_id: int) -> bool:
        """Switch one off; False where none has that id."""
        with self._lock:
            left = {fault: end for fault, end in self._on.ends_at.items() if fault.id != fault_id}
            found = len(left) < len(self._on.ends_at)
            self._set(left)
        return found

    def clear(self) -> None:
        """Switch all off, and let go on who is in `wait`."""
        with self._lock:
            self._set({})
            cleared, self._cleared = self._cleared, threading.Event()
        cleared.set()

    def wait(self, seconds: float) -> float:
        """Wait out what fired, on this thread, until all are cleared; returns the seconds that it waited.

        At once where nothing is on: what fired was cleared in the meantime.
        """
        with self._lock:
            cleared = self._cleared if self._on.ends_at else None
        if cleared is None or seconds <= 0:
            return 0.0
        began = time.monotonic()
        return min(seconds, time.monotonic() - began) if cleared.wait(seconds) else seconds

    def touch(self, fired: Fired) -> float:
        """Do to memory what fired says, on this thread, which pays for it; returns the seconds that it took."""
        if not fired.cold_bytes and not fired.unmap_bytes:
            return 0.0
        began = time.monotonic()
        if fired.cold_bytes:
            self._memory.read_cold(fired.cold_bytes)
        if fired.unmap_bytes:
            self._memory.unmap(fired.unmap_bytes)
        return time.monotonic() - began

    def active(self) -> tuple[Fault, ...]:
        """Those that are on, in the order in which they came."""
        return tuple(self._now().ends_at)

    def fire(self, layer: str, salt: str = "") -> Fired:
        """Draw the faults of a serving layer for one passage: a lookup, a load, a chunk of prefill, a decode step.

        salt: of the request that passes, empty for many. Delays and memory add up, slowdowns multiply.
        """
        if layer not in self._on.by_layer:
            return NOTHING
        of_layer = self._now().by_layer.get(layer, ())
        fired = [f for f in of_layer if f.salt in ("", salt) and self._draws(_chance(f))]
        if not fired:
            return NOTHING
        sums = {
            kind: math.fsum(fault.amount for fault in fired if fault.kind == kind)
            for kind in ("delay_ms", "cold_mb", "unmap_mb")
        }
        return Fired(
            sums["delay_ms"] / 1e3,
            math.prod(fault.amount for fault in fired if fault.kind == "slowdown"),
            "; ".join(fault.spec for fault in fired),
            any(fault.kind == "fail" for fault in fired),
            int(sums["cold_mb"] * MEGABYTE),
            int(sums["unmap_mb"] * MEGABYTE),
        )

    def evict_share(self) -> float:
        """Share of the device's cached blocks to evict before this step; 0.0 for none."""
        if "evict" not in self._on.by_kind:
            return 0.0
        stays, now = 1.0, self._clock()
        for fault in self._now().by_kind.get("evict", ()):
            if now >= self._evicts_at.get(fault.id, -math.inf):
                self._evicts_at[fault.id] = now + fault.every_s
                stays *= 1 - fault.amount
        return 1 - stays

    def device_blocks(self) -> int | None:
        """How many device blocks may be used now, None where no fault takes any."""
        if "device_blocks" not in self._on.by_kind:
            return None
        return min(
            (int(fault.amount) for fault in self._now().by_kind.get("device_blocks", ())), default=None
        )

    def pass_s(self, prompt_tokens: int) -> float:
        """Seconds that a pass over the device takes longer which computes so many prompt tokens."""
        if "step_ms" not in self._on.by_kind and "token_ms" not in self._on.by_kind:
            return 0.0
        by_kind = self._now().by_kind
        step_ms, token_ms = (
            math.fsum(fault.amount for fault in by_kind.get(kind, ())) for kind in ("step_ms", "token_ms")
        )
        return (step_ms + token_ms * prompt_tokens) / 1e3

    def loses_events(self) -> bool:
        """Whether this batch of KV events is lost on its way out (its sequence number is used up)."""
        if "lose_events" not in self._on.by_kind:
            return False
        return any(self._draws(fault.amount) for fault in self._now().by_kind.get("lose_events", ()))

    def during(self, start_ns: int, end_ns: int) -> tuple[str, ...]:
        """The faults that strike all and were on for some of this time (Unix nanoseconds), as marks."""
        if not self._spells:
            return ()
        self._now()
        with self._lock:
            spells = [s for s in self._spells if s.start_ns <= end_ns and s.end_ns >= start_ns]
        return tuple(dict.fromkeys(spell.fault.spec for spell in spells))

    def _prepare(self, fault: Fault) -> None:
        """While whoever asks can still be told that it cannot be."""
        if fault.kind == "cold_mb":
            together = sum(on.amount for on in self._on.by_kind.get("cold_mb", ())) + fault.amount
            try:
                self._memory.prepare(int(together * MEGABYTE))
            except OSError as error:
                raise UsageError(
                    f"there is no room for a file of {together:g} MB: {error.strerror}"
                ) from None

    def _draws(self, probability: float) -> bool:
        return probability >= 1 or self._random.random() < probability

    def _now(self) -> _On:
        """What is on, without what is over."""
        if self._clock() >= self._on.first_end:
            with self._lock:
                now = self._clock()
                self._set({fault: end for fault, end in self._on.ends_at.items() if now < end})
        return self._on

    def _set(self, ends_at: dict[Fault, float]) -> None:
        """With the lock held."""
        now = now_ns()
        for spell in self._spells:
            if spell.fault not in ends_at:
                spell.end_ns = min(spell.end_ns, now)
        came = (fault for fault in ends_at if fault not in self._on.ends_at)
        self._spells.extend(_Spell(fault, now) for fault in came if fault.kind in _OF_ALL)
        on = _On(ends_at, first_end=min(ends_at.values(), default=math.inf))
        for fault in ends_at:
            if fault.layer:
                on.by_layer[fault.layer] = (*on.by_layer.get(fault.layer, ()), fault)
            on.by_kind[fault.kind] = (*on.by_kind.get(fault.kind, ()), fault)
        self._on = on
        self._evicts_at = {fault.id: self._evicts_at.get(fault.id, -math.inf) for fault in ends_at}


def _chance(fault: Fault) -> float:
    """That it strikes a passage of its layer."""
    return fault.amount if fault.kind == "fail" else fault.p
