"""The reference engine, small, with a device whose time is a fault's (a pass, and each token in it), and its tokens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from analysis.prefix_replay.rules import ENGINE
from engine.model import demo
from hitmap.demo.engine_process import engine
from hitmap.prompt_tokens import BodyTokens, body_tokens
from tests.attributed.live import small_model

CACHE = ENGINE
STEP_MS, TOKEN_MS = 4.0, 0.1
_OPTIONS = (
    "--threads",
    "1",
    "--device-blocks",
    "8192",
    "--host-blocks",
    "0",
    "--max-num-batched-tokens",
    "4096",
)


@contextmanager
def served(home: Path) -> Iterator[str]:
    """The URL of an engine that runs."""
    slow = ["--inject", f"step_ms={STEP_MS}", "--inject", f"token_ms={TOKEN_MS}"]
    with engine(
        home / "engine.log", ["--model", str(small_model(home / "small", layers=1)), *_OPTIONS, *slow]
    ) as serving:
        yield serving.url


def its_tokens() -> BodyTokens:
    """By the tokenizer and template that it has."""
    return body_tokens(str(demo.FOLDER))
