"""The options of the collector, the same on `collect` and `attach`: the settings of the file's section `collector`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from pydantic import SecretStr, ValidationError

from cachemodel.errors import UsageError
from collector.chains.settings import Capture
from hitmap.config.model import CollectorConfig, StoreConfig

_DEFAULTS = CollectorConfig()
_OPTIONS = (
    click.option(
        "--otlp-grpc",
        default=_DEFAULTS.otlp_grpc,
        show_default=True,
        metavar="HOST:PORT",
        help="Where to listen for OTLP/gRPC, or off.",
    ),
    click.option(
        "--otlp-http",
        default=_DEFAULTS.otlp_http,
        show_default=True,
        metavar="HOST:PORT",
        help="Where to listen for OTLP/HTTP (protobuf and JSON), or off. Port 0 takes any free one.",
    ),
    click.option(
        "--token",
        envvar="HITMAP_TOKEN",
        help="What senders must show as 'authorization: Bearer TOKEN' (or $HITMAP_TOKEN). Needed off loopback.",
    ),
    click.option(
        "--capture",
        default=_DEFAULTS.capture.value,
        show_default=True,
        type=click.Choice([level.value for level in Capture]),
        help="Of prompts: keyed hashes only; the texts of the request log without what looks personal; or all texts,"
        " those on spans and logs too.",
    ),
    click.option(
        "--key",
        envvar="HITMAP_KEY",
        metavar="HEX",
        help="Of the hashes (or $HITMAP_KEY); collectors of one store share it. Default: $HITMAP_HOME/key, made once.",
    ),
    click.option(
        "--spool",
        type=click.Path(file_okay=False, path_type=Path),
        help="Folder for what is accepted and not yet in the store. Default: spool/ in $HITMAP_HOME.",
    ),
    click.option(
        "--spool-limit",
        default=_DEFAULTS.spool_limit,
        show_default=True,
        metavar="MB",
        type=click.IntRange(min=1),
        help="When this much waits, senders are asked to try again later.",
    ),
    click.option(
        "--fsync",
        is_flag=True,
        help="Flush the disk before each acknowledgement: safe against power cuts too.",
    ),
    click.option(
        "--max-age",
        default=_DEFAULTS.max_age,
        show_default=True,
        metavar="DAYS",
        type=click.IntRange(1, 900),
        help="Leave out what is older, wherever it comes from.",
    ),
)


def collector_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options as the argument `collector`, a CollectorConfig in which only what was asked for is set."""

    @functools.wraps(function)
    def command(**values: Any) -> Any:
        source = click.get_current_context().get_parameter_source
        settings = {name: values.pop(name) for name in CollectorConfig.model_fields}
        given = {
            name: value for name, value in settings.items() if source(name) is not ParameterSource.DEFAULT
        }
        return function(collector=checked(given), **values)

    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def checked(given: dict[str, Any]) -> CollectorConfig:
    """The configuration that these options make. Raises UsageError with what is wrong, in a line."""
    try:
        return CollectorConfig.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        said = str(first.get("ctx", {}).get("error") or first["msg"])
        raise UsageError(said.replace("set a token", "set a --token")) from None


def store_config(dsn: str | None) -> StoreConfig:
    """The section `store` that the option --store makes."""
    return StoreConfig.model_construct(
        dsn=SecretStr(dsn) if dsn else None
    )  # who connects says what is wrong with it
