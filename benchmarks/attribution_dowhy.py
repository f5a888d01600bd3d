"""DoWhy's gcm.distribution_change on the data of benchmarks.attribution, for a Python that has DoWhy.

    python benchmarks/attribution_dowhy.py DATA.npz [SAMPLES]

DATA.npz: for both sides, as a_NAME and b_NAME (n,): prompt, completion, computed, queue, prefill, decode, other, total;
q. Prints one line of JSON: the shares in ms, and seconds. The graph is the generator's own; mechanisms are assigned by
DoWhy itself. It needs nothing of hitmap: DoWhy pins other versions of numpy than we do.
"""

from __future__ import annotations

import json
import sys
import time
import warnings

import dowhy.gcm as gcm
import networkx as nx
import numpy as np
import pandas as pd

EDGES = [
    ("prompt", "computed"),
    ("computed", "prefill"),
    ("completion", "decode"),
    ("queue", "total"),
    ("prefill", "total"),
    ("decode", "total"),
    ("other", "total"),
]
NODES = ("prompt", "completion", "computed", "queue", "prefill", "decode", "other", "total")


def main(path: str, samples: int) -> None:
    warnings.filterwarnings("ignore")
    gcm.config.disable_progress_bars()
    gcm.config.set_default_n_jobs(1)
    data = np.load(path)
    a, b = (pd.DataFrame({name: data[f"{side}_{name}"] for name in NODES}) for side in "ab")
    q = float(data["q"])
    began = time.perf_counter()
    model = gcm.ProbabilisticCausalModel(nx.DiGraph(EDGES))
    gcm.auto.assign_causal_mechanisms(model, a)
    gcm.util.general.set_random_seed(int(data["seed"]))
    shares = gcm.distribution_change(
        model,
        a,
        b,
        "total",
        num_samples=samples,
        difference_estimation_func=lambda old, new: float(np.quantile(new, q) - np.quantile(old, q)),
    )
    seconds = time.perf_counter() - began
    print(json.dumps({"shares": {name: float(value) for name, value in shares.items()}, "seconds": seconds}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 20_000)
