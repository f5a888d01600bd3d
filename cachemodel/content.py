"""What stands in the store for a prompt's tokens: keyed hashes, the same on every server for the same tokens.

A server's own block hash depends on its seed, its hash law and the keys that isolate its tenants. `content` depends on
the tokens alone: of a block and of all blocks before it. What the server's hash has beside (salt, adapter, image) is
`isolation`, so that a block is held under (content, isolation). Both are BLAKE2b keyed with a secret of the
installation: who reads the store cannot try out guesses without it. 64 bits: among ten million blocks two share one
with a chance of 3 in a million.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Iterator, Sequence

SHORTEST_KEY = 16  # bytes
NO_ISOLATION = 0


class ContentHasher:
    """Hashes with one installation's key, 16 to 64 bytes; raises ValueError for another length."""

    def __init__(self, key: bytes) -> None:
        if not SHORTEST_KEY <= len(key) <= 64:
            raise ValueError(f"the key of content hashes has 16 to 64 bytes, not {len(key)}")
        self._blake2b = hashlib.blake2b(key=key, digest_size=8)

    def block(self, parent: int, tokens: Sequence[int]) -> int:
        """Content of the block that follows the content `parent` (0: begins the chain)."""
        return self._of(b"block", parent.to_bytes(8, "little") + _bytes(tokens))

    def chain(self, tokens: Sequence[int], block_size: int) -> Iterator[int]:
        """Contents of the full blocks of a prompt; tokens past the last full block belong to none."""
        parent = 0
        for start in range(0, len(tokens) - block_size + 1, block_size):
            parent = self.block(parent, tokens[start : start + block_size])
            yield parent

    def piece(self, tokens: Sequence[int]) -> int:
        """Hash of some tokens wherever they stand."""
        return self._of(b"piece", _bytes(tokens))

    def isolation(self, before: int, keys: Iterable[str]) -> int:
        """Isolation of a block, given that of the block before it (0: none or begins the chain) and its own keys:
        cache salt, adapter, image. Keys that stand on every block of a chain count on the first one only."""
        told = sorted({key for key in keys if key})
        if not told:
            return before
        return self._of(b"isolation", before.to_bytes(8, "little") + "\0".join(told).encode())

    def text(self, text: str) -> int:
        """Hash of a text, such as a message."""
        return self._of(b"text", text.encode())

    def _of(self, kind: bytes, data: bytes) -> int:
        digest = self._blake2b.copy()
        digest.update(kind)
        digest.update(data)
        return int.from_bytes(digest.digest(), "little") or 1  # 0 stands for none


def _bytes(tokens: Sequence[int]) -> bytes:
    return array("Q", tokens).tobytes()
