"""What stands in the store for a prompt's tokens: keyed hashes, the same on every server for the same tokens.

A server's own block hash depends on its seed, its hash law and the keys that isolate its tenants. `content` depends on
the tokens alone: of a block and of all blocks before it. What the server's hash has beside (salt, adapter, image) is
`isolation`, so that a block is held under (content, isolation). Both are BLAKE2b keyed with a secret of the
installation: who reads the store cannot try out guesses on them without it, as on a server's own hashes, which stand
beside them unkeyed (docs/chains.md). 64 bits: among ten million blocks two share one with a chance of 3 in a million.

Both are chained over the hash of what a block adds (its piece, its keys), not over the tokens themselves: where a
block's parent is told of late, what was kept of the block is enough to place it.
"""

from __future__ import annotations

import hashlib
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence

SHORTEST_KEY = 16  # bytes
NO_ISOLATION = 0
_TOKEN_BYTES = 8
_DIGEST = re.compile(r"[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{64}")


class ContentHasher:
    """Hashes with one installation's key, 16 to 64 bytes; raises ValueError for another length.

    Token ids are unsigned 64-bit integers; what is none raises TypeError or OverflowError.
    """

    def __init__(self, key: bytes) -> None:
        if not SHORTEST_KEY <= len(key) <= 64:
            raise ValueError(f"the key of content hashes has 16 to 64 bytes, not {len(key)}")
        keyed = hashlib.blake2b(key=key, digest_size=8)

        def kind(name: bytes) -> hashlib.blake2b:
            begun = keyed.copy()
            begun.update(name)
            return begun

        self._block, self._piece, self._text = kind(b"block"), kind(b"piece"), kind(b"text")
        self._keys, self._isolation, self._name = kind(b"keys"), kind(b"isolation"), kind(b"name")

    def block(self, parent: int, tokens: Sequence[int]) -> int:
        """Content of the block that follows the content `parent` (0: begins the chain)."""
        return self.follow(parent, self.piece(tokens))

    def follow(self, parent: int, piece: int) -> int:
        """The same, from the block's piece."""
        return _hash(self._block, _pair(parent, piece))

    def chain(self, tokens: Sequence[int], block_size: int) -> Iterator[int]:
        """Contents of the full blocks of a prompt; tokens past the last full block belong to none."""
        parent = 0
        for piece in self.pieces(tokens, block_size):
            parent = self.follow(parent, piece)
            yield parent

    def piece(self, tokens: Sequence[int]) -> int:
        """Hash of some tokens wherever they stand."""
        return _hash(self._piece, array("Q", tokens).tobytes())

    def pieces(self, tokens: Sequence[int], block_size: int) -> list[int]:
        """The pieces of the full blocks of some tokens."""
        data, step = array("Q", tokens).tobytes(), block_size * _TOKEN_BYTES
        begun = self._piece
        return [_hash(begun, data[at : at + step]) for at in range(0, len(data) - step + 1, step)]

    def isolation(self, before: int, keys: Iterable[str]) -> int:
        """Isolation of a block, given that of the block before it (0: none or begins the chain) and its own keys:
        cache salt, adapter, image. Keys that stand on every block of a chain count on the first one only."""
        return self.isolated(before, self.keys(keys))

    def isolated(self, before: int, keys: int) -> int:
        """The same, from the hash of the block's keys."""
        return _hash(self._isolation, _pair(before, keys)) if keys else before

    def keys(self, keys: Iterable[str]) -> int:
        """Hash of a block's own keys in any order; 0 where there are none."""
        told = sorted({key for key in keys if key})
        return _hash(self._keys, _utf8("".join(f"{len(key)}:{key}" for key in told))) if told else 0

    def text(self, text: str) -> int:
        """Hash of a text, such as a message."""
        return _hash(self._text, _utf8(text))

    def pseudonym(self, value: str | bytes) -> str:
        """What stands in rows for a salt or session id, which can name a tenant: equal where those are equal.

        What is a digest already, as an image's key is, stays.
        """
        if isinstance(value, str):
            if _DIGEST.fullmatch(value):
                return value
            value = _utf8(value)
        return f"~{_hash(self._name, value):016x}"


def _hash(begun: hashlib.blake2b, data: bytes) -> int:
    digest = begun.copy()
    digest.update(data)
    return int.from_bytes(digest.digest(), "little") or 1  # 0 stands for none


def _pair(one: int, other: int) -> bytes:
    return (one | other << 64).to_bytes(16, "little")


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
