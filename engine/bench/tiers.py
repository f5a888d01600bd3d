"""Is it faster to have KV or to compute it? Time to first token by prompt length, computed and from each tier."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from rich.progress import Progress

from cachemodel.errors import UserError
from engine.bench.running import Running, Spread, ttft_ms
from engine.config import EngineConfig
from engine.model.load import Loaded

_LENGTHS = (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
SOURCES = ("computed", "device", "host", "disk")


@dataclass(frozen=True, slots=True)
class AtLength:
    """Milliseconds to the first token of a prompt of `tokens` random tokens, alone on the engine.

    computed_ms: all of it. device_ms, host_ms, disk_ms: a prompt that was computed before, its KV in that tier; the
    last one to `block_size` tokens are computed in any case. The disk's reads come from the page cache where that holds
    them.
    """

    tokens: int
    computed_ms: Spread
    device_ms: Spread
    host_ms: Spread
    disk_ms: Spread

    def ms(self, source: str) -> Spread:
        """By name: computed, device, host or disk."""
        spread: Spread = getattr(self, f"{source}_ms")
        return spread


@dataclass(frozen=True, slots=True)
class Tiers:
    """break_even_host_tokens, break_even_disk_tokens: prompt length from which loading beats computing, on the line
    between the two lengths around it; the shortest length measured where it does so there; None where it never does."""

    lengths: tuple[AtLength, ...]
    break_even_host_tokens: float | None
    break_even_disk_tokens: float | None


def lengths_for(config: EngineConfig, longest: int) -> tuple[int, ...]:
    """Prompt lengths that the settings allow, the last one as long as they do. Raises UserError where none is."""
    most = min(longest, config.max_model_len - 1, config.device_blocks * config.block_size)
    if most <= config.block_size or not config.prefix_caching:
        raise UserError("there are no hits to measure: allow prefix caching and prompts of more than a block")
    return (*(length for length in _LENGTHS if config.block_size < length < most), most)


def measure_tiers(
    config: EngineConfig, loaded: Loaded, lengths: Sequence[int], rounds: int, progress: Progress
) -> Tiers:
    """Each round asks for every length new, again, and after its KV was evicted to the host and to the disk."""
    blocks = 2 * (-(-max(lengths) // config.block_size) + 2)
    host = replace(config, host_blocks=blocks, disk_blocks=0)
    disk = replace(config, host_blocks=0, disk_blocks=blocks)
    found: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    task = progress.add_task("tiers", total=rounds * len(lengths))
    with Running(host, loaded) as with_host, Running(disk, loaded) as with_disk:
        for number in range(-1, rounds):  # the first warms up
            for length in lengths if number >= 0 else lengths[:1]:
                rnd = random.Random(f"{number}/{length}")  # noqa: S311 - text to compute, not secrets
                told = _one(with_host, "host", length, rnd)
                told["disk"] = _one(with_disk, "disk", length, rnd)["disk"]
                if number >= 0:
                    progress.advance(task)
                    for source, ms in told.items():
                        found[length][source].append(ms)
    points = tuple(
        AtLength(length, **{f"{source}_ms": Spread.of(ms) for source, ms in found[length].items()})
        for length in lengths
    )
    return Tiers(points, break_even(points, "host"), break_even(points, "disk"))


def _one(running: Running, tier: str, length: int, rnd: random.Random) -> dict[str, float]:
    """A prompt's way down: milliseconds to compute it, from the device, and from the tier below."""
    running.engine.reset_prefix_cache()
    prompt, last = running.tokens(length, rnd), running.tokens(2 * running.engine.config.block_size, rnd)
    told = {"computed": ttft_ms(running.serve(prompt)), "device": ttft_ms(running.serve(prompt))}
    running.serve(last)
    storm = running.faults.add("evict=1")
    running.serve([0])
    running.faults.remove(storm.id)
    running.serve(last)  # what left the device last: once it is back, the disk has no more to write
    request = running.serve(prompt)
    if not (request.sources.host if tier == "host" else request.sources.remote):
        raise RuntimeError(f"a prompt of {length} tokens was not loaded from its tier: {request.sources}")
    told[tier] = ttft_ms(request)
    return told


def break_even(points: Sequence[AtLength], tier: str) -> float | None:
    """Where loading from a tier begins to beat computing, for good."""
    gains: list[tuple[float, float]] = [
        (point.tokens, point.ms("computed").median - point.ms(tier).median) for point in points
    ]
    if gains[-1][1] <= 0:
        return None
    for (shorter, loss), (longer, gain) in reversed(list(pairwise(gains))):
        if loss <= 0:
            return shorter + (longer - shorter) * -loss / (gain - loss)
    return gains[0][0]
