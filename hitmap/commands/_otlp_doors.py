"""The doors that OTLP comes in by, for `collect` and `attach`: their options, and the receivers behind them."""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import click
from click.core import ParameterSource

from cachemodel.errors import UsageError, UserError
from collector.otlp import OtlpGrpcReceiver
from collector.otlp_check import Window
from collector.otlp_http import OtlpHttpReceiver
from collector.otlp_intake import Limits
from collector.pipeline import Pipeline

GRPC, HTTP = "127.0.0.1:4317", "127.0.0.1:4318"
OFF = "off"
Receiver = OtlpGrpcReceiver | OtlpHttpReceiver
RECEIVERS: dict[str, type[OtlpGrpcReceiver] | type[OtlpHttpReceiver]] = {
    "OTLP/gRPC": OtlpGrpcReceiver,
    "OTLP/HTTP": OtlpHttpReceiver,
}


@dataclass(frozen=True)
class DoorOptions:
    """What the options say. addresses: HOST:PORT or 'off' by name of the door; asked_for: those not left at their
    default. token: what senders must show. keep_text: prompts and responses too."""

    addresses: dict[str, str]
    asked_for: frozenset[str]
    token: str | None
    keep_text: bool

    @property
    def grpc(self) -> str:
        """Where a server is told to send its spans."""
        address = self.addresses["OTLP/gRPC"]
        return GRPC if address == OFF else address

    def open(self, pipeline: Pipeline, window: Window, stack: ExitStack) -> Doors:
        """Open what can be opened; it closes with `stack`."""
        limits = Limits(window=window, keep_text=self.keep_text)
        opened: dict[str, Receiver] = {}
        closed: dict[str, UserError] = {}
        for name, address in self.addresses.items():
            if address == OFF:
                continue
            try:
                receiver = RECEIVERS[name](
                    pipeline.sink, pipeline.tally, address, limits=limits, token=self.token
                )
            except UserError as error:
                closed[name] = error
            else:
                stack.callback(receiver.stop)
                receiver.start()
                opened[name] = receiver
        return Doors(opened, closed)

    def require(self, doors: Doors) -> None:
        """Raise UserError where a door that was asked for, or every door, could not be opened."""
        for name, error in doors.closed.items():
            if name in self.asked_for or not doors.opened:
                raise error


@dataclass(frozen=True)
class Doors:
    """The open doors by name, and why others could not be opened."""

    opened: dict[str, Receiver]
    closed: dict[str, UserError]

    @property
    def memory_bytes(self) -> int:
        """What requests under way can take at most."""
        return sum(receiver.memory_bytes for receiver in self.opened.values())

    def __str__(self) -> str:
        return "; ".join(f"{name} on {receiver.endpoint}" for name, receiver in self.opened.items())

    def text_note(self) -> str:
        """What a status line says about text that was taken out; empty while there was none."""
        texts = sum(receiver.intake.withheld for receiver in self.opened.values())
        return f"; {texts:,} prompt and response texts not kept (--capture full keeps them)" if texts else ""


def door_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options of the doors as the argument `doors`, checked."""

    @click.option(
        "--otlp-grpc",
        default=GRPC,
        show_default=True,
        metavar="HOST:PORT",
        help="Where to listen for OTLP/gRPC, or off.",
    )
    @click.option(
        "--otlp-http",
        default=HTTP,
        show_default=True,
        metavar="HOST:PORT",
        help="Where to listen for OTLP/HTTP (protobuf and JSON), or off. Port 0 takes any free one.",
    )
    @click.option(
        "--token",
        envvar="HITMAP_TOKEN",
        help="What senders must show as 'authorization: Bearer TOKEN' (or $HITMAP_TOKEN). Needed off loopback.",
    )
    @click.option(
        "--capture",
        default="metadata",
        show_default=True,
        type=click.Choice(["metadata", "full"]),
        help="full: keep the text of prompts and responses that spans and logs carry.",
    )
    @functools.wraps(function)
    def command(*, otlp_grpc: str, otlp_http: str, token: str | None, capture: str, **others: Any) -> Any:
        for address in (otlp_grpc, otlp_http):
            require_token_off_loopback(address, token)
        source = click.get_current_context().get_parameter_source
        asked_for = {
            name
            for name, option in (("OTLP/gRPC", "otlp_grpc"), ("OTLP/HTTP", "otlp_http"))
            if source(option) is not ParameterSource.DEFAULT
        }
        addresses = {"OTLP/gRPC": otlp_grpc, "OTLP/HTTP": otlp_http}
        doors = DoorOptions(addresses, frozenset(asked_for), token, capture == "full")
        return function(doors=doors, **others)

    return command


def require_token_off_loopback(address: str, token: str | None) -> None:
    """Raise UsageError for an address others can reach without a token, or for one that is no HOST:PORT."""
    if address == OFF:
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise UsageError(f"{address!r} is no HOST:PORT, for example 127.0.0.1:4317")
    try:
        local = host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        local = False
    if not local and not token:
        raise UsageError(f"{host} can be reached from other machines: set a --token that senders must show")
