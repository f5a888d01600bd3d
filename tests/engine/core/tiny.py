"""A model small enough for thousands of steps, what it says without any cache, and a core stepped by hand."""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Sequence as Tokens
from typing import Any

import torch

from cachemodel.kv_events import Event
from engine.cache.kv_cache import KVCache
from engine.clock import now_ns
from engine.config import EngineConfig
from engine.core.runner import Runner
from engine.core.sequence import Sequence
from engine.core.stepper import Stepper
from engine.faults import Faults
from engine.model.batch import Batch, Chunk
from engine.model.config import ModelConfig
from engine.model.llama import LayerWeights, Llama, Weights
from engine.model.load import Loaded, load
from engine.model.sampling import Sampler
from engine.observer import Step
from engine.request import Output, Request, Sampling

torch.set_num_threads(1)

VOCABULARY = 67
EOS = 3
MODEL = ModelConfig(
    vocab_size=VOCABULARY,
    hidden_size=16,
    intermediate_size=24,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=4,
    max_position_embeddings=512,
    eos_token_ids=(EOS,),
)
_ids = itertools.count()


def tokens(count: int, head: int = 0) -> list[int]:
    """A prompt; those with another `head` have no block in common."""
    return [(5 * i + head) % VOCABULARY for i in range(count)]


@functools.cache
def model() -> Llama:
    """Seeded random weights, large enough that what comes next depends on all that came before."""
    generator = torch.Generator().manual_seed(7)

    def matrix(rows: int, columns: int) -> torch.Tensor:
        return torch.randn(rows, columns, generator=generator) * (2.0 / rows**0.5)

    hidden, head = MODEL.hidden_size, MODEL.head_dim
    queries, keys = MODEL.num_attention_heads * head, MODEL.num_key_value_heads * head
    layers = tuple(
        LayerWeights(
            input_norm=torch.ones(hidden),
            qkv=matrix(hidden, queries + 2 * keys),
            output=matrix(queries, hidden),
            post_attention_norm=torch.ones(hidden),
            gate_up=matrix(hidden, 2 * MODEL.intermediate_size),
            down=matrix(MODEL.intermediate_size, hidden),
        )
        for _ in range(MODEL.num_hidden_layers)
    )
    weights = Weights(
        embedding=matrix(VOCABULARY, hidden) * 4,
        layers=layers,
        norm=torch.ones(hidden),
        head=matrix(hidden, VOCABULARY),
    )
    return Llama(MODEL, weights)


def next_token(of: Llama, tokens: Tokens[int]) -> int:
    """The greedy next token: one forward pass over all of them into an empty cache."""
    config = of.config
    kv = torch.zeros(config.num_hidden_layers, 2, 1, len(tokens), config.num_key_value_heads, config.head_dim)
    return int(of.forward(Batch(torch.tensor(tokens), (Chunk(0, len(tokens), [0]),)), kv)[0].argmax())


@functools.cache
def _tiny_next(tokens: tuple[int, ...]) -> int:
    return next_token(model(), tokens)


def plain(prompt: Tokens[int], max_tokens: int, *, ignore_eos: bool = False) -> list[int]:
    """What a request must generate: every token by recomputation of everything before it, alone and uncached."""
    output: list[int] = []
    while len(output) < max_tokens:
        output.append(_tiny_next((*prompt, *output)))
        if output[-1] == EOS and not ignore_eos:
            break
    return output


class Seen:
    """An observer that remembers."""

    def __init__(self) -> None:
        self.started: list[Request] = []
        self.finished: list[Request] = []
        self.steps: list[Step] = []
        self.events: list[Event] = []

    def request_started(self, request: Request) -> None:
        self.started.append(request)

    def request_finished(self, request: Request) -> None:
        self.finished.append(request)

    def step_done(self, step: Step) -> None:
        self.steps.append(step)

    def kv_events(self, events: Tokens[Event]) -> None:
        self.events.extend(events)


def request(
    prompt: Tokens[int],
    max_tokens: int = 4,
    *,
    salt: str = "",
    reads_off: bool = False,
    reports_reuse: bool = False,
    **sampling: Any,
) -> Request:
    return Request(
        f"r{next(_ids)}",
        list(prompt),
        Sampling(max_tokens=max_tokens, **sampling),
        salt=salt,
        reads_off=reads_off,
        reports_reuse=reports_reuse,
    )


def settings(**changes: Any) -> EngineConfig:
    """A pool of 32 blocks of 4 tokens, no other tier, chunks of 16 tokens."""
    base: dict[str, Any] = {
        "max_model_len": 256,
        "block_size": 4,
        "device_blocks": 32,
        "host_blocks": 0,
        "max_num_batched_tokens": 16,
        "max_num_seqs": 8,
        "threads": 1,
    }
    return EngineConfig(**(base | changes))


class ByHand:
    """A core without its thread: every step is asked for, the cache checked after it, and freed KV made unusable."""

    def __init__(self, faults: Faults | None = None, **changes: Any) -> None:
        self.config, self.seen, self.faults = settings(**changes), Seen(), faults or Faults()
        self.cache = KVCache(MODEL, self.config, poison=True)
        self.runner = Runner(model(), Sampler(), self.cache, self.faults)
        self.stepper = Stepper(
            self.config, self.runner, self.cache, MODEL.eos_token_ids, self.seen, self.faults, self._ended
        )
        self.outputs: dict[str, list[Output]] = {}
        self._orders = itertools.count()

    def submit(self, prompt: Tokens[int], max_tokens: int = 4, **how: Any) -> Sequence:
        asked = request(prompt, max_tokens, **how)
        outputs = self.outputs.setdefault(asked.request_id, [])
        sequence = Sequence(asked, outputs.append, next(self._orders))
        asked.timeline.enter("queue", now_ns())
        self.stepper.add(sequence)
        return sequence

    def step(self) -> float | None:
        wait_s = self.stepper.step()
        self.cache.check()
        return wait_s

    def drain(self, limit: int = 10_000) -> int:
        """Step until nobody is left; how many steps that took."""
        for steps in range(limit):
            if not self.stepper.scheduler.sequences:
                return steps
            wait_s = self.step()
            if wait_s != 0.0:  # a block is on its way from the disk, or a fault holds somebody
                time.sleep(0.001)
        raise AssertionError(f"{self.stepper.scheduler.sequences} have not ended after {limit} steps")

    def close(self) -> None:
        self.cache.close()

    def _ended(self, sequence: Sequence) -> None:
        sequence.request.timeline.close(now_ns())
        self.seen.request_finished(sequence.request)


@functools.cache
def loaded() -> Loaded:
    """The tiny model with the demo's tokenizer, most of whose ids it does not have: for prompts of token ids."""
    return Loaded(model(), MODEL, load(settings()).tokenizer)
