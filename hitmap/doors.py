"""The doors that OTLP comes in by: opened as the configuration says, and how they fare."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import NamedTuple

from cachemodel.errors import UserError
from collector.chains.settings import Capture
from collector.otlp.grpc import OtlpGrpcReceiver
from collector.otlp.http import OtlpHttpReceiver
from collector.otlp.intake import Limits
from collector.pipeline import Pipeline
from hitmap.config.model import OFF, CollectorConfig

Receiver = OtlpGrpcReceiver | OtlpHttpReceiver


class Protocol(NamedTuple):
    """A kind of door. setting: its address in the configuration."""

    name: str
    setting: str
    receiver: type[OtlpGrpcReceiver] | type[OtlpHttpReceiver]


PROTOCOLS = (
    Protocol("OTLP/gRPC", "otlp_grpc", OtlpGrpcReceiver),
    Protocol("OTLP/HTTP", "otlp_http", OtlpHttpReceiver),
)


@dataclass(frozen=True)
class Doors:
    """The open doors, and why others could not be opened, by name."""

    opened: Mapping[str, Receiver]
    closed: Mapping[str, UserError]

    @property
    def memory_bytes(self) -> int:
        """What requests under way can take at most."""
        return sum(receiver.memory_bytes for receiver in self.opened.values())

    def __str__(self) -> str:
        return "; ".join(f"{name} on {receiver.endpoint}" for name, receiver in self.opened.items())

    def require(self, asked_for: Collection[str]) -> None:
        """Raise UserError where a door whose setting was asked for could not be opened."""
        for name, setting, _ in PROTOCOLS:
            if name in self.closed and setting in asked_for:
                raise self.closed[name]

    def require_one(self) -> None:
        """Raise UserError where no door could be opened."""
        for error in () if self.opened else self.closed.values():
            raise error

    @property
    def address(self) -> str:
        """Where servers are told to send their spans; the usual place where no door is open."""
        endpoints = [receiver.endpoint for receiver in self.opened.values()]
        return endpoints[0] if endpoints else CollectorConfig().otlp_grpc

    def text_note(self) -> str:
        """What a status line says about text that was taken out; empty while there was none."""
        texts = sum(receiver.intake.withheld for receiver in self.opened.values())
        return f"; {texts:,} prompt and response texts not kept (--capture full keeps them)" if texts else ""


def open_doors(config: CollectorConfig, pipeline: Pipeline, stack: ExitStack) -> Doors:
    """Open what can be opened; it closes with `stack`."""
    limits = Limits(window=config.window, keep_text=config.capture is Capture.FULL)
    token = config.token.get_secret_value() if config.token else None
    opened: dict[str, Receiver] = {}
    closed: dict[str, UserError] = {}
    for name, setting, new in PROTOCOLS:
        address = getattr(config, setting)
        if address == OFF:
            continue
        try:
            receiver = new(pipeline.sink, pipeline.tally, address, limits=limits, token=token)
        except UserError as error:
            closed[name] = error
        else:
            stack.callback(receiver.stop)
            receiver.start()
            opened[name] = receiver
    return Doors(opened, closed)
