"""A disk that fails for real: hits get shorter, the KV that is served is never wrong, nobody sees an exception."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from cachemodel.errors import UserError
from cachemodel.layers import Tier
from engine.cache.block import Table
from engine.cache.disk import MAX_FAILURES, MIN_WAITING_BLOCKS, DiskTier
from engine.cache.kv_cache import KVCache
from tests.engine.cache.model import cached, compute, load_all, make_cache, run, start, verify

PROMPT = list(range(41))  # ten full blocks


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[KVCache]:
    cache = make_cache(device_blocks=12, disk_blocks=24, disk_path=tmp_path)
    yield cache
    cache.check()
    cache.close()


def disk_of(cache: KVCache) -> DiskTier:
    assert cache.tiers.disk is not None
    cache.tiers.disk.settle()
    return cache.tiers.disk


def on_disk(cache: KVCache) -> DiskTier:
    run(cache, PROMPT)
    cache.evict(1.0)
    disk = disk_of(cache)
    assert cached(cache, PROMPT) == (0, 0, 40)
    return disk


def slots_of(cache: KVCache) -> list[int]:
    match = cache.match(PROMPT)
    slots = [block.slot for block in match.blocks]
    cache.drop(match)
    return slots


def opened(cache: KVCache) -> Table:
    table = cache.open(cache.match(PROMPT), len(PROMPT))
    assert table is not None
    load_all(cache, table)
    verify(cache, table, PROMPT)
    return table


def test_a_folder_that_cannot_be_used_is_an_error_a_person_can_read(tmp_path: Path) -> None:
    occupied = tmp_path / "file"
    occupied.touch()
    for folder in (tmp_path / "missing", occupied, Path("/proc")):
        with pytest.raises(UserError, match=f"cannot write to {folder}.*name a folder"):
            make_cache(disk_blocks=4, disk_path=folder)


def test_nothing_is_left_in_the_folder_and_the_thread_ends(tmp_path: Path) -> None:
    cache = make_cache(disk_blocks=4, disk_path=tmp_path)
    run(cache, PROMPT)
    cache.evict(1.0)
    assert list(tmp_path.iterdir()) == []
    cache.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "kv-disk"]


def _flip_a_bit(disk: DiskTier, slot: int) -> None:
    at = slot * disk.block_bytes + 17
    (byte,) = os.pread(disk.fileno(), 1, at)
    os.pwrite(disk.fileno(), bytes([byte ^ 1]), at)


def _truncate(disk: DiskTier, slot: int) -> None:
    os.ftruncate(disk.fileno(), slot * disk.block_bytes + 5)


def _replace(disk: DiskTier, path: str) -> None:
    """From now on the tier's file is another one, whose reads and writes fail by themselves."""
    descriptor = os.open(path, os.O_RDWR)
    os.dup2(descriptor, disk.fileno())
    os.close(descriptor)


def _input_output_error(disk: DiskTier, slot: int) -> None:
    _replace(disk, "/proc/self/mem")  # nothing is mapped at its beginning


@pytest.mark.parametrize(
    ("spoil", "error", "blocks"),
    [  # eviction is from the chain's end, so what is cut off the file is its beginning
        (_flip_a_bit, "checksum", 4),
        (_truncate, "ends too early", 0),
        (_input_output_error, "Input/output error", 0),
    ],
)
def test_a_block_that_cannot_be_read_shortens_the_hit(
    cache: KVCache, spoil: Callable[[DiskTier, int], None], error: str, blocks: int
) -> None:
    disk = on_disk(cache)
    spoil(disk, slots_of(cache)[4])
    table = opened(cache)
    assert (table.ready, table.lost) == (4 * blocks, 40 - 4 * blocks)
    assert error in disk.error
    compute(cache, table, PROMPT)
    verify(cache, table, PROMPT)
    cache.check()
    assert cached(cache, PROMPT) == (40, 0, 0)
    counts = cache.stats().counts
    assert counts.load_failures == 1
    assert counts.lost == table.lost
    assert counts.moved_bytes[Tier.DEVICE] == (40 - table.lost) // 4 * cache.tiers.block_bytes
    cache.release(table)


def test_all_who_wait_for_a_lost_block_are_shortened(cache: KVCache) -> None:
    disk = on_disk(cache)
    _flip_a_bit(disk, slots_of(cache)[1])
    one, two, match = (
        cache.open(cache.match(PROMPT[:13]), 13),
        cache.open(cache.match(PROMPT[:13]), 13),
        cache.match(PROMPT),
    )
    assert one is not None
    assert two is not None
    load_all(cache, one)
    assert (one.ready, one.lost) == (4, 8)
    cache.check()
    load_all(cache, two)
    assert (two.ready, two.lost) == (4, 8)
    cache.release(one)
    cache.release(two)
    table = cache.open(match, len(PROMPT))
    assert table is not None
    load_all(cache, table)
    verify(cache, table, PROMPT)
    assert (table.ready, table.lost) == (4, 36)
    cache.release(table)
    assert sum(cached(cache, PROMPT)) == 4


def test_a_full_disk_costs_hits_and_nothing_else(cache: KVCache) -> None:
    disk = disk_of(cache)
    kept = os.dup(disk.fileno())
    _replace(disk, "/dev/full")
    run(cache, PROMPT[:9])
    cache.evict(1.0)
    disk.settle()
    assert cached(cache, PROMPT[:9]) == (0, 0, 0)
    stats = cache.stats()
    assert stats.counts.disk_failures == 2
    assert "No space left" in disk.error
    assert stats.tiers[Tier.REMOTE].capacity == 24
    os.dup2(kept, disk.fileno())  # somebody made room: the tier goes on
    os.close(kept)
    on_disk(cache)
    assert opened(cache).ready == 40


def test_a_slot_whose_write_failed_does_not_give_what_it_held_before(cache: KVCache) -> None:
    disk = on_disk(cache)
    slot = disk.take()
    assert slot is not None
    before, after = (torch.full((2, 2, 4, 1, 4), value) for value in (1.0, 2.0))
    block = cache.index.root("")
    assert disk.reserve_write()
    disk.write(slot, before, block)
    read = disk.read(slot)
    disk.settle()
    assert read.kv is not None
    assert torch.equal(read.kv, before)
    read_only = os.open(f"/proc/self/fd/{disk.fileno()}", os.O_RDONLY)
    os.dup2(read_only, disk.fileno())
    os.close(read_only)
    assert disk.reserve_write()
    disk.write(slot, after, block)
    read = disk.read(slot)
    disk.settle()
    assert (read.done, read.kv) == (True, None)
    disk.give(slot)


def test_a_disk_that_only_fails_is_given_up_and_says_so_once(
    cache: KVCache, caplog: pytest.LogCaptureFixture
) -> None:
    kept = on_disk(cache)
    _replace(kept, "/dev/full")
    other = [500 + n for n in range(4 * MAX_FAILURES + 1)]
    run(cache, other)
    cache.evict(1.0)
    kept.settle()
    assert kept.off
    table = start(cache, PROMPT)  # what was written before is given up as well
    assert table.lost == 0
    cache.release(table)
    stats = cache.stats().tiers[Tier.REMOTE]
    assert (stats.capacity, stats.cached) == (0, 0)
    failures = cache.stats().counts.disk_failures
    cache.evict(1.0)
    kept.settle()
    assert cache.stats().counts.disk_failures == failures == MAX_FAILURES
    said = f"the disk tier is off after {MAX_FAILURES} failures in a row: [Errno 28] No space left on device"
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [("WARNING", said)]


def test_a_disk_given_up_during_a_load_shortens_it(cache: KVCache) -> None:
    disk = on_disk(cache)
    table = cache.open(cache.match(PROMPT), len(PROMPT))
    assert table is not None
    _replace(disk, "/proc/self/mem")
    load_all(cache, table)
    assert disk.off
    assert (table.ready, table.lost) == (0, 40)
    compute(cache, table, PROMPT)
    cache.release(table)
    assert cached(cache, PROMPT) == (40, 0, 0)


def test_a_real_file_size_limit_is_an_error_like_any_other(tmp_path: Path) -> None:
    """In a process of its own: the limit holds for all of its files."""
    code = f"""
import resource
from pathlib import Path
from tests.engine.cache.model import cached, make_cache, run
cache = make_cache(device_blocks=12, disk_blocks=24, disk_path=Path({str(tmp_path)!r}))
limit = 3 * cache.tiers.block_bytes + 100
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
prompt = list(range(25))
run(cache, prompt)
cache.evict(1.0)
cache.tiers.disk.settle()
assert sum(cached(cache, prompt)) == 0  # the chain's beginning was evicted last and did not fit
cache.check()
assert "File too large" in cache.tiers.disk.error, cache.tiers.disk.error
run(cache, prompt)
cache.close()
print(cache.stats().counts.disk_failures)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "3\n"


def test_more_than_may_wait_to_be_written_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.cache.disk.MAX_WAITING_BYTES", 0)
    cache = make_cache(device_blocks=12, disk_blocks=24, disk_path=tmp_path)
    disk, gate = disk_of(cache), threading.Event()
    disk._jobs.put(lambda: [gate.wait(), None][1])  # a write that takes its time
    run(cache, PROMPT)
    cache.evict(1.0)
    cache.check()
    gate.set()
    counts = cache.stats().counts
    assert counts.moved_bytes[Tier.REMOTE] == MIN_WAITING_BLOCKS * cache.tiers.block_bytes
    assert counts.dropped[Tier.DEVICE] == 10 - MIN_WAITING_BLOCKS
    assert sum(cached(cache, PROMPT)) == 0  # their parents were dropped, so nothing leads to them any more
    assert opened(cache).ready == 0
    cache.close()
