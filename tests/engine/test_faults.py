"""Faults: what a line may say, what it then does, and when it is over."""

from __future__ import annotations

import errno
import os
import re
import resource
import tempfile
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemodel.errors import UsageError
from engine.clock import now_ns
from engine.faults import COMPUTED, LAYERS, LOADED, MOST_ON, NOTHING, OWN, Faults, Fired


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("layer", LAYERS)
def test_a_delay_strikes_its_layer_and_no_other(layer: str) -> None:
    faults = Faults()
    spec = f"layer={layer},delay_ms=5"
    faults.add(spec)
    assert faults.fire(layer) == Fired(0.005, 1.0, spec)
    assert {faults.fire(other) for other in LAYERS if other != layer} == {NOTHING}


@pytest.mark.parametrize("layer", COMPUTED)
def test_a_slowdown_is_a_factor(layer: str) -> None:
    faults = Faults()
    faults.add(f"layer={layer},slowdown=2.5")
    assert faults.fire(layer) == Fired(0.0, 2.5, f"layer={layer},slowdown=2.5")


@pytest.mark.parametrize("layer", LOADED)
def test_a_load_can_fail(layer: str) -> None:
    faults = Faults()
    faults.add(f"layer={layer},fail=1")
    assert faults.fire(layer) == Fired(0.0, 1.0, f"layer={layer},fail=1", True)


@given(st.floats(0.05, 0.95))
def test_loads_fail_as_often_as_asked(share: float) -> None:
    faults = Faults()
    faults.add(f"layer=host,fail={share}")
    faults.add("layer=host,delay_ms=1")
    fired = [faults.fire("host") for _ in range(2000)]
    assert {one.delay_s for one in fired} == {0.001}
    assert sum(one.fails for one in fired) / 2000 == pytest.approx(share, abs=0.06)  # more than five sigma


def test_faults_of_one_layer_add_up() -> None:
    faults = Faults()
    for spec in ("layer=decode,delay_ms=5", "layer=decode,delay_ms=10", "layer=decode,slowdown=2", "evict=1"):
        faults.add(spec)
    faults.add("layer=decode,slowdown=3")
    delay_s, slowdown, mark, *_ = faults.fire("decode")
    assert delay_s == pytest.approx(0.015)
    assert slowdown == 6.0
    assert mark.split("; ") == [fault.spec for fault in faults.active() if fault.layer]


@given(st.floats(0.05, 0.95), st.integers(0, 2**32))
def test_chance_is_what_was_asked_for_and_comes_again(p: float, seed: int) -> None:
    drawn = []
    for _ in range(2):
        faults = Faults(seed)
        faults.add(f"layer=host,delay_ms=1,p={p}")
        drawn.append([faults.fire("host") is not NOTHING for _ in range(2000)])
    assert drawn[0] == drawn[1]
    assert sum(drawn[0]) / 2000 == pytest.approx(p, abs=0.06)  # more than five sigma


def test_a_fault_is_over_when_its_time_is() -> None:
    clock = Clock()
    faults = Faults(clock=clock)
    faults.add("layer=queue,delay_ms=5,for_s=30")
    faults.add("device_blocks=64,for_s=60")
    clock.now += 29.9
    assert faults.fire("queue").delay_s == 0.005
    clock.now += 0.1
    assert faults.fire("queue") is NOTHING
    assert [fault.kind for fault in faults.active()] == ["device_blocks"]
    clock.now += 30
    assert faults.device_blocks() is None
    assert faults.active() == ()


def test_an_evict_storm_comes_again_at_its_interval() -> None:
    clock = Clock()
    faults = Faults(clock=clock)
    faults.add("evict=0.5,every_s=2")
    shares = []
    for _ in range(6):
        shares.append(faults.evict_share())
        clock.now += 1
    assert shares == [0.5, 0.0, 0.5, 0.0, 0.5, 0.0]


def test_two_storms_leave_what_both_leave() -> None:
    faults = Faults()
    faults.add("evict=0.5")
    faults.add("evict=0.2")
    assert faults.evict_share() == pytest.approx(0.6)
    assert faults.evict_share() == 0.0


def test_the_smallest_pool_counts() -> None:
    faults = Faults()
    assert faults.device_blocks() is None
    first = faults.add("device_blocks=64")
    second = faults.add("device_blocks=16")
    assert faults.device_blocks() == 16
    assert faults.remove(second.id)
    assert faults.device_blocks() == 64
    assert not faults.remove(second.id)
    assert faults.remove(first.id)
    assert faults.device_blocks() is None


def test_slow_devices_add_up() -> None:
    faults = Faults()
    assert faults.pass_s(100) == 0.0
    first = faults.add("step_ms=12")
    faults.add("step_ms=3")
    assert faults.pass_s(100) == pytest.approx(0.015)
    faults.add("token_ms=0.2")
    assert faults.remove(first.id)
    assert faults.pass_s(100) == pytest.approx(0.023)


def test_events_are_lost_as_often_as_asked() -> None:
    faults = Faults(seed=1)
    assert not any(faults.loses_events() for _ in range(100))
    faults.add("lose_events=0.25")
    assert 400 < sum(faults.loses_events() for _ in range(2000)) < 600


def test_clearing_switches_all_off() -> None:
    faults = Faults()
    for spec in ("evict=1", "lose_events=1", "device_blocks=1", "layer=other,delay_ms=1"):
        faults.add(spec)
    faults.clear()
    assert (faults.evict_share(), faults.loses_events(), faults.device_blocks()) == (0.0, False, None)
    assert faults.fire("other") is NOTHING
    assert faults.active() == ()


def test_the_line_is_the_mark_and_ids_are_never_used_twice() -> None:
    faults = Faults()
    first = faults.add(" layer = host , delay_ms = 5 ")
    assert faults.remove(first.id)
    second = faults.add("layer=host,delay_ms=5")
    assert first.id != second.id
    assert faults.fire("host").mark == "layer=host,delay_ms=5"


WRONG = {
    "": "is not key=value",
    "layer=host": "say one of delay_ms, slowdown, fail, evict, device_blocks, step_ms, token_ms, lose_events",
    "evict=0.5,lose_events=0.5": "say one of",
    "delay_ms=5": "needs layer=frontend|queue|prefix|host|remote|prefill|decode|other",
    "layer=response,delay_ms=5": "there is no layer 'response'; there are frontend, queue, prefix, host, remote",
    "layer=foo": "there is no layer 'foo'",
    "layer=host,slowdown=2": "slowdown needs layer=prefill|decode",
    "layer=host,delay_ms=0": "milliseconds above 0",
    "layer=host,delay_ms=-1": "milliseconds above 0",
    "layer=host,delay_ms=nan": "milliseconds above 0",
    "layer=host,delay_ms=inf": "milliseconds above 0",
    "layer=host,delay_ms=5ms": "delay_ms is milliseconds above 0, at most 600000, not 5ms",
    "layer=host,delay_ms=5,p=2": "p is above 0 and at most 1, not 2",
    "layer=decode,slowdown=1": "a factor above 1",
    "layer=host,delay_ms=5,delay_ms=6": "delay_ms stands there twice",
    "layer=host,delay=5": "nothing is called delay",
    "layer=host,delay_ms=5,every_s=1": "every_s does not go with delay_ms, only layer, p, for_s",
    "evict=1.1": "above 0 and at most 1",
    "device_blocks=1.5": "a whole number of blocks",
    "device_blocks=0": "a whole number of blocks",
    "layer=host,delay_ms=5,": "is not key=value",
    "evict=0.5,for_s=0": "seconds above 0",
}


@pytest.mark.parametrize("spec", WRONG)
def test_a_line_that_says_no_fault_is_refused_with_what_is_allowed(spec: str) -> None:
    faults = Faults()
    with pytest.raises(UsageError, match=re.escape(WRONG[spec])) as refused:
        faults.add(spec)
    assert str(refused.value).isprintable()
    assert faults.active() == ()


@given(st.text(max_size=60))
def test_whatever_is_typed_is_a_fault_or_one_clear_line(spec: str) -> None:
    told = ""
    try:
        Faults().add(spec)
    except UsageError as refused:
        told = str(refused)
    assert told.isprintable()


def test_it_is_known_afterwards_when_a_fault_of_the_cache_was_on() -> None:
    faults = Faults()
    before = now_ns()
    assert faults.during(before, before) == ()
    first = faults.add("evict=0.5")
    faults.add("layer=host,delay_ms=5")
    between = now_ns()
    faults.remove(first.id)
    time.sleep(0.001)
    after = now_ns()
    faults.add("device_blocks=9")
    late = now_ns()
    assert faults.during(before, before) == ()
    assert faults.during(before, between) == faults.during(between, after) == ("evict=0.5",)
    assert faults.during(after, after) == ()
    assert faults.during(late, late + 10**12) == ("device_blocks=9",)
    assert faults.during(before, late) == ("evict=0.5", "device_blocks=9")


def test_switching_while_it_is_used() -> None:
    """Readers take no lock: they see what was on before or after, never half of it."""
    faults, marks, stopping = Faults(), set(), threading.Event()

    def read() -> None:
        while not stopping.is_set():
            marks.add(faults.fire("host").mark)
            faults.evict_share(), faults.device_blocks(), faults.active()

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for _ in range(300):
        kept = faults.add("layer=host,delay_ms=1,for_s=0.001")
        faults.add("evict=0.1")
        faults.remove(kept.id)
        faults.clear()
    stopping.set()
    for reader in readers:
        reader.join()
    assert marks <= {"", "layer=host,delay_ms=1,for_s=0.001"}
    assert faults.active() == ()


def test_there_is_an_end_to_how_many_are_on() -> None:
    clock = Clock()
    faults = Faults(clock=clock)
    for _ in range(MOST_ON):
        faults.add("layer=decode,delay_ms=1,for_s=10")
    with pytest.raises(UsageError, match=f"{MOST_ON} faults are on already"):
        faults.add("evict=1")
    clock.now += 10
    faults.add("evict=1")
    assert [fault.kind for fault in faults.active()] == ["evict"]


def test_who_waits_one_out_goes_on_when_all_are_cleared() -> None:
    faults, waited = Faults(), []
    faults.add("layer=decode,delay_ms=600000")
    waiting = threading.Thread(target=lambda: waited.append(faults.wait(600)))
    waiting.start()
    time.sleep(0.05)
    faults.clear()  # whether it waits already or not yet
    waiting.join(60)
    assert waited[0] < 60
    assert faults.wait(600) == 0.0  # cleared between firing and waiting
    faults.add("layer=decode,delay_ms=50")
    assert faults.wait(0.05) == 0.05  # and the next one waits again


@pytest.mark.parametrize("layer", OWN)
def test_memory_is_touched_for_requests_of_one_salt(layer: str) -> None:
    faults = Faults()
    spec = f"layer={layer},cold_mb=0.5,salt=team-a"
    faults.add(spec)
    faults.add(f"layer={layer},unmap_mb=2")
    both = Fired(0.0, 1.0, f"{spec}; layer={layer},unmap_mb=2", False, 1 << 19, 2 << 20)
    assert faults.fire(layer, "team-a") == both
    assert {faults.fire(layer, salt).cold_bytes for salt in ("", "team-b")} == {0}


@pytest.mark.parametrize("layer", sorted(set(LAYERS) - set(OWN)))
def test_no_memory_is_touched_where_no_request_is_alone(layer: str) -> None:
    with pytest.raises(UsageError, match=r"cold_mb needs layer=prefix\|host\|prefill"):
        Faults().add(f"layer={layer},cold_mb=1")


def test_a_cold_megabyte_is_256_pages_from_the_disk_again_and_again() -> None:
    faults = Faults()
    faults.add("layer=prefix,cold_mb=1")
    if _on_tmpfs():
        pytest.skip(
            "temporary files lie in memory here, where no page is cold: set TMPDIR to a folder on a disk"
        )
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_THREAD)
        assert faults.touch(faults.fire("prefix")) > 0
        after = resource.getrusage(resource.RUSAGE_THREAD)
        assert after.ru_majflt - before.ru_majflt == (1 << 20) / resource.getpagesize()


def test_unmapping_costs_a_minor_fault_a_page() -> None:
    faults = Faults()
    faults.add("layer=host,unmap_mb=1")
    before = resource.getrusage(resource.RUSAGE_THREAD)
    faults.touch(faults.fire("host"))
    after = resource.getrusage(resource.RUSAGE_THREAD)
    pages = (1 << 20) / resource.getpagesize()
    assert pages <= after.ru_minflt - before.ru_minflt <= pages + 64  # and a few of Python's own


def test_a_file_that_has_no_room_is_refused_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    faults = Faults()

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UsageError, match="no room for a file of 3 MB: No space left"):
        faults.add("layer=prefix,cold_mb=3")
    assert faults.active() == ()


def _on_tmpfs() -> bool:
    where, kinds = os.path.realpath(tempfile.gettempdir()), {}
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mount, kind, *_ = line.split()
        if where == mount or where.startswith(mount.rstrip("/") + "/"):
            kinds[len(mount)] = kind
    return kinds[max(kinds)] == "tmpfs"
