"""How a dialect names metrics and reads a log: what its detector would hand to `attach`."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

from collector.detection import LineReader
from collector.metric import resolve
from collector.series import Resolver


def resolver(kind: str) -> Resolver:
    """The canonical names of a dialect's metrics."""
    module: Any = importlib.import_module(f"collector.dialects.{kind}.metrics")
    return partial(resolve, module.METRICS)


def log_reader(kind: str) -> Callable[[str], LineReader]:
    """Makes readers of a dialect's log, from the server's name."""
    module: Any = importlib.import_module(f"collector.dialects.{kind}.log")
    reader: Callable[[str], LineReader] = module.reader
    return reader
