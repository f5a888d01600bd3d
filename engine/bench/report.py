"""What was measured, for people and for programs."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from engine.bench.mix import Throughput
from engine.bench.overhead import GOAL, Overhead
from engine.bench.running import Spread
from engine.bench.tiers import SOURCES, Tiers
from engine.config import EngineConfig
from engine.model.load import Loaded


@dataclass(frozen=True, slots=True)
class Report:
    """All of it, with what it was measured on. parameters: of the model. device: cpu, or the GPU's name. machine: the
    kind of processor."""

    model: str
    parameters: int
    kv_bytes_per_token: int
    dtype: str
    device: str
    machine: str
    cores: int
    threads: int
    torch: str
    tiers: Tiers
    throughput: Throughput
    overhead: Overhead

    @classmethod
    def of(
        cls, config: EngineConfig, loaded: Loaded, tiers: Tiers, throughput: Throughput, overhead: Overhead
    ) -> Report:
        model, weights = loaded.config, loaded.model.weights
        tensors = [weights.embedding, weights.norm, weights.head]
        for layer in weights.layers:
            tensors += [getattr(layer, name) for name in layer.__slots__]
        device = torch.cuda.get_device_name() if config.device == "cuda" else config.device
        return cls(
            model=loaded.tokenizer.name,
            parameters=sum(tensor.numel() for tensor in tensors),
            kv_bytes_per_token=2
            * model.num_hidden_layers
            * model.num_key_value_heads
            * model.head_dim
            * weights.embedding.element_size(),
            dtype=config.dtype,
            device=device,
            machine=platform.machine(),
            cores=len(os.sched_getaffinity(0)),
            threads=torch.get_num_threads(),
            torch=torch.__version__,
            tiers=tiers,
            throughput=throughput,
            overhead=overhead,
        )


def as_json_text(report: Report) -> str:
    """The report as one JSON object."""
    told: dict[str, Any] = asdict(report)
    told["overhead"]["goal_share"] = GOAL
    return json.dumps(told, indent=2)


def print_report(report: Report, console: Console) -> None:
    """The report as tables."""
    console.print(
        f"{report.model}: {report.parameters / 1e6:.1f} M parameters, {report.dtype},"
        f" {report.kv_bytes_per_token} bytes of KV a token;"
        f" {report.device}, {report.machine}, {report.cores} cores, {report.threads} threads, torch {report.torch}",
        soft_wrap=True,
    )
    console.print("Medians, with the lowest and the highest of all rounds.")
    _print(console, "Time to first token, ms, by where the prompt's KV is", _tiers(report.tiers))
    for tier, tokens in (
        ("host", report.tiers.break_even_host_tokens),
        ("disk", report.tiers.break_even_disk_tokens),
    ):
        console.print(f"  loading from the {tier} {_break_even(report.tiers, tokens)}")
    mix = report.throughput.mix
    title = (
        f"{mix.requests} requests at once: one of {mix.systems} beginnings of {mix.system_tokens} tokens,"
        f" {mix.own_tokens} of their own, {mix.max_tokens} generated"
    )
    _print(console, title, _throughput(report.throughput))
    _print(console, "Telemetry on against off: spans, metrics and KV events", _overhead(report.overhead))
    console.print(f"  {_verdict(report.overhead)}")


def _print(console: Console, title: str, table: Table) -> None:
    console.print(f"\n{title}", soft_wrap=True)
    console.print(table)


def _tiers(tiers: Tiers) -> Table:
    table = _table("prompt tokens", *SOURCES)
    for point in tiers.lengths:
        table.add_row(f"  {point.tokens:,}", *(_text(point.ms(source)) for source in SOURCES))
    return table


def _break_even(tiers: Tiers, tokens: float | None) -> str:
    shortest, longest = tiers.lengths[0].tokens, tiers.lengths[-1].tokens
    if tokens is None:
        return f"does not beat computing up to {longest:,} tokens"
    if tokens <= shortest:
        return f"beats computing from the shortest length on ({shortest} tokens)"
    return f"beats computing from about {tokens:,.0f} tokens on"


def _throughput(throughput: Throughput) -> Table:
    table = _table("a second", "")
    table.add_row("  requests", _text(throughput.requests_per_s))
    table.add_row("  prompt tokens", _text(throughput.prompt_tokens_per_s))
    table.add_row("  generated tokens", _text(throughput.generated_tokens_per_s))
    table.add_row("  prompt tokens cached, %", _text(throughput.cached_share, 100))
    return table


def _overhead(overhead: Overhead) -> Table:
    table = _table("%", "")
    table.add_row("  throughput lost", _text(overhead.lost_share, 100))
    table.add_row("  off and off apart", _text(overhead.noise_share, 100))
    table.add_row("  CPU time that is telemetry's", _text(overhead.cpu_share, 100))
    return table


def _verdict(overhead: Overhead) -> str:
    goal = f"goal, below {GOAL:.0%} of throughput:"
    if overhead.resolution >= GOAL:
        return f"{goal} this machine is too noisy to tell"
    return f"{goal} {'reached' if overhead.lost_share.median < GOAL else 'missed'}"


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column(f"  {first}")
    for other in others:
        table.add_column(other, justify="right", no_wrap=True)
    return table


def _text(spread: Spread, factor: float = 1) -> str:
    median, low, high = (value * factor for value in (spread.median, spread.low, spread.high))
    digits = 0 if abs(median) >= 100 else 1
    return f"{median:,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f})"
