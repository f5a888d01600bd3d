"""Events of all threads of a process: this kernel's own software events, and refusals of another."""

from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path

import pytest

from probes.perf import events
from probes.perf.counters import ProcessCounters
from probes.perf.events import SOFTWARE, Event, Refusal, Refused, Syscalls
from tests.probes.conftest import Worker
from tests.probes.perf.fake import FakeKernel, Opened

MINOR, MAJOR = Event("minor", SOFTWARE, 5), Event("major", SOFTWARE, 6)
GROUP = (MINOR, MAJOR)
PAGES = 2000
FEW = 200


@pytest.fixture(scope="module")
def software() -> None:
    try:
        opened = events.open_group(Syscalls(), GROUP, 0, user_only_will_do=False)
    except Refused as refused:
        pytest.skip(f"perf events: {refused}; needs CAP_PERFMON or kernel.perf_event_paranoid=1")
    for fd in opened.fds:
        os.close(fd)


@pytest.mark.usefixtures("software")
@pytest.mark.parametrize("by_thread", [False, True])
def test_faults_of_a_process(worker: Worker, other: Worker, by_thread: bool) -> None:
    counters = ProcessCounters(worker.pid, [GROUP], threads=by_thread)
    other.do("read", PAGES)
    worker.do("read", PAGES)
    counters.read()
    counts = counters.process()
    assert PAGES <= counts[MINOR].value <= PAGES + FEW
    assert counts[MAJOR] == (0, 1.0)
    assert not counters.refusals
    counters.close()
    counters.close()


@pytest.mark.usefixtures("software")
def test_inherited_counters_miss_no_thread(worker: Worker) -> None:
    counters = ProcessCounters(worker.pid, [GROUP], threads=False)
    worker.do("short", 100)
    worker.do("thread", PAGES)
    counters.read()
    assert PAGES + 100 <= counters.process()[MINOR].value <= PAGES + 100 + 10 * FEW
    counters.close()


@pytest.mark.usefixtures("software")
def test_by_thread_each_has_its_own(worker: Worker) -> None:
    worker.do("idle", 5)
    counters = ProcessCounters(worker.pid, [GROUP], threads=True)
    worker.do("read", PAGES)
    counters.read()
    by_thread = {tid: counts[MINOR].value for tid, counts in counters.threads().items()}
    assert len(by_thread) == 6
    assert PAGES <= by_thread.pop(worker.pid) <= PAGES + FEW
    assert sum(by_thread.values()) <= FEW
    worker.do("idle", 3)
    counters.read()
    assert len(counters.threads()) == 9, "new threads are found"
    counters.close()


@pytest.mark.usefixtures("software")
def test_an_ended_thread_stays_in_the_total() -> None:
    started, stop = threading.Event(), threading.Event()

    def touch() -> None:
        started.set()
        stop.wait()

    one = threading.Thread(target=touch)
    one.start()
    started.wait()
    counters = ProcessCounters(os.getpid(), [GROUP], threads=True)
    tid = one.native_id
    counters.read()
    before = counters.process()[MINOR].value
    stop.set()
    one.join()
    while Path(f"/proc/self/task/{tid}").exists():  # Python is done with it a little before the kernel
        time.sleep(0.001)
    counters.read()
    assert tid not in counters.threads()
    assert counters.process()[MINOR].value >= before
    counters.close()


@pytest.mark.usefixtures("software")
def test_an_ended_process_keeps_its_counts_and_no_stranger_joins(worker: Worker) -> None:
    counters = ProcessCounters(worker.pid, [GROUP], threads=True)
    worker.do("read", PAGES)
    assert not counters.ended
    worker.end()
    counters.read()
    assert counters.ended
    assert counters.process()[MINOR].value >= PAGES
    counters.close()


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (errno.ENOENT, Refusal.UNSUPPORTED),
        (errno.EOPNOTSUPP, Refusal.UNSUPPORTED),
        (errno.EACCES, Refusal.DENIED),
        (errno.EMFILE, Refusal.FULL),
        (errno.EINVAL, Refusal.FAILED),
    ],
)
def test_a_refusal_is_kept_with_its_meaning(code: int, why: Refusal) -> None:
    kernel = FakeKernel(refuse=lambda event: code)
    counters = ProcessCounters(os.getpid(), [GROUP], threads=True, kernel=kernel)
    counters.read()
    assert counters.refusals[GROUP].why is why
    assert counters.process() == {}
    assert not kernel.open_now


def test_denied_is_asked_again_without_the_kernels_part() -> None:
    def refuse(event: Opened) -> int:
        return 0 if event.flags & 1 << 5 else errno.EACCES

    kernel = FakeKernel(refuse=refuse)
    counters = ProcessCounters(os.getpid(), [GROUP], threads=True, kernel=kernel)
    assert counters.user_only
    counters.close()
    strict = ProcessCounters(os.getpid(), [GROUP], threads=True, kernel=kernel, user_only_will_do=False)
    assert strict.refusals[GROUP].why is Refusal.DENIED
    strict.close()


def test_denied_hides_that_there_is_none() -> None:
    """Without privilege EACCES comes first; the second question brings the truth."""
    kernel = FakeKernel(refuse=lambda event: errno.ENOENT if event.flags & 1 << 5 else errno.EACCES)
    with pytest.raises(Refused) as refused:
        events.open_group(kernel, GROUP, 0)
    assert refused.value.why is Refusal.UNSUPPORTED


def test_half_a_group_is_let_go() -> None:
    kernel = FakeKernel(refuse=lambda event: errno.ENOENT if event.config == 6 else 0)
    with pytest.raises(Refused):
        events.open_group(kernel, GROUP, 0)
    assert not kernel.open_now


def test_descriptors_that_run_out_leave_whole_counts(worker: Worker) -> None:
    worker.do("idle", 9)
    kernel = FakeKernel(limit=7)
    counters = ProcessCounters(worker.pid, [GROUP], threads=True, kernel=kernel)
    kernel.run(100)
    counters.read()
    counters.read()
    assert len(counters.threads()) == 3
    assert counters.uncounted == 7
    assert counters.refusals[GROUP].why is Refusal.FULL
    assert all(counts[MINOR].value == 200 for counts in counters.threads().values())
    counters.close()
    assert not kernel.open_now


def test_an_old_kernel_inherits_without_the_newer_flag() -> None:
    kernel = FakeKernel(refuse=lambda event: errno.EINVAL if event.flags >> 35 & 1 else 0)
    counters = ProcessCounters(os.getpid(), [GROUP], threads=False, kernel=kernel)
    assert not counters.refusals
    assert {event.flags & 1 << 1 for event in kernel.open_now.values()} == {2}
    assert {event.read_format for event in kernel.open_now.values()} == {3}, (
        "an inherited group is not read as one"
    )
    counters.close()


@pytest.mark.parametrize("by_thread", [False, True])
def test_totals_are_scaled_and_never_go_back(by_thread: bool) -> None:
    kernel = FakeKernel()
    counters = ProcessCounters(os.getpid(), [GROUP], threads=by_thread, kernel=kernel)
    threads = len(kernel.open_now) // 2
    kernel.run(1000, share=0.25)
    counters.read()
    assert counters.process()[MINOR] == (threads * 2000, 0.25)
    for event in kernel.open_now.values():
        event.value //= 2
    counters.read()
    assert counters.process()[MINOR].value == threads * 2000
    counters.close()


def test_no_turn_is_no_data() -> None:
    kernel = FakeKernel()
    counters = ProcessCounters(os.getpid(), [GROUP], threads=True, kernel=kernel)
    counters.read()
    assert counters.process()[MINOR].value == 0, "nothing ran: nothing counted"
    kernel.run(1000, share=0.0)
    counters.read()
    assert counters.process() == {}
    counters.close()


def test_counters_that_answer_no_more() -> None:
    kernel = FakeKernel()
    counters = ProcessCounters(os.getpid(), [GROUP], threads=True, kernel=kernel)
    kernel.run(10)
    counters.read()
    before = counters.process()
    kernel.read = lambda fd, size: b"short"  # type: ignore[method-assign]
    counters.read()
    assert counters.silent >= 1
    assert counters.process() == before
