"""An example of a configuration file, made from the model so that it names everything with its default."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from hitmap.config.model import CollectorConfig, ServerConfig, StoreConfig

_TEXT_WIDTH = 38


def example() -> str:
    """The file as text: what has a default stands as a comment, so that the file says only what differs."""
    lines = [
        "# hitmap up --config FILE; hitmap config check FILE says what is wrong with it.",
        "# ${NAME} stands for the environment variable NAME; paths start at this file's folder.",
        "store:",
        *_fields(StoreConfig, "  ", {}),
        "collector:",
        *_fields(CollectorConfig, "  ", {}),
        "servers:",
        "  blue:  # the name that reports show",
        *_fields(ServerConfig, "    ", {"url": "http://127.0.0.1:8000"}),
    ]
    return "\n".join(lines) + "\n"


def _fields(model: type[BaseModel], indent: str, values: dict[str, Any]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        given = name in values
        value = values.get(name, field.default)
        text = json.dumps(value) if value is not None else ""
        setting = f"{indent}{'' if given else '# '}{name}: {text}".rstrip()
        yield f"{setting:<{_TEXT_WIDTH}}  # {field.description}"
