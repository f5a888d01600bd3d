"""Logits are those of transformers, however a prompt is cut, wherever its KV lies and whoever shares the step."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from engine.model.batch import Batch, Chunk
from engine.model.llama import Llama
from tests.engine.model.models import BLOCK, empty_pool, loaded, one_shot, write

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
KINDS: dict[str, dict[str, Any]] = {
    "grouped heads": {},
    "a head of its own for each": {"num_key_value_heads": 4},
    "one head for all": {"num_key_value_heads": 1},
    "tied embedding": {"tie_word_embeddings": True},
    "wide heads": {"head_dim": 20},
    "llama 3 rope": {"rope_parameters": LLAMA3},
    "another theta and eps": {
        "rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
        "rms_norm_eps": 1e-3,
    },
}
IDS = random.Random(1).sample(range(2048), 200)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Llama:
    folder = tmp_path_factory.mktemp("model")
    write(folder)
    return loaded(folder).model


@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_transformers(tmp_path: Path, kind: str) -> None:
    reference = write(tmp_path, **KINDS[kind])
    with torch.no_grad():
        wanted = reference(torch.tensor([IDS])).logits[0]
    model = loaded(tmp_path).model
    assert wanted.std() > 0.5
    for length in (1, 2, 17, 200):
        torch.testing.assert_close(one_shot(model, IDS[:length]), wanted[length - 1], atol=1e-4, rtol=0)


def test_bfloat16_is_near_float32(tmp_path: Path) -> None:
    reference = write(tmp_path)
    half = loaded(tmp_path, dtype="bfloat16").model
    kv = empty_pool(half.config, 50).bfloat16()
    logits = half.forward(Batch(torch.tensor(IDS), (Chunk(0, 200, range(50)),)), kv)[0]
    with torch.no_grad():
        wanted = reference(torch.tensor([IDS])).logits[0, -1]
    assert logits.dtype == torch.float32
    assert (logits - wanted).norm() / wanted.norm() < 0.03


def test_a_saved_bfloat16_model_runs_in_float32(tmp_path: Path) -> None:
    write(tmp_path).bfloat16().save_pretrained(tmp_path)
    reference = transformers.LlamaForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    with torch.no_grad():
        wanted = reference(torch.tensor([IDS])).logits[0, -1]
    torch.testing.assert_close(one_shot(loaded(tmp_path).model, IDS), wanted, atol=1e-4, rtol=0)


def test_a_sharded_model_is_the_same_model(tmp_path: Path) -> None:
    write(tmp_path / "one")
    write(tmp_path / "many").save_pretrained(tmp_path / "many", max_shard_size="100KB")
    (tmp_path / "many" / "model.safetensors").unlink()
    assert len(list((tmp_path / "many").glob("*.safetensors"))) > 1
    one, many = loaded(tmp_path / "one").model, loaded(tmp_path / "many").model
    assert torch.equal(one_shot(one, IDS), one_shot(many, IDS))


@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=4),
    most=st.integers(1, 25),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=40)
def test_however_it_is_cut_and_mixed(model: Llama, lengths: list[int], most: int, seed: int) -> None:
    """Sequences advance in random chunks, some together in a step, over blocks scattered at random. Every slot that is
    not theirs is poison, and so is each of their own until it is written."""
    draw = random.Random(seed)
    prompts = [draw.choices(range(2048), k=length) for length in lengths]
    blocks = draw.sample(range(80), 80)
    tables = [[blocks.pop() for _ in range(-(-length // BLOCK))] for length in lengths]
    if draw.random() < 0.5:
        tables = [sorted(table) for table in tables]
    kv = empty_pool(model.config, 80)
    done, logits = [0] * len(prompts), {}
    while running := [one for one, prompt in enumerate(prompts) if done[one] < len(prompt)]:
        step = draw.sample(running, draw.randint(1, len(running)))
        sizes = [min(draw.randint(1, most), len(prompts[one]) - done[one]) for one in step]
        chunks = tuple(Chunk(done[one], size, tables[one]) for one, size in zip(step, sizes, strict=True))
        ids = [
            torch.tensor(prompts[one][chunk.start : chunk.end])
            for one, chunk in zip(step, chunks, strict=True)
        ]
        out = model.forward(Batch(torch.cat(ids), chunks), kv)
        for row, one in enumerate(step):
            done[one] += sizes[row]
            logits[one] = out[row]
    for one, prompt in enumerate(prompts):
        wanted = one_shot(model, prompt)
        torch.testing.assert_close(logits[one], wanted, atol=1e-5, rtol=0)
        assert logits[one].argmax() == wanted.argmax()


def test_only_the_chunk_s_slots_are_written(model: Llama) -> None:
    kv = empty_pool(model.config, 8)
    model.forward(Batch(torch.tensor(IDS[:6]), (Chunk(0, 6, (5, 2)),)), kv)
    written = ~kv.isnan().flatten(4).any(-1)
    assert {tuple(place) for place in written.all(0).all(0).nonzero().tolist()} == {
        (5, 0), (5, 1), (5, 2), (5, 3), (2, 0), (2, 1)
    }  # fmt: skip
    assert written.sum() == 6 * 2 * 2


@pytest.mark.parametrize("tokens", [10, 1], ids=["prefill", "decode"])
def test_adjacent_blocks_are_read_in_place_and_scattered_ones_copied_and_counted(
    model: Llama, monkeypatch: pytest.MonkeyPatch, tokens: int
) -> None:
    kv = empty_pool(model.config, 8)
    pool = range(kv.data_ptr(), kv.data_ptr() + kv.nbytes)
    attend, in_place = functional.scaled_dot_product_attention, set[bool]()

    def spy(query: Any, key: torch.Tensor, value: torch.Tensor, **more: Any) -> Any:
        in_place.update((key.data_ptr() in pool, value.data_ptr() in pool))
        return attend(query, key, value, **more)

    for table, there, copied in (((3, 4, 5), True, 0), ((3, 5, 4), False, 3)):
        model.forward(Batch(torch.tensor(IDS[:9]), (Chunk(0, 9, table),)), kv)
        before = model.gathered_bytes
        with monkeypatch.context() as patch:
            patch.setattr(functional, "scaled_dot_product_attention", spy)
            model.forward(Batch(torch.tensor(IDS[:tokens]), (Chunk(10 - tokens, tokens, table),)), kv)
        assert in_place == {there}
        # blocks of 4 tokens, 2 layers, key and value, 2 heads of 8 float32
        assert model.gathered_bytes - before == copied * 4 * 2 * 2 * 2 * 8 * 4
        in_place.clear()


def test_it_keeps_nothing_for_autograd(model: Llama) -> None:
    logits = one_shot(model, IDS[:3])
    assert logits.is_inference()
    assert not logits.requires_grad


@pytest.mark.parametrize("chunks", [(), (Chunk(0, 2, (0,)),), (Chunk(0, 3, (0,)), Chunk(0, 0, (1,)))])
def test_chunks_that_do_not_fit_the_ids_are_refused(chunks: tuple[Chunk, ...]) -> None:
    with pytest.raises(ValueError, match="do not fit token ids"):
        Batch(torch.tensor([1, 2, 3]), chunks)


def test_a_table_without_room_and_an_id_outside_the_vocabulary_are_refused(model: Llama) -> None:
    kv = empty_pool(model.config, 4)
    with pytest.raises(IndexError):
        model.forward(Batch(torch.tensor(IDS[:5]), (Chunk(0, 5, (0,)),)), kv)
    for outside in (2048, -1):
        with pytest.raises(IndexError):
            model.forward(Batch(torch.tensor([outside]), (Chunk(0, 1, (0,)),)), kv)
    assert kv.isnan().all()
