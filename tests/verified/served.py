"""The reference engine, small, with a device whose time is a fault's (a pass, and each token in it), and its tokens."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors.torch import save_file

from analysis.prefix_replay.rules import ENGINE
from engine.model import demo
from engine.model.config import read_config
from hitmap.demo.engine_process import engine
from hitmap.prompt_tokens import BodyTokens, body_tokens

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
        home / "engine.log", ["--model", str(_small_model(home / "small")), *_OPTIONS, *slow]
    ) as serving:
        yield serving.url


def its_tokens() -> BodyTokens:
    """By the tokenizer and template that it has."""
    return body_tokens(str(demo.FOLDER))


def _small_model(folder: Path) -> Path:
    config = json.loads((demo.FOLDER / "config.json").read_text())
    config |= {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}
    config |= {"num_key_value_heads": 2, "head_dim": 8}
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(demo.FOLDER / name, folder / name)
    save_file(demo.draw_weights(read_config(folder), 0), folder / "model.safetensors")
    return folder
