"""What token ids say: the bytes of each token of a tokenizer.json, so that any run of tokens can be read. Pure.

A token is read by itself, wherever it stands: one that ends in the middle of a character is completed by the next. That
is exact for byte-level vocabularies (GPT-2's alphabet: Llama 3, Qwen, DeepSeek, gpt-oss). SentencePiece's write the
blank before a text's first word as well, which their decoders leave out at its beginning.

Source of the byte alphabet: encoder.py of openai/gpt-2 (bytes_to_unicode), `ByteLevel` in huggingface/tokenizers.
"""

from __future__ import annotations

import codecs
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cachemodel.prompts.kv_keys import STAND_IN

UNKNOWN = "\N{REPLACEMENT CHARACTER}".encode()
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_META = "\N{LOWER ONE EIGHTH BLOCK}"


class Vocabulary:
    """marks: tokens that were added to the vocabulary and are no words of it, by id. size: one past the largest id.

    rules: a tokenizer.json's content. Raises ValueError where it has no vocabulary.
    """

    def __init__(self, rules: Mapping[str, Any]) -> None:
        self._bytes = dict(_pieces(rules))
        if not self._bytes:
            raise ValueError("the tokenizer has no vocabulary")
        self.marks: dict[int, str] = {}
        for token in rules.get("added_tokens") or ():
            self._bytes[token["id"]] = token["content"].encode()
            self.marks[token["id"]] = token["content"]
        self.size = max(self._bytes) + 1

    def beyond(self, ids: Sequence[int]) -> int:
        """How many of the tokens are none of its own, and no stand-ins."""
        return sum(one not in self._bytes and one < STAND_IN for one in ids)

    def text(self, ids: Sequence[int]) -> str:
        """What the tokens say; U+FFFD for an id that is none, and for bytes that are no UTF-8. An image's stand-in says
        which it is."""
        return self._joined(ids).decode(errors="replace")

    def token_at(self, ids: Sequence[int], character: int) -> int:
        """How many of the tokens stand wholly before a character of their text."""
        return bisect_right(range(len(ids) + 1), character, key=lambda n: self._characters(ids[:n])) - 1

    def _characters(self, ids: Sequence[int]) -> int:
        """Characters that these tokens complete."""
        return len(codecs.getincrementaldecoder("utf-8")("replace").decode(self._joined(ids)))

    def _joined(self, ids: Sequence[int]) -> bytes:
        known = self._bytes
        return b"".join([known.get(one) or _unknown(one) for one in ids])


def _unknown(token: int) -> bytes:
    return b"<image %08x>" % (token - STAND_IN) if token >= STAND_IN else UNKNOWN


def _pieces(rules: Mapping[str, Any]) -> Iterator[tuple[int, bytes]]:
    """Ids of the model's vocabulary and their bytes."""
    model = rules.get("model") or {}
    vocabulary = model.get("vocab") or {}
    if isinstance(vocabulary, list):  # Unigram: pieces with their scores
        vocabulary = {piece[0]: number for number, piece in enumerate(vocabulary)}
    kinds = {one.get("type"): one for one in _decoders(rules.get("decoder"))}
    alphabet = _byte_alphabet()
    meta = kinds.get("Metaspace", {}).get("replacement", _META)
    for piece, number in vocabulary.items():
        if "ByteLevel" in kinds:
            yield number, b"".join(alphabet.get(char) or char.encode() for char in piece)
        elif match := _BYTE.fullmatch(piece):
            yield number, bytes([int(match[1], 16)])
        elif not kinds or "WordPiece" in kinds:
            prefix = kinds.get("WordPiece", {}).get("prefix", "##")
            yield number, (piece.removeprefix(prefix) if piece.startswith(prefix) else f" {piece}").encode()
        else:
            yield number, piece.replace(meta, " ").encode()


def _decoders(told: Any) -> Iterator[Mapping[str, Any]]:
    """A decoder, or those of a sequence."""
    if isinstance(told, dict):
        if told.get("type") == "Sequence":
            for one in told.get("decoders") or ():
                yield from _decoders(one)
        else:
            yield told


def _byte_alphabet() -> dict[str, bytes]:
    """The characters that stand for bytes: printable ones for themselves, others from U+0100 on in their order."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    told, others = {}, 0
    for byte in range(256):
        told[chr(byte if byte in printable else 0x100 + others)] = bytes([byte])
        others += byte not in printable
    return told
