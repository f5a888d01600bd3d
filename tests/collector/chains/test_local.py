"""The local tokenizer: as many tokens as vLLM counted, and pieces that come to the same as the whole."""

from __future__ import annotations

import json
import shutil
from array import array
from itertools import pairwise
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from cachemodel.errors import UserError
from collector.chains import local
from collector.chains.local import NO_TEMPLATE, NOT_TEXT, LocalTokenizer, read_tokenizer
from collector.chains.tokens import Pieces, Untokenizable, lines
from tests.collector.chains.support import prompt, recorded

Pair = tuple[LocalTokenizer, tokenizers.Tokenizer]
HI = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def model(run1: Path) -> Path:
    """The tokenizer of the recorded server."""
    return run1.parent / "model"


def test_every_count_is_the_servers(run1: Path, model: Path) -> None:
    tokenizer = read_tokenizer(model)
    counts = [(len(tokenizer.tokens(sent).ids), sent.counted) for _, sent in recorded(run1)]
    told = [(mine, theirs) for mine, theirs in counts if theirs is not None]
    assert len(told) == 173
    assert [pair for pair in told if pair[0] != pair[1]] == []
    # of the two that were aborted the server's own counters tell the sum
    assert sum(mine for mine, theirs in counts if theirs is None) == 1_179


PATTERNS = {
    "GPT-2": None,
    "Llama 3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    "o200k": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ll)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ll)?|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}
"""How models of several families split texts into words before they make tokens of them (their tokenizer.json)."""


def splitting(model: Path, words: object) -> tokenizers.Tokenizer:
    """The recorded server's tokenizer with another way to split texts into words."""
    rules = json.loads((model / "tokenizer.json").read_text())
    return tokenizers.Tokenizer.from_str(json.dumps(rules | {"pre_tokenizer": words}))


def by_pattern(pattern: str | None) -> dict[str, object]:
    by_bytes = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    if pattern is None:
        return by_bytes | {"use_regex": True}
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [split, by_bytes | {"use_regex": False}]}


@pytest.fixture(scope="module")
def families(model: Path) -> list[Pair]:
    told = list[Pair]()
    for pattern in PATTERNS.values():
        library = splitting(model, by_pattern(pattern))
        ours = LocalTokenizer(library, None, "")
        assert ours._cut is lines
        ours._seen = local.CHECK_FIRST + 1
        told.append((ours, library))
    return told


@settings(max_examples=200)
@given(
    st.lists(
        st.sampled_from(
            [
                *(
                    "<|im_start|>",
                    "<|im_end|>",
                    "<s>",
                    "<|im_",
                    "system\n",
                    " the",
                    "\n",
                    "\r\n",
                    "\n\n",
                    "  ",
                    "x",
                ),
                *(
                    "\n/",
                    ".\n",
                    "'s",
                    "\n's",
                    "1234",
                    "\t",
                    " \n",
                    "\n ",
                    "e\u0301",
                    "\n\u0301",
                    "\u6771",
                    "end.\nNext",
                ),
            ]
        )
        | st.text(max_size=8),
        max_size=12,
    )
)
def test_pieces_come_to_the_same_as_the_whole(families: list[Pair], parts: list[str]) -> None:
    text = "".join(parts)
    for ours, library in families:
        whole = library.encode(text, add_special_tokens=False)
        joined = ours._joined(text, with_text=True)
        assert list(joined.ids) == whole.ids
        assert list(joined.ends) == [end for _, end in whole.offsets]
        assert list(ours._joined(text, with_text=False).ids) == whole.ids


@given(st.text("ab \n/.\t"))
def test_lines_are_the_text(text: str) -> None:
    cut = lines(text)
    assert "".join(cut) == text
    assert all(cut), "none is empty"
    for one, other in pairwise(cut):
        assert one[-1] == "\n"
        assert not one[-2:-1].isspace()
        assert not other[0].isspace()
        assert other[0] != "/"


def test_lines_are_no_pieces_where_words_may_reach_across(model: Path) -> None:
    whole = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    ahead = whole | {"use_regex": True, "add_prefix_space": True}
    sentences = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "never", "split": True}
    for words in (None, whole, ahead, sentences, by_pattern(r"\w+\n\w+|\s+|\S")):
        assert LocalTokenizer(splitting(model, words), None, "")._cut is not lines


def test_what_turns_share_is_tokenised_once(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = read_tokenizer(model)
    monkeypatch.setattr(local, "CHECK_FIRST", 0)
    monkeypatch.setattr(local, "CHECK_EVERY", 10**9)
    asked: list[str] = []
    encode = LocalTokenizer._ids

    def counted(text: str) -> array[int]:
        asked.append(text)
        return encode(tokenizer, text)

    tokenizer._pieces = Pieces(counted)
    turns = [{"role": "user", "content": f"question {i}"} for i in range(5)]
    tokenizer._seen = 1
    for end in range(1, 6):
        tokenizer.tokens(prompt(messages=turns[:end]))
    assert sum("question 0" in text for text in asked) == 1
    assert len(asked) == len(set(asked))


def test_cutting_that_changes_tokens_is_given_up(model: Path) -> None:
    tokenizer = read_tokenizer(model)
    right = tokenizer.tokens(prompt(messages=HI)).ids
    other = read_tokenizer(model)
    other._pieces.put("<|im_end|>", other._ids("wrong"))
    assert other.tokens(prompt(messages=HI)).ids == right
    assert other._special is None


def test_texts_get_what_the_model_wants_around_them(model: Path, tmp_path: Path) -> None:
    rules = json.loads((model / "tokenizer.json").read_text())
    rules["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
    }
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps(rules))
    shutil.copy(model / "chat_template.jinja", tmp_path)
    tokenizer = read_tokenizer(file)
    assert tokenizer.tokens(prompt(text="hi")).ids[0] == 1
    assert tokenizer.tokens(prompt(text="hi", options={"add_special_tokens": False})).ids[0] != 1
    assert tokenizer.tokens(prompt(messages=HI)).ids[0] == 3, (
        "a chat prompt has it from its template, or not at all"
    )
    assert tokenizer.tokens(prompt(messages=HI, options={"add_special_tokens": True})).ids[:2] == array(
        "I", [1, 3]
    )
    assert len(tokenizer.tokens(prompt(text="one two three four", truncated_to=2)).ids) == 2


def test_what_cannot_be_rendered_is_said(model: Path, tmp_path: Path) -> None:
    shutil.copy(model / "tokenizer.json", tmp_path)
    with pytest.raises(Untokenizable, match=NO_TEMPLATE):
        read_tokenizer(tmp_path).tokens(prompt(messages=HI))
    image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}]
    for odd in (prompt(messages=image), prompt(messages=HI, options={"continue_final_message": True})):
        with pytest.raises(Untokenizable, match=NOT_TEXT):
            read_tokenizer(model).tokens(odd)


def test_the_request_decides_about_its_rendering(model: Path, tmp_path: Path) -> None:
    shutil.copy(model / "tokenizer.json", tmp_path)
    template = "{{ messages[0].content }}{% if think %} deep{% endif %}{{ strftime_now('%Y') }}"
    (tmp_path / "chat_template.jinja").write_text(template)
    tokenizer = read_tokenizer(tmp_path)
    options = {"chat_template_kwargs": {"think": True}}
    sent = prompt(messages=HI, time=1_000_000_000.0, options=options)
    assert tokenizer.tokens(sent, with_text=True).text == "hi deep2001", "the time is that of the request"


def test_paths_that_lead_nowhere(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="model folder or a"):
        read_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(UserError, match=r"is no tokenizer\.json"):
        read_tokenizer(tmp_path)
    (tmp_path / "chat_template.jinja").write_text("{% for %}")
    (tmp_path / "tokenizer.json").write_text(tokenizers.Tokenizer(tokenizers.models.BPE()).to_str())
    with pytest.raises(UserError, match="chat template cannot be read"):
        read_tokenizer(tmp_path)
