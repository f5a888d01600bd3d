"""What the core's thread spends: on whose account it goes, beside others, and that nothing is counted twice."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import pytest

from cachemodel.observed import SPAN_COUNTERS
from engine.core.sequence import Sequence
from tests.engine.core.tiny import ByHand, tokens

MAJOR, MINOR = "hitmap.thread.page_faults.major", "hitmap.thread.page_faults.minor"
PAGES = (1 << 20) // resource.getpagesize()  # of a megabyte


@pytest.fixture
def core() -> Iterator[ByHand]:
    made = ByHand(host_blocks=64)
    yield made
    made.close()


def spent(sequence: Sequence, name: str, layer: str = "") -> float:
    parts = sequence.request.timeline.intervals
    return sum(part.spent.get(name, 0.0) for part in parts if not layer or part.layer == layer)


@pytest.mark.parametrize("layer", ["prefix", "prefill"])
def test_cold_reads_of_one_class_are_its_requests_faults_and_no_others(core: ByHand, layer: str) -> None:
    core.faults.add(f"layer={layer},cold_mb=1,salt=cold")
    salts = ["cold", "warm", "", "cold", "warm", ""]
    sequences = [
        core.submit(tokens(12, head=number), 6, ignore_eos=True, salt=salt)
        for number, salt in enumerate(salts)
    ]
    core.drain()
    passages = [sum(i.layer == layer for i in s.request.timeline.intervals) for s in sequences]
    assert [spent(sequence, MAJOR, layer) for sequence in sequences] == [
        PAGES * passed if salt == "cold" else 0 for salt, passed in zip(salts, passages, strict=True)
    ]
    planted = PAGES * (passages[0] + passages[3])
    assert (
        planted <= sum(spent(sequence, MAJOR) for sequence in sequences) <= planted + 9
    )  # the program's own pages


def test_a_cold_read_waits_off_the_cpu(core: ByHand) -> None:
    core.faults.add("layer=prefix,cold_mb=1,salt=cold")
    cold = core.submit(tokens(12), 1, salt="cold")
    warm = core.submit(tokens(12), 1, salt="warm")
    core.drain()
    waited = [spent(sequence, "hitmap.thread.off_cpu_us", "prefix") for sequence in (cold, warm)]
    assert waited[0] > 5 * waited[1]
    assert spent(cold, "hitmap.thread.context_switches.voluntary", "prefix") >= PAGES / 2


def test_a_pass_is_shared_by_tokens(core: ByHand) -> None:
    long, short = core.submit(tokens(12), 1), core.submit(tokens(4, head=1), 1)
    core.step()
    shares = [spent(sequence, "hitmap.thread.cpu_us", "prefill") for sequence in (long, short)]
    assert shares[0] == pytest.approx(3 * shares[1])
    assert min(shares) > 0


def test_no_fault_is_counted_twice(core: ByHand) -> None:
    core.faults.add("layer=prefill,unmap_mb=0.25,p=0.5")
    before = resource.getrusage(resource.RUSAGE_THREAD)
    sequences = [core.submit(tokens(10 + number, head=number), 5) for number in range(12)]
    core.drain()
    after = resource.getrusage(resource.RUSAGE_THREAD)
    charged = sum(spent(sequence, MINOR) for sequence in sequences)
    assert PAGES / 4 <= charged <= after.ru_minflt - before.ru_minflt + 1e-6


def test_all_that_is_spent_has_a_meaning(core: ByHand) -> None:
    sequence = core.submit(tokens(12), 4)
    core.drain()
    assert sequence.request.timeline.spent().keys() <= {counter.name for counter in SPAN_COUNTERS}
    assert {MAJOR, MINOR} <= sequence.request.timeline.spent().keys()
