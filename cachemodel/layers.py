"""The names of layers, tiers and token sources, one table for everybody who shows or stores them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Layer:
    """A part of a request's time. colour: for plots, distinct also for colour-blind readers (after Okabe and Ito)."""

    name: str
    meaning: str
    colour: str
    in_ttft: bool

    @property
    def column(self) -> str:
        """Its column in `requests`, in microseconds."""
        return f"{self.name}_us"


# In the order a request passes them; they add up to its end-to-end time, `other` being what is left over (signed).
SERVING_LAYERS = (
    Layer("frontend", "tokenising, IPC, waiting for the running step", "#999999", in_ttft=True),
    Layer("queue", "waiting to be scheduled", "#E69F00", in_ttft=True),
    Layer("response", "looking up a response cache", "#CC79A7", in_ttft=True),
    Layer("prefix", "finding and reusing KV on the device", "#56B4E9", in_ttft=True),
    Layer("host", "loading KV from host memory", "#009E73", in_ttft=True),
    Layer("remote", "loading KV from disk or another node", "#0072B2", in_ttft=True),
    Layer("prefill", "computing prompt tokens that no tier held", "#D55E00", in_ttft=True),
    Layer("decode", "generating", "#F0E442", in_ttft=False),
    Layer("other", "network, streaming, what nobody explains; signed", "#000000", in_ttft=False),
)


class Tier(StrEnum):
    """A place where KV lives."""

    DEVICE = "device"
    HOST = "host"
    REMOTE = "remote"


class TokenSource(StrEnum):
    """Where a prompt token came from. CACHED: from some tier, the server does not say which."""

    DEVICE = "device"
    HOST = "host"
    REMOTE = "remote"
    CACHED = "cached"
    COMPUTED = "computed"


class ObservationLayer(StrEnum):
    """From where a request is watched; all but the application explain and do not add up."""

    APPLICATION = "application"
    RUNTIME = "runtime"
    KERNEL = "kernel"
    HARDWARE = "hardware"
    MICROARCHITECTURE = "microarchitecture"
