"""How tokenizer.json was made: byte-level BPE over this project's own texts.

Run from a checkout's root: python -m engine.model.demo.train_tokenizer
It need not be run again when the texts change; another tokenizer makes other prompts, and figures would not compare.
"""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from engine.model.demo import FOLDER

VOCAB_SIZE = 2048
SPECIAL = [f"<|{name}|>" for name in ("begin", "end", "system", "user", "assistant", "tool", "tools", "call")]


def train(texts: list[str]) -> Tokenizer:
    """Every byte has a token, so that any text can be written."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=VOCAB_SIZE, special_tokens=SPECIAL, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


if __name__ == "__main__":
    paths = sorted([*Path().glob("*.md"), *Path("docs").rglob("*.md")])
    train([path.read_text() for path in paths]).save(str(FOLDER / "tokenizer.json"), pretty=False)
