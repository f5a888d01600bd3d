"""The demo model is the same everywhere, and its text is varied enough to show what went wrong."""

from __future__ import annotations

import hashlib
import subprocess
import sys

import pytest
import torch

from engine.config import EngineConfig
from engine.model import demo
from engine.model.batch import Batch, Chunk
from engine.model.load import Loaded, load
from engine.model.weights import shapes
from tests.engine.model.models import empty_pool

PROMPTS = [
    f"{topic} {word}?" for topic in ("Why is the cache", "Who") for word in ("cold", "slow", "evicted", "new")
]
LENGTH = 40


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    return load(EngineConfig())


@pytest.fixture(scope="module")
def said(loaded: Loaded) -> list[list[int]]:
    """What the model says greedily to each prompt, decoded together; end tokens do not stop it."""
    prompts = [
        loaded.tokenizer.encode(loaded.tokenizer.chat_prompt([{"role": "user", "content": p}]))
        for p in PROMPTS
    ]
    kv = empty_pool(loaded.config, 8 * len(prompts), 16)
    tables = [range(8 * row, 8 * row + 8) for row in range(len(prompts))]
    sequences = [list(prompt) for prompt in prompts]
    sizes = [len(prompt) for prompt in prompts]
    for _ in range(LENGTH):
        ids = [token for one, size in zip(sequences, sizes, strict=True) for token in one[-size:]]
        chunks = tuple(
            Chunk(len(one) - size, size, table)
            for one, size, table in zip(sequences, sizes, tables, strict=True)
        )
        chosen = loaded.model.forward(Batch(torch.tensor(ids), chunks), kv).argmax(-1).tolist()
        for one, token in zip(sequences, chosen, strict=True):
            one.append(token)
        sizes = [1] * len(prompts)
    return [one[len(prompt) :] for one, prompt in zip(sequences, prompts, strict=True)]


def test_the_weights_are_the_same_on_every_machine(loaded: Loaded) -> None:
    mute = demo.unreadable(loaded.tokenizer, loaded.config.vocab_size)
    digest = hashlib.sha256()
    for name, tensor in demo.draw_weights(loaded.config, 0, mute).items():
        digest.update(name.encode() + tensor.numpy().tobytes())
    assert digest.hexdigest() == "7a5906295675f06ae7affd8a55cb3cc193f5e4598637d0171ea401e69f0f8883"


def test_another_seed_is_another_model(loaded: Loaded) -> None:
    one, other = demo.draw_weights(loaded.config, 1), demo.draw_weights(loaded.config, 2)
    assert one.keys() == shapes(loaded.config).keys()
    assert all(not torch.equal(one[name], other[name]) for name in one if one[name].dim() == 2)


def test_its_text_is_varied_and_depends_on_the_prompt(said: list[list[int]]) -> None:
    assert len({tuple(one[:4]) for one in said}) == len(PROMPTS)
    assert all(len(set(one)) > LENGTH / 2 for one in said)


def test_it_says_readable_pieces_and_seldom_the_end(loaded: Loaded, said: list[list[int]]) -> None:
    for one in said:
        text = loaded.tokenizer.decode(one)
        assert text.replace("\n", " ").isprintable()
        assert "\ufffd" not in text
    ends = sum(token in loaded.tokenizer.eos_token_ids for one in said for token in one)
    assert ends <= 4
    assert not any(one[0] in loaded.tokenizer.eos_token_ids for one in said)


def test_the_command_line_needs_no_torch() -> None:
    code = "import sys, hitmap.cli; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
