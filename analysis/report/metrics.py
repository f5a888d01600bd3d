"""What a report can compare, in one table. Imports nothing heavy: the command line lists the names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cachemodel.layers import SERVING_LAYERS, Layer

if TYPE_CHECKING:
    from analysis.report.model import Provenance


@dataclass(frozen=True, slots=True)
class Metric:
    """A time of a request. total: SQL over `requests`, in microseconds. layers: what it is made of, where known."""

    name: str
    meaning: str
    total: str
    layers: tuple[Layer, ...] = ()
    provenance: Provenance = "measured"


_BEFORE_FIRST = tuple(layer for layer in SERVING_LAYERS if layer.in_ttft)

# What a client saw beyond the server's own time, the network above all, is what its layers leave: unattributed.
METRICS = {
    metric.name: metric
    for metric in (
        Metric("ttft", "time to first token", "ttft_us", _BEFORE_FIRST),
        Metric("e2e", "end-to-end time", "e2e_us", SERVING_LAYERS),
        Metric(
            "tpot",
            "time per output token",
            "if(completion_tokens > 1, decode_us / (completion_tokens - 1), NULL)",
            provenance="derived",
        ),
        Metric("client_ttft", "time to first token as the client saw it", "client_ttft_us", _BEFORE_FIRST),
        Metric("client_e2e", "end-to-end time as the client saw it", "client_e2e_us", SERVING_LAYERS),
    )
}
