"""Throughput: a stated mix, offered all at once."""

from __future__ import annotations

import random
from dataclasses import dataclass

from rich.progress import Progress

from engine.bench.running import Asked, Running, Spread, timed_s
from engine.config import EngineConfig
from engine.model.load import Loaded


@dataclass(frozen=True, slots=True)
class Mix:
    """`requests` prompts, each one of `systems` shared beginnings of `system_tokens` and then `own_tokens` that nobody
    shares; `max_tokens` are generated. Nothing is cached before, and the order is random."""

    requests: int
    systems: int = 4
    system_tokens: int = 192
    own_tokens: int = 64
    max_tokens: int = 32

    def draw(self, running: Running, seed: int) -> list[Asked]:
        """Always the same for a seed."""
        rnd = random.Random(seed)  # noqa: S311 - text to compute, not secrets
        systems = [running.tokens(self.system_tokens, rnd) for _ in range(self.systems)]
        return [
            Asked(rnd.choice(systems) + running.tokens(self.own_tokens, rnd), self.max_tokens)
            for _ in range(self.requests)
        ]


@dataclass(frozen=True, slots=True)
class Throughput:
    """cached_share: of the prompt tokens, those that were cached, 0 to 1."""

    mix: Mix
    requests_per_s: Spread
    prompt_tokens_per_s: Spread
    generated_tokens_per_s: Spread
    cached_share: Spread


def mix_for(config: EngineConfig, requests: int) -> Mix:
    """The mix, with shorter prompts where the settings are too small for it."""
    room, mix = min(config.max_model_len, config.device_blocks * config.block_size), Mix(requests)
    while mix.system_tokens + mix.own_tokens + mix.max_tokens > room:
        mix = Mix(requests, mix.systems, mix.system_tokens // 2, mix.own_tokens // 2, mix.max_tokens // 2)
    return mix


def measure_throughput(
    config: EngineConfig, loaded: Loaded, mix: Mix, rounds: int, progress: Progress
) -> Throughput:
    """Each round another draw of the mix."""
    found = []
    task = progress.add_task("throughput", total=rounds)
    with Running(config, loaded) as running:
        running.play(mix.draw(running, seed=-1)[: config.max_num_seqs])  # warms up
        for number in range(rounds):
            running.engine.reset_prefix_cache()
            wall_s, _, requests = timed_s(running, mix.draw(running, number))
            prompt = sum(len(request.prompt) for request in requests)
            found.append(
                (
                    len(requests) / wall_s,
                    prompt / wall_s,
                    sum(len(request.output) for request in requests) / wall_s,
                    sum(request.sources.cached for request in requests) / prompt,
                )
            )
            progress.advance(task)
    return Throughput(mix, *(Spread.of(values) for values in zip(*found, strict=True)))
