"""A real server in this process: sockets, core, telemetry, and a model so small that a token takes a millisecond."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import tokenizers
import torch
from tokenizers.processors import TemplateProcessing

from engine.config import EngineConfig
from engine.model import demo
from engine.model.config import read_config
from engine.model.llama import Llama
from engine.model.load import Loaded
from engine.model.tokenizer import read_tokenizer
from engine.model.weights import assemble
from engine.serve import EngineServer, ServeOptions
from engine.serving.connection import allow_connections
from engine.telemetry import TelemetryConfig


@functools.cache
def tiny() -> Loaded:
    """Seeded random weights behind the demo's tokenizer."""
    torch.set_num_threads(1)
    config = replace(
        read_config(demo.FOLDER),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
    )
    tokenizer = read_tokenizer(demo.FOLDER, demo.NAME, config.eos_token_ids)
    tensors = demo.draw_weights(config, 0, demo.unreadable(tokenizer, config.vocab_size))
    return Loaded(
        Llama(config, assemble(config, tensors, torch.device("cpu"), torch.float32)), config, tokenizer
    )


def settings(**changes: Any) -> EngineConfig:
    """Tiers device and host, blocks of 16 tokens; `changes` are EngineConfig's fields."""
    base: dict[str, Any] = {
        "served_model_name": "tiny",
        "device_blocks": 512,
        "host_blocks": 512,
        "threads": 1,
    }
    return EngineConfig(**(base | changes))


@contextmanager
def serving(
    engine: EngineConfig | None = None,
    telemetry: TelemetryConfig | None = None,
    *,
    loaded: Loaded | None = None,
    **options: Any,
) -> Iterator[EngineServer]:
    """A server, on free ports unless told, its event loop in a thread of its own. options: others of ServeOptions.

    What it yields has url, grpc_port, engine, faults and telemetry. The model is `tiny()` unless told.
    """
    allow_connections()
    free: dict[str, Any] = {"port": 0, "grpc_port": 0}
    asked = ServeOptions(
        engine=engine or settings(), telemetry=telemetry or TelemetryConfig(), **(free | options)
    )
    server = EngineServer(asked, loaded=loaded or tiny())
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="live-engine")
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.start(), loop).result(30)
        try:
            yield server
        finally:
            asyncio.run_coroutine_threadsafe(server.stop(1), loop).result(30)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


def give_begin_token(server: EngineServer, monkeypatch: pytest.MonkeyPatch) -> int:
    """Have the tokenizer put one before a bare text, as Llama's does; its id."""
    tokenizer = server.frontend.tokenizer
    rules = tokenizers.Tokenizer.from_str(tokenizer._rules.to_str())
    begin = int(rules.token_to_id("<|begin|>"))
    rules.post_processor = TemplateProcessing("<|begin|> $A", special_tokens=[("<|begin|>", begin)])
    monkeypatch.setattr(tokenizer, "_rules", rules)
    return begin


def eventually(what: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Whether it comes true in time."""
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def is_idle(server: EngineServer) -> bool:
    """Nobody runs, waits or holds a block."""
    stats = server.engine.stats()
    used = sum(tier.used for tier in stats.cache.tiers.values())
    return stats.running == stats.waiting == used == 0 and not server.frontend.active
