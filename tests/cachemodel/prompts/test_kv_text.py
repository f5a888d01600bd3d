"""What token ids say, and which messages they were, for the chat templates of several families."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from cachemodel.prompts.kv_keys import STAND_IN
from cachemodel.prompts.kv_messages import Marks
from cachemodel.prompts.kv_vocabulary import Vocabulary

MODEL = Path(__file__).parents[2] / "data/vllm-0.32/model/tokenizer.json"
RULES = json.loads(MODEL.read_text())
LIBRARY = Tokenizer.from_file(str(MODEL))
VOCABULARY = Vocabulary(RULES)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(0, VOCABULARY.size - 1), max_size=30))
def test_any_tokens_are_read_as_the_tokenizer_itself_reads_them(ids: list[int]) -> None:
    assert VOCABULARY.text(ids) == LIBRARY.decode(ids, skip_special_tokens=False)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=40), st.data())
def test_a_text_comes_back_and_each_character_has_its_token(text: str, data: st.DataObject) -> None:
    encoded = LIBRARY.encode(text, add_special_tokens=False)
    ids = encoded.ids
    assert VOCABULARY.text(ids) == text
    at = data.draw(st.integers(0, len(text)))
    token = VOCABULARY.token_at(ids, at)
    # The tokens before it are within the text before it, and one more is not.
    assert len(VOCABULARY.text(ids[:token]).rstrip("\N{REPLACEMENT CHARACTER}")) <= at
    assert token == len(ids) or encoded.offsets[token][1] > at or at == len(text)


def test_a_cut_in_the_middle_of_a_character_breaks_nothing_else() -> None:
    ids = LIBRARY.encode("naïve 🚨 東京", add_special_tokens=False).ids
    texts = [VOCABULARY.text(ids[:n]) for n in range(len(ids) + 1)]
    assert texts[-1] == "naïve 🚨 東京"
    assert all("naïve 🚨 東京".startswith(text.rstrip("\N{REPLACEMENT CHARACTER}")) for text in texts)


def test_ids_beyond_the_vocabulary_are_replaced_and_counted() -> None:
    far = VOCABULARY.size + 5
    assert VOCABULARY.text([far, *LIBRARY.encode("ok", add_special_tokens=False).ids]) == "\ufffdok"
    assert VOCABULARY.beyond([far, 0, STAND_IN + 1]) == 1
    assert VOCABULARY.text([STAND_IN + 0xAB]) == "<image 000000ab>"


def _sentencepiece() -> dict[str, Any]:
    pieces = ["▁Hello", "▁world", "!", "<0xF0>", "<0x9F>", "<0x9A>", "<0xA8>"]
    decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return {
        "model": {"vocab": {p: n for n, p in enumerate(pieces)}},
        "decoder": json.loads(decoder.__getstate__()),
    }


@pytest.mark.parametrize(
    ("rules", "ids", "text"),
    [
        (_sentencepiece(), [0, 1, 2, 3, 4, 5, 6], " Hello world!🚨"),
        (
            {
                "model": {"vocab": [["▁a", -1.0], ["b", -2.0]]},
                "decoder": {"type": "Metaspace", "replacement": "▁"},
            },
            [0, 1],
            " ab",
        ),
        (
            {"model": {"vocab": {"to": 0, "##ken": 1}}, "decoder": {"type": "WordPiece", "prefix": "##"}},
            [0, 1],
            " token",
        ),
    ],
)
def test_other_kinds_of_vocabularies(rules: dict[str, Any], ids: list[int], text: str) -> None:
    assert Vocabulary(rules).text(ids) == text


@pytest.mark.parametrize("rules", [{}, {"model": None}, {"model": {"vocab": {}}}])
def test_a_tokenizer_without_a_vocabulary_is_refused(rules: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="no vocabulary"):
        Vocabulary(rules)


# -- messages


def family(marks: Sequence[str], plain: Sequence[str] = ()) -> tuple[Tokenizer, Marks, Vocabulary]:
    """A byte-level tokenizer with these marks; plain: those that are not flagged as special."""
    rules = Tokenizer(models.BPE())
    rules.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    rules.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    rules.train_from_iterator(
        ["system user assistant model tool be kind hello"] * 3,
        trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False),
    )
    rules.add_special_tokens([AddedToken(one, special=True) for one in marks])
    rules.add_tokens([AddedToken(one, special=False) for one in plain])
    vocabulary = Vocabulary(json.loads(rules.to_str()))
    return rules, Marks(vocabulary), vocabulary


TALK = [("system", "Be kind.\nuser\nis a word."), ("user", "Hello 🚨"), ("assistant", "Hi"), ("user", "More")]


def chatml(role: str, said: str) -> str:
    return f"<|im_start|>{role}\n{said}<|im_end|>\n"


def llama3(role: str, said: str) -> str:
    return f"<|start_header_id|>{role}<|end_header_id|>\n\n{said}<|eot_id|>"


def gemma(role: str, said: str) -> str:
    return f"<start_of_turn>{'model' if role == 'assistant' else role}\n{said}<end_of_turn>\n"


def phi(role: str, said: str) -> str:
    return f"<|{role}|>{said}<|end|>"


def deepseek(role: str, said: str) -> str:
    return {"system": said, "user": f"<｜User｜>{said}", "assistant": f"<｜Assistant｜>{said}<｜eos｜>"}[role]


FAMILIES = {
    "chatml": (chatml, "<|im_start|>assistant\n", ["<|im_start|>", "<|im_end|>"], []),
    "llama3": (
        llama3,
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
        ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
        [],
    ),
    "gemma": (gemma, "<start_of_turn>model\n", ["<bos>", "<start_of_turn>", "<end_of_turn>"], []),
    "phi": (phi, "<|assistant|>", ["<|system|>", "<|user|>", "<|assistant|>", "<|end|>"], []),
    "deepseek": (
        deepseek,
        "<｜Assistant｜>",
        ["<bos>", "<｜eos｜>"],
        ["<｜User｜>", "<｜Assistant｜>", "<tool_call>"],
    ),
}
BOS = {"llama3": "<|begin_of_text|>", "gemma": "<bos>", "deepseek": "<bos>"}


@pytest.mark.parametrize("name", FAMILIES)
def test_marks_split_a_chat_into_its_messages(name: str) -> None:
    turn, opening, marks, plain = FAMILIES[name]
    rules, reader, vocabulary = family(marks, plain)
    text = BOS.get(name, "") + "".join(turn(*one) for one in TALK) + opening
    ids = rules.encode(text, add_special_tokens=False).ids
    told = reader.messages(ids)
    assert [(one.role, one.content) for one in told] == [*TALK, ("assistant", "")]
    assert "".join(one.head + one.content + one.tail for one in told) == text
    bounds = [one.begin for one in told]
    assert (bounds, [one.end for one in told]) == ([0, *bounds[1:]], [*bounds[1:], len(ids)])
    for one in told:
        assert vocabulary.text(ids[one.begin : one.end]) == one.head + one.content + one.tail


@pytest.mark.parametrize("name", FAMILIES)
def test_a_chain_may_end_anywhere(name: str) -> None:
    """Blocks end in the middle of messages, roles and marks: what is whole by then is told as it was."""
    turn, _, marks, plain = FAMILIES[name]
    rules, reader, vocabulary = family(marks, plain)
    ids = rules.encode(BOS.get(name, "") + "".join(turn(*one) for one in TALK), add_special_tokens=False).ids
    whole = reader.messages(ids)
    for end in range(len(ids)):
        told = reader.messages(ids[:end])
        if told:
            assert "".join(one.head + one.content + one.tail for one in told) == vocabulary.text(ids[:end])
        for one, full in zip(told[:-1], whole, strict=False):
            assert (one.role, one.content, one.begin, one.end) == (
                full.role,
                full.content,
                full.begin,
                full.end,
            )


def test_the_answer_begins_behind_the_mark_that_closes_the_question() -> None:
    rules, reader, _ = family(["<s>", "</s>", "[INST]", "[/INST]"])
    ids = rules.encode("<s>Be kind.[INST]Hello[/INST]Hi</s>[INST]More[/INST]", add_special_tokens=False).ids
    assert [(one.role, one.content) for one in reader.messages(ids)] == [
        ("system", "Be kind."),
        ("user", "Hello"),
        ("assistant", "Hi"),
        ("user", "More"),
        ("assistant", ""),
    ]


def test_tokens_without_marks_are_no_messages() -> None:
    rules, reader, _ = family(["<s>"])
    assert reader.messages(rules.encode("<s>user\nassistant hello", add_special_tokens=False).ids[1:]) == []
    assert reader.messages([]) == []


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.sampled_from([3, 4, *LIBRARY.encode("\nuser assistant system x\n", add_special_tokens=False).ids]),
        max_size=25,
    )
)
def test_no_tokens_break_the_reader_or_get_lost(ids: list[int]) -> None:
    told = Marks(VOCABULARY).messages(ids)
    if told:
        assert "".join(one.head + one.content + one.tail for one in told) == VOCABULARY.text(ids)
        assert [one.begin for one in told[1:]] == [one.end for one in told[:-1]]
        assert (told[0].begin, told[-1].end) == (0, len(ids))
