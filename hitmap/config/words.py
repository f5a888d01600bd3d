"""Advice that names options, in the words of the configuration file: `hitmap up` has settings in their place."""

from __future__ import annotations

import re

from hitmap.config.model import CollectorConfig, ServerConfig, StoreConfig

_PLACES = {
    **dict.fromkeys(ServerConfig.model_fields, ""),
    **dict.fromkeys(CollectorConfig.model_fields, "collector."),
    **dict.fromkeys(StoreConfig.model_fields, "store."),
}
_SWITCHES = {"--kv-bind": "kv_bind: true", "--kv-connect": "kv_bind: false", "--drain": "drain: true"}
_OPTION = re.compile(r"(?<![\w-])--[a-z]+(?:-[a-z]+)*")


def as_settings(advice: str) -> str:
    """The text with the settings of the file in place of the options that mean the same; others stay."""
    return _OPTION.sub(_setting, advice)


def _setting(option: re.Match[str]) -> str:
    name = option[0].removeprefix("--").replace("-", "_")
    if switch := _SWITCHES.get(option[0]):
        return switch
    return f"{_PLACES[name]}{name}" if name in _PLACES else option[0]
