"""What a fault is, and the line that asks for one. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from cachemodel.errors import UsageError
from cachemodel.printable import printable

LAYERS = ("frontend", "queue", "prefix", "host", "remote", "prefill", "decode", "other")
"""Serving layers that can be delayed: all that the engine has."""
COMPUTED = ("prefill", "decode")
"""Layers that can be slowed down: the decoder's."""
LOADED = ("host", "remote")
"""Layers that can fail: loads of KV from there."""
OWN = ("prefix", "host", "prefill")
"""Layers that the core's thread passes for one request at a time: where memory can be touched on its account."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that is on. spec: the line that asked for it, which is also its mark on spans.

    kind: one of KINDS; amount: its number, of `fail` how likely a load fails; salt: of the requests that it strikes,
    empty for all; p: how likely a passage of its layer is struck; for_s: after which it is over, infinite for never.
    """

    id: int
    spec: str
    kind: str
    amount: float
    layer: str = ""
    salt: str = ""
    p: float = 1.0
    every_s: float = 1.0
    for_s: float = math.inf


class _Number(NamedTuple):
    """A key's number: its bounds, whether the lower one is allowed too, and how a message says so."""

    least: float
    most: float
    says: str
    whole: bool = False


_SHARE = _Number(0, 1, "above 0 and at most 1")
_SECONDS = _Number(0, 1e9, "seconds above 0")
_MEGABYTES = _Number(0, 256, "megabytes above 0, at most 256")
_NUMBERS = {
    "delay_ms": _Number(0, 600_000, "milliseconds above 0, at most 600000"),
    "slowdown": _Number(1, 1000, "a factor above 1, at most 1000"),
    "fail": _SHARE,
    "evict": _SHARE,
    "device_blocks": _Number(0, 2**40, "a whole number of blocks, at least 1", whole=True),
    "step_ms": _Number(0, 600_000, "milliseconds above 0, at most 600000"),
    "token_ms": _Number(0, 1000, "milliseconds above 0, at most 1000"),
    "lose_events": _SHARE,
    "cold_mb": _MEGABYTES,
    "unmap_mb": _MEGABYTES,
    "p": _SHARE,
    "every_s": _SECONDS,
    "for_s": _SECONDS,
}
# What a fault is about, with the keys that may stand beside it.
_KINDS = {
    "delay_ms": ("layer", "p", "for_s"),
    "slowdown": ("layer", "p", "for_s"),
    "fail": ("layer", "for_s"),
    "evict": ("every_s", "for_s"),
    "device_blocks": ("for_s",),
    "step_ms": ("for_s",),
    "token_ms": ("for_s",),
    "lose_events": ("for_s",),
    "cold_mb": ("layer", "salt", "p", "for_s"),
    "unmap_mb": ("layer", "salt", "p", "for_s"),
}
KINDS = tuple(_KINDS)
_LAYERS_OF = {"delay_ms": LAYERS, "slowdown": COMPUTED, "fail": LOADED, "cold_mb": OWN, "unmap_mb": OWN}
_TEXTS = ("layer", "salt")
EXAMPLES = (
    "layer=host,delay_ms=5,p=0.1 or layer=decode,slowdown=2 or layer=host,fail=1 or evict=0.5,every_s=2"
)


def parse(spec: str, fault_id: int) -> Fault:
    """The fault that a line asks for. Raises UsageError with what is allowed where it does not say one."""
    told = _pairs(spec)
    if told.get("layer", "other") not in LAYERS:
        raise _wrong(spec, f"there is no layer '{told['layer'][:64]}'; there are {', '.join(LAYERS)}")
    kinds = [key for key in told if key in _KINDS]
    if len(kinds) != 1:
        raise _wrong(spec, f"say one of {', '.join(_KINDS)}, as in {EXAMPLES}")
    kind = kinds[0]
    if foreign := [key for key in told if key != kind and key not in _KINDS[kind]]:
        raise _wrong(spec, f"{foreign[0]} does not go with {kind}, only {', '.join(_KINDS[kind])}")
    layers = _LAYERS_OF.get(kind, ("",))
    layer, salt = (told.pop(key, "") for key in _TEXTS)
    if layer not in layers:
        raise _wrong(spec, f"{kind} needs layer={'|'.join(layers)}")
    numbers = {key: _number(spec, key, text) for key, text in told.items()}
    return Fault(fault_id, spec.strip(), kind, numbers.pop(kind), layer, salt, **numbers)


def _pairs(spec: str) -> dict[str, str]:
    told: dict[str, str] = {}
    for pair in spec.split(","):
        key, equals, text = (part.strip() for part in pair.partition("="))
        if not equals or not text:
            raise _wrong(spec, f"'{pair.strip()}' is not key=value, as in {EXAMPLES}")
        if key not in _TEXTS and key not in _NUMBERS:
            raise _wrong(spec, f"nothing is called {key}; there are {', '.join((*_TEXTS, *_NUMBERS))}")
        if key in told:
            raise _wrong(spec, f"{key} stands there twice")
        told[key] = text
    return told


def _number(spec: str, key: str, text: str) -> float:
    number = _NUMBERS[key]
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not number.least < value <= number.most or (number.whole and not value.is_integer()):
        raise _wrong(spec, f"{key} is {number.says}, not {text}")
    return value


def _wrong(spec: str, why: str) -> UsageError:
    return UsageError(printable(f"fault '{spec[:200]}': {why}", lines=False))
