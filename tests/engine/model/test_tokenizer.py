"""Text survives ids; pieces join to the whole; a chat becomes the prompt its template says."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import transformers
from hypothesis import given
from hypothesis import strategies as st

from cachemodel.errors import UserError
from engine.errors import RequestError
from engine.model import demo
from engine.model.tokenizer import Tokenizer, read_tokenizer

TOKENIZER = read_tokenizer(demo.FOLDER, "demo", (1,))
TEXTS = st.text(st.characters(codec="utf-8"), max_size=60)
BYTES = st.binary(min_size=1, max_size=24)


@given(TEXTS)
def test_any_text_survives(text: str) -> None:
    if "<|" not in text:
        assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


def test_ordinary_english_is_shorter_in_tokens() -> None:
    text = "Which cache layer does your latency come from, and what would get it back? "
    assert len(TOKENIZER.encode(text * 10)) < len(text * 10) / 2.5


@given(text=TEXTS, cuts=st.lists(st.integers(1, 5), min_size=1, max_size=10))
def test_pieces_join_to_the_whole_and_split_no_character(text: str, cuts: list[int]) -> None:
    ids = TOKENIZER.encode(text)
    pieces = _pieces(TOKENIZER, ids, cuts)
    assert "".join(pieces) == TOKENIZER.decode(ids)
    assert all(piece.count("\ufffd") <= text.count("\ufffd") for piece in pieces)


@given(content=BYTES, cuts=st.lists(st.integers(1, 3), min_size=1, max_size=6))
def test_pieces_join_to_the_whole_also_where_it_is_no_utf_8(content: bytes, cuts: list[int]) -> None:
    ids = [_byte_token(one) for one in content]
    wanted = content.decode(errors="replace")
    assert TOKENIZER.decode(ids) == wanted
    assert "".join(_pieces(TOKENIZER, ids, cuts)) == wanted


def test_a_character_in_four_tokens_comes_when_it_is_whole() -> None:
    detokenizer = TOKENIZER.detokenizer()
    said = [detokenizer.push([_byte_token(one)]) for one in "a🧭b".encode()]
    assert said == ["a", "", "", "", "🧭", "b"]
    assert detokenizer.push([_byte_token(0xF0)]) == ""
    assert detokenizer.finish() == "\ufffd"
    assert detokenizer.finish() == ""


def test_words_keep_their_space_where_a_decoder_drops_the_first(tmp_path: Path) -> None:
    """As Llama 2's does: a token's text depends on whether it is the first."""
    rules = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({"▁hello": 0, "▁big": 1, "▁world": 2}, unk_token="▁big")
    )
    rules.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    rules.decoder = tokenizers.decoders.Metaspace()
    rules.add_special_tokens(["</s>"])
    rules.save(str(tmp_path / "tokenizer.json"))
    tokenizer = read_tokenizer(tmp_path, "llama2", ())
    assert _pieces(tokenizer, tokenizer.encode("hello big world"), [1]) == ["hello", " big", " world", ""]
    assert _pieces(tokenizer, [0, 3, 2], [1]) == ["hello", "", " world", ""]


def _pieces(tokenizer: Tokenizer, ids: list[int], cuts: list[int]) -> list[str]:
    detokenizer, pieces = tokenizer.detokenizer(), []
    for cut in itertools.cycle(cuts):
        if not ids:
            return [*pieces, detokenizer.finish()]
        pieces.append(detokenizer.push(ids[:cut]))
        ids = ids[cut:]
    raise AssertionError


def _byte_token(value: int) -> int:
    vocabulary = json.loads((demo.FOLDER / "tokenizer.json").read_text())["model"]["vocab"]
    return int(vocabulary[_BYTE_NAMES[value]])


_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = (one for one in range(256) if one not in _PRINTABLE)
_BYTE_NAMES = {one: chr(one) for one in _PRINTABLE} | {one: chr(256 + n) for n, one in enumerate(_OTHERS)}


def test_half_a_surrogate_pair_is_refused() -> None:
    with pytest.raises(RequestError, match="half a surrogate pair at character 2"):
        TOKENIZER.encode("ab\ud83d")


def test_a_chat_is_what_the_demo_s_template_says() -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": [{"type": "text", "text": "Is 1 < 2?"}, {"type": "text", "text": "Say."}],
        },
        {"role": "assistant", "content": None, "tool_calls": [_call('{"a": "é<"}')]},
        {"role": "tool", "tool_call_id": "x", "content": "true"},
        {"role": "developer", "content": "Go on."},
    ]
    tools = [{"type": "function", "function": {"name": "less"}}]
    prompt = TOKENIZER.chat_prompt(messages, tools)
    assert prompt == (
        '<|begin|><|tools|>[{"type": "function", "function": {"name": "less"}}]<|end|>'
        "<|system|>Be brief.<|end|><|user|>Is 1 < 2?\nSay.<|end|>"
        '<|assistant|><|call|>{"name": "less", "arguments": {"a": "é<"}}<|end|>'
        "<|tool|>true<|end|><|system|>Go on.<|end|><|assistant|>"
    )
    ids = TOKENIZER.encode(prompt)
    assert (ids[0], ids.count(1), TOKENIZER.decode(ids[:2])) == (0, 6, "")


def _call(arguments: str) -> dict[str, Any]:
    return {"id": "x", "type": "function", "function": {"name": "less", "arguments": arguments}}


def test_a_longer_conversation_begins_as_the_shorter_one() -> None:
    """Or no prefix cache could serve its second turn."""
    turns = [{"role": "user", "content": "One."}, {"role": "assistant", "content": "Two."}]
    first, second = TOKENIZER.chat_prompt(turns[:1]), TOKENIZER.chat_prompt([*turns, *turns[:1]])
    assert second.startswith(first + "Two.<|end|>")


def test_a_template_of_transformers_renders_as_there(tmp_path: Path) -> None:
    """Whitespace control, loop controls, tojson and special tokens are those of transformers."""
    source = """{% for message in messages %}
    {%- if message.role == 'skip' %}{% continue %}{% endif %}
    {{ bos_token }}[{{ message | tojson(indent=2) }}]
{% endfor %}
{% if add_generation_prompt %}go{{ eos_token }}{% endif %}"""
    shutil.copy(demo.FOLDER / "tokenizer.json", tmp_path)
    settings = {"bos_token": {"content": "<|begin|>"}, "eos_token": "<|end|>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings | {"chat_template": source}))
    reference = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(tmp_path / "tokenizer.json"), bos_token="<|begin|>", eos_token="<|end|>"
    )
    messages = [{"role": "user", "content": "<b> & é"}, {"role": "skip", "content": ""}]
    wanted = reference.apply_chat_template(
        messages, chat_template=source, tokenize=False, add_generation_prompt=True
    )
    tokenizer = read_tokenizer(tmp_path, "it", ())
    assert tokenizer.chat_prompt(messages) == wanted
    assert tokenizer.eos_token_ids == (1,)


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ({"role": "wizard", "content": "x"}, 'a message has the role "wizard"'),
        ({"role": "user", "content": 5}, "content is a text or a list of parts"),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]},
            "'image_url' is not served",
        ),
        ({"role": "user", "content": ["x"]}, "content part of type 'x'"),
        ({"content": "x"}, "a message needs a role"),
    ],
)
def test_messages_that_make_no_prompt_are_refused(message: dict[str, Any], said: str) -> None:
    with pytest.raises(RequestError, match=said) as caught:
        TOKENIZER.chat_prompt([message])
    assert caught.value.param == "messages"


def test_a_template_cannot_reach_out(tmp_path: Path) -> None:
    shutil.copy(demo.FOLDER / "tokenizer.json", tmp_path)
    (tmp_path / "chat_template.jinja").write_text("{{ messages.__class__.__mro__[1].__subclasses__() }}")
    with pytest.raises(RequestError, match="unsafe"):
        read_tokenizer(tmp_path, "it", ()).chat_prompt([{"role": "user", "content": "x"}])


def test_without_a_template_there_is_no_chat(tmp_path: Path) -> None:
    shutil.copy(demo.FOLDER / "tokenizer.json", tmp_path)
    with pytest.raises(RequestError, match="no chat template"):
        read_tokenizer(tmp_path, "it", ()).chat_prompt([])
    (tmp_path / "tokenizer_config.json").write_text("[]")
    with pytest.raises(UserError, match=r"tokenizer_config\.json holds no JSON object"):
        read_tokenizer(tmp_path, "it", ())


@pytest.mark.parametrize(
    "source", ["{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}", "{{ none.x.y }}", "{{ 1 / 0 }}"]
)
def test_a_template_that_fails_refuses_the_messages(tmp_path: Path, source: str) -> None:
    shutil.copy(demo.FOLDER / "tokenizer.json", tmp_path)
    (tmp_path / "chat_template.jinja").write_text(source)
    with pytest.raises(RequestError, match="the model's chat template cannot make a prompt"):
        read_tokenizer(tmp_path, "it", ()).chat_prompt([{"role": "user", "content": "x"}])


def test_arguments_of_a_call_that_are_nested_too_deep_stay_a_text() -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": "[" * 9999}}
    assert "[" * 9999 in TOKENIZER.chat_prompt([{"role": "assistant", "tool_calls": [call]}])


def test_a_text_that_the_vocabulary_cannot_spell_is_refused(tmp_path: Path) -> None:
    rules = json.loads((demo.FOLDER / "tokenizer.json").read_text())
    rules["model"] = {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "[UNK]"}
    (tmp_path / "tokenizer.json").write_text(json.dumps(rules))
    with pytest.raises(RequestError, match="the tokenizer has no tokens for this text"):
        read_tokenizer(tmp_path, "it", ()).encode("b")
