"""A model is loaded whole or refused with a line that names the file and what is wrong with it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from cachemodel.errors import UserError
from engine.config import EngineConfig
from engine.model.config import ModelConfig, RopeScaling, read_config
from engine.model.load import load
from tests.engine.model.models import SIZES, change, loaded, write

NORM = "model.norm.weight"
DOWN = "model.layers.1.mlp.down_proj.weight"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    write(folder)
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """A good model, to be damaged."""
    return Path(shutil.copytree(saved, tmp_path / "a-model"))


def _weights(folder: Path, edit: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = load_file(folder / "model.safetensors")
    edit(tensors)
    save_file(tensors, folder / "model.safetensors")


def _cut(path: Path, share: float) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])


WEIGHTS: dict[str, tuple[Callable[[dict[str, torch.Tensor]], object], str]] = {
    "missing tensor": (lambda t: t.pop(DOWN), f"a-model: the weights lack {DOWN};"),
    "extra tensor": (
        lambda t: t.update(spare=torch.ones(1)),
        "model.safetensors: spare belongs to no part",
    ),
    "wrong shape": (
        lambda t: t.update({NORM: torch.ones(33)}),
        rf"{NORM} has shape \[33\]; config.json asks for \[32\]",
    ),
    "whole numbers": (lambda t: t.update({NORM: torch.ones(32, dtype=torch.int8)}), f"{NORM} is I8"),
    "not a number": (lambda t: t[DOWN][3, 4].fill_(torch.nan), f"model.safetensors: {DOWN} holds values"),
    "infinite": (lambda t: t[NORM][0].fill_(-torch.inf), f"model.safetensors: {NORM} holds values"),
}


@pytest.mark.parametrize("defect", WEIGHTS)
def test_weights_that_do_not_fit_are_refused(folder: Path, defect: str) -> None:
    edit, message = WEIGHTS[defect]
    _weights(folder, edit)
    with pytest.raises(UserError, match=message):
        loaded(folder)


FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "truncated": (lambda f: _cut(f / "model.safetensors", 0.5), "model.safetensors is damaged"),
    "cut within the header": (lambda f: _cut(f / "model.safetensors", 0.001), "model.safetensors is damaged"),
    "empty": (lambda f: (f / "model.safetensors").write_bytes(b""), "model.safetensors is damaged"),
    "absurd header": (lambda f: (f / "model.safetensors").write_bytes(b"\xff" * 64), "model.safetensors is damaged"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), r"a-model: no \*.safetensors file"),
    "two files": (lambda f: shutil.copy(f / "model.safetensors", f / "b.safetensors"), "2 safetensors files and no"),
    "missing shard": (lambda f: _index(f, {NORM: "gone.safetensors"}), "gone.safetensors is missing"),
    "shard elsewhere": (lambda f: _index(f, {NORM: "../model.safetensors"}), "weight_map does not map"),
    "shard of no name": (lambda f: _index(f, {NORM: "\ud800.safetensors"}), "weight_map does not map"),
    "shard above": (lambda f: _index(f, {NORM: ".."}), "weight_map does not map"),
    "index of nothing": (lambda f: _index(f, None), "weight_map does not map"),
    "the same tensor twice": (
        lambda f: (_index(f, {"1": "b.safetensors", "2": "model.safetensors"}), _spare(f / "b.safetensors")),
        f"model.safetensors: {NORM} is in b.safetensors too",
    ),
    "no config": (lambda f: (f / "config.json").unlink(), "config.json is missing"),
    "config is no JSON": (lambda f: (f / "config.json").write_text("{"), "config.json cannot be read as JSON"),
    "config is a list": (lambda f: (f / "config.json").write_text("[]"), "config.json holds no JSON object"),
    "config is not text": (lambda f: (f / "config.json").write_bytes(b"\xff\xfe\xfd"), "config.json cannot be read"),
    "no tokenizer": (lambda f: (f / "tokenizer.json").unlink(), "tokenizer.json is missing"),
    "tokenizer is none": (lambda f: (f / "tokenizer.json").write_text("{}"), "tokenizer.json is no tokenizer"),
    "tokenizer is not text": (lambda f: (f / "tokenizer.json").write_bytes(b"\xff"), "tokenizer.json is no tokenizer"),
    "tokenizer that panics": (
        lambda f: change(f / "tokenizer.json", normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
        "tokenizer.json is no tokenizer",
    ),
    "bad template": (lambda f: (f / "chat_template.jinja").write_text("{% if %}"), "the chat template cannot be read"),
    "template is a folder": (
        lambda f: ((f / "chat_template.jinja").unlink(missing_ok=True), (f / "chat_template.jinja").mkdir()),
        "chat_template.jinja cannot be read: Is a directory",
    ),
    "endless template": (lambda f: (f / "chat_template.jinja").write_text("{{" + "(" * 9999), "template cannot"),
    "template of a huge number": (lambda f: (f / "chat_template.jinja").write_text("{{ 9**9999 }}"), "template cannot"),
}  # fmt: skip


def _spare(path: Path) -> None:
    save_file({NORM: torch.ones(32)}, path)


def _index(folder: Path, files: dict[str, str] | None) -> None:
    path = folder / "model.safetensors.index.json"
    path.write_text("{}")
    change(path, weight_map=files)


@pytest.mark.parametrize("defect", FILES)
def test_files_that_are_not_whole_are_refused(folder: Path, defect: str) -> None:
    damage, message = FILES[defect]
    damage(folder)
    with pytest.raises(UserError, match=message) as caught:
        loaded(folder)
    assert "\n" not in str(caught.value)


CONFIGS: dict[str, tuple[dict[str, Any], str]] = {
    "another architecture": ({"architectures": ["Qwen3ForCausalLM"]}, "Qwen3ForCausalLM.*; this engine runs Llama"),
    "no architecture": ({"architectures": None}, "architectures is None"),
    "another activation": ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
    "biases": ({"attention_bias": True}, "attention_bias is True"),
    "quantised": ({"quantization_config": {"bits": 4}}, "the weights are quantised"),
    "no layers": ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
    "absurdly deep": ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000"),
    "absurdly wide": ({"hidden_size": 10**12}, "hidden_size is 1000000000000"),
    "wide within reason": ({"hidden_size": 1 << 20, "head_dim": 8}, r"has shape .*; config.json asks for \[.*1048576"),
    "half a layer": ({"num_hidden_layers": 1.5}, "num_hidden_layers is 1.5"),
    "a text": ({"vocab_size": "2048"}, "vocab_size is '2048'"),
    "heads that cannot share": ({"num_key_value_heads": 3}, "4 attention heads cannot share 3"),
    "odd heads": ({"head_dim": 7}, "head_dim is 7"),
    "another rope": ({"rope_parameters": {"rope_type": "yarn"}}, "rope scaling of type 'yarn'"),
    "half a rope": ({"rope_parameters": {"rope_type": "llama3"}}, "low_freq_factor is None"),
    "no rope": ({"rope_parameters": [1]}, "rope_scaling is"),
    "theta": ({"rope_parameters": {"rope_theta": float("nan")}}, "rope_theta is nan"),
    "eps": ({"rms_norm_eps": -1}, "rms_norm_eps is -1"),
    "eos outside": ({"eos_token_id": 2048}, "lies outside the 2048 tokens"),
    "eos is a text": ({"eos_token_id": "</s>"}, "eos_token_id is '</s>'"),
    "fewer tokens than the tokenizer": ({"vocab_size": 2000}, "tokenizer.json has 2048 tokens, more than the 2000"),
}  # fmt: skip


@pytest.mark.parametrize("defect", CONFIGS)
def test_a_config_that_is_no_llama_s_is_refused(folder: Path, defect: str) -> None:
    values, message = CONFIGS[defect]
    (folder / "generation_config.json").unlink()
    change(folder / "config.json", **values)
    with pytest.raises(UserError, match=message) as caught:
        loaded(folder)
    assert re.search("a-model", str(caught.value))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": "no/such/folder"}, "no/such/folder is no folder"),
        ({"dtype": "int8"}, "dtype 'int8' is not served"),
        ({"device": "quantum"}, "device 'quantum' is not known"),
        ({"device": "meta"}, "device 'meta' is not served"),
        ({"max_model_len": 1 << 20}, "max_model_len is 1048576; .* 32768 tokens at most"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        load(EngineConfig(**settings))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_said() -> None:
    with pytest.raises(UserError, match="torch sees no GPU here"):
        load(EngineConfig(device="cuda"))


def test_the_config_of_transformers_4_is_read_too(folder: Path) -> None:
    llama3 = {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    scaling = llama3 | {"original_max_position_embeddings": 8192}
    change(
        folder / "config.json",
        rope_parameters=None,
        rope_theta=5e5,
        rope_scaling=scaling,
        eos_token_id=[5, 1],
    )
    change(folder / "generation_config.json", eos_token_id=[7, 5])
    config = read_config(folder)
    assert (config.rope_theta, config.rope_scaling) == (5e5, RopeScaling(32.0, 1.0, 4.0, 8192))
    assert config.eos_token_ids == (5, 1, 7)


def test_what_a_config_says_is_what_the_model_is(folder: Path) -> None:
    names = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    found = loaded(folder)
    assert found.config == found.model.config == read_config(folder)
    assert [getattr(found.config, name) for name in names] == [SIZES[name] for name in names]
    assert (found.config.head_dim, found.config.num_key_value_heads, found.config.eos_token_ids) == (
        8,
        2,
        (1,),
    )
    assert found.tokenizer.name == "a-model"


def test_the_tokenizer_s_end_token_counts_where_the_config_has_none(folder: Path) -> None:
    (folder / "generation_config.json").unlink()
    change(folder / "config.json", eos_token_id=None)
    (folder / "tokenizer_config.json").write_text('{"eos_token": "<|end|>"}')
    found = loaded(folder)
    assert found.config.eos_token_ids == found.tokenizer.eos_token_ids == (1,)


def test_tensors_that_can_be_computed_may_be_there(folder: Path) -> None:
    _weights(folder, lambda t: t.update({"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}))
    assert isinstance(loaded(folder).config, ModelConfig)
