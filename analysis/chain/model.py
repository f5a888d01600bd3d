"""A chain of layers: which spans are its requests, and which of their spans fill which layer."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from cachemodel.layers import Layer as Drawn

_CONFIG = ConfigDict(extra="forbid")
Name = Annotated[str, Field(pattern=r"^[A-Za-z][\w. -]{0,39}$")]
Text = Annotated[str, Field(min_length=1, max_length=200)]
UNITS = {"s": 1000.0, "ms": 1.0, "us": 1e-3, "ns": 1e-6}
"""Milliseconds in each."""


@dataclass(frozen=True, config=_CONFIG)
class Spans:
    """Spans by name and service, where * stands for any characters, and by attributes that they must have."""

    span: Text
    service: Text = "*"
    where: dict[str, str] = Field(default_factory=dict)


@dataclass(frozen=True, config=_CONFIG)
class Hit:
    """A layer answered by itself where this attribute of its span is one of these values, as text."""

    attribute: Text
    values: tuple[str, ...] = Field(default=("true", "hit", "HIT"), alias="is")


@dataclass(frozen=True, config=_CONFIG)
class Layer:
    """One layer. parent: the layer that its spans lie in, whose time is without theirs. spans: where its time is the
    length of spans; attribute: where it is a number on the request's own span, in `unit`. hit: how it says that it
    answered by itself; None where it does not, or always does."""

    name: Name
    meaning: Text
    colour: Annotated[str, Field(pattern=r"^#[0-9A-Fa-f]{6}$")]
    parent: str = ""
    spans: Spans | None = None
    attribute: str = ""
    unit: Literal["s", "ms", "us", "ns"] = "ms"
    hit: Hit | None = None

    def drawn(self) -> Drawn:
        """As reports show it."""
        return Drawn(self.name, self.meaning, self.colour, in_ttft=False)


@dataclass(frozen=True, config=_CONFIG)
class Workload:
    """Attributes of the request's span. size: a number that work grows with, such as bytes; template: what makes
    requests alike, such as a route."""

    size: str = ""
    template: str = ""


@dataclass(frozen=True, config=_CONFIG)
class Chain:
    """request: the one span of a trace that is the whole request. layers: in the order in which a request passes
    them."""

    name: Name
    meaning: Text
    request: Spans
    layers: Annotated[tuple[Layer, ...], Field(min_length=1, max_length=16)]
    workload: Workload = Field(default_factory=Workload)

    @property
    def answering(self) -> tuple[Layer, ...]:
        """The layers that can answer a request: those that tell, and the last one, which has no other to ask."""
        told = [layer for layer in self.layers if layer.hit]
        return (*told, self.layers[-1]) if told and not self.layers[-1].hit else tuple(told)
