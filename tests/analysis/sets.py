"""Sets of requests, made up, and the report that compares two of them."""

from __future__ import annotations

import math
from datetime import datetime, timedelta

import numpy as np

from analysis.report.build import build
from analysis.report.metrics import METRICS
from analysis.report.model import Report
from analysis.report.reader import Requests

START = datetime(2026, 11, 29, 12)


def requests(n: int, seed: int, prefill: float, cached: float, metric: str = "ttft") -> Requests:
    """n requests of a server that tells of queue, prefill, decode and frontend, in ms."""
    rng = np.random.default_rng(seed)
    known = {
        "queue": rng.exponential(5, n),
        "prefill": prefill + rng.exponential(10, n),
        "frontend": rng.exponential(8, n),
        "decode": rng.exponential(100, n),
    }
    layers = np.stack([known.get(layer.name, np.full(n, math.nan)) for layer in METRICS[metric].layers])
    prompt = rng.integers(300, 400, n).astype(float)
    tokens = {"prompt_tokens": prompt, "cached_tokens": np.floor(prompt * cached)}
    tokens["completion_tokens"] = rng.integers(14, 18, n).astype(float)
    tokens |= {f"{tier}_tokens": np.full(n, math.nan) for tier in ("device", "host", "remote")}
    return Requests(
        np.nansum(layers, axis=0), layers, tokens, START, START + timedelta(seconds=30), ["vllm-a"],
        np.linspace(0, 30, n),
    )  # fmt: skip


def compared(
    a: Requests, b: Requests, metric: str = "ttft", q: float | None = 0.5, names: tuple[str, str] = ("a", "b")
) -> Report:
    return build(METRICS[metric], q, names, (a, b), [], f"--a {names[0]} --b {names[1]}")
