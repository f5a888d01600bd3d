"""What would have happened: requests through the twin, one case or many at once.

The arithmetic is compiled on first use (numba, cached) and runs without the interpreter's lock, so that cases of a
Shapley split share out over threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, astuple
from typing import TypeVar, cast

import numpy as np

from analysis.quantiles import Floats
from analysis.twin.model import Law, Limits, Replay, Workload

T = TypeVar("T")
Case = tuple[Workload, Law, Limits]
THREADS = 2


def replay(workload: Workload, law: Law, limits: Limits) -> Replay:
    """Serve the requests as a server of that law and those limits would; times are ms, in the order given.

    A request computes at least its last prompt token, and makes at least one. Where a layer that only preempted
    requests pass again (queue, prefill) follows the first token, it is in that layer's time and not in ttft. Raises
    ValueError for numbers that are not finite, laws that are negative and limits below 1.
    """
    _check(workload, law, limits)
    from analysis.twin import kernel, records

    n = len(workload.arrival)
    start = float(workload.arrival.min(initial=np.inf)) if n else 0.0
    ready = (workload.arrival - start) * 1e3 + workload.before
    order = np.argsort(ready, kind="stable")
    requests = _records(workload, ready, order)
    times = np.zeros((n, records.LAYERS))
    state = np.zeros(1, records.STATE)
    kernel.run(requests, times, _rules(law, limits, workload.hidden_wait), state[0])
    back = np.empty(n, np.int64)
    back[order] = np.arange(n)
    ended = {name: requests[name][back] - ready for name in ("first", "end")}
    layers = times[back]
    return Replay(
        before=workload.before + layers[:, records.BEFORE],
        queue=layers[:, records.QUEUE],
        host=layers[:, records.HOST],
        remote=layers[:, records.REMOTE],
        prefill=layers[:, records.PREFILL],
        decode=layers[:, records.DECODE],
        ttft=workload.before + ended["first"],
        e2e=workload.before + ended["end"] + workload.after,
        preemptions=requests["preempted"][back].astype(np.float64),
    )


def replay_all(cases: Iterable[Case], of: Callable[[Replay], T], threads: int = THREADS) -> list[T]:
    """`of` each case's replay, in order; the replays themselves are not kept (100k requests are 7 MB each)."""
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda case: of(replay(*case)), cases))


def _check(workload: Workload, law: Law, limits: Limits) -> None:
    given = [value for value in vars(workload).values() if isinstance(value, np.ndarray)]
    if not all(np.isfinite(column).all() for column in given):
        raise ValueError("a replay needs finite times and tokens; leave requests that lack some out")
    if not all(0 <= value < np.inf for value in astuple(law)):
        raise ValueError(f"a law takes no time back: {law}")
    if limits.max_num_seqs < 1 or limits.max_num_batched_tokens < 1:
        raise ValueError(f"a scheduler serves at least one request and token at a time: {limits}")


def _records(workload: Workload, ready: Floats, order: np.ndarray) -> np.ndarray:
    from analysis.twin import records

    requests = np.zeros(len(order), records.REQUEST)
    for name, least, given in (
        ("prompt", 1, workload.prompt),
        ("wanted", 1, workload.completion),
        ("host", 0, workload.host),
        ("remote", 0, workload.remote),
        ("computed", 1, workload.computed),
    ):
        requests[name] = np.maximum(least, np.rint(given[order]))
    requests["computed"] = np.minimum(requests["computed"], requests["prompt"])
    requests["ready"] = ready[order]
    requests["first"] = -1.0
    return requests


def _rules(law: Law, limits: Limits, hidden_wait: bool) -> np.void:
    from analysis.twin import records

    rules = np.zeros(1, records.RULES)
    for name, value in asdict(law).items():
        rules[name] = value
    rules["shared"], rules["hidden_wait"] = limits.shared, hidden_wait
    rules["seqs"], rules["tokens"] = limits.max_num_seqs, limits.max_num_batched_tokens
    rules["kv"] = records.NEVER if limits.kv_tokens is None else limits.kv_tokens
    return cast(np.void, rules[0])
