"""Block chains: how a prompt's tokens become the chained hashes that prefix caches compare.

A block's hash covers its own tokens, its extra keys and the hash of the block before it, so that a hash stands for a
whole prefix. The law here is vLLM's default (`--prefix-caching-hash-algo sha256`): SHA-256 over the pickle (protocol 5)
of `(parent hash, tokens, extra keys)`, the chain's root being SHA-256 over the pickle of PYTHONHASHSEED's text. It was
checked against every block that a vLLM 0.32 published (tests/cachemodel/test_blocks.py). vLLM's sha256_cbor and xxhash
laws are not here: no recording of them was at hand.

Source: vllm/v1/core/kv_cache_utils.py.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

ExtraKeys = tuple[Any, ...] | None


@dataclass(frozen=True, slots=True)
class Block:
    """One full block of a chain. digest: 32 bytes; depth: blocks before it."""

    digest: bytes
    depth: int
    tokens: tuple[int, ...]
    extra_keys: ExtraKeys = None

    @property
    def hash64(self) -> int:
        """What KV events call it: the last eight bytes, unsigned, big-endian."""
        return int.from_bytes(self.digest[-8:], "big")


def vllm_sha256(value: object) -> bytes:
    """vLLM's default hash function: 32 bytes."""
    return hashlib.sha256(pickle.dumps(value, protocol=5)).digest()


def vllm_root(hash_seed: str) -> bytes:
    """The hash before a chain's first block, from the server's PYTHONHASHSEED.

    A server without that variable has a random root before vLLM pull request 51875 (August 2026) and since then a fixed
    one, which is not known here: its hashes can be recomputed only below a parent published in full, as bytes.
    """
    return vllm_sha256(hash_seed)


def salt_key(salt: str) -> tuple[str, str]:
    """How a cache salt enters the first block's hash; its KV event shows the bare salt."""
    return ("cache_salt", salt)


def next_block(parent: bytes, depth: int, tokens: Sequence[int], extra_keys: ExtraKeys = None) -> Block:
    """The block that follows `parent`."""
    content = tuple(tokens)
    return Block(vllm_sha256((parent, content, extra_keys)), depth, content, extra_keys)


def chain(
    tokens: Sequence[int],
    block_size: int,
    root: bytes,
    *,
    salt: str | None = None,
    extra_keys: ExtraKeys = None,
) -> Iterator[Block]:
    """The full blocks of a prompt; tokens past the last full block belong to none.

    salt: isolates the chain, through its first block. extra_keys: of every block, such as an adapter's name.
    Raises ValueError for a block size below 1.
    """
    if block_size < 1:
        raise ValueError(f"a block has at least one token, not {block_size}")
    parent = root
    for depth, start in enumerate(range(0, len(tokens) - block_size + 1, block_size)):
        keys = extra_keys or ()
        if salt is not None and depth == 0:
            keys = (*keys, salt_key(salt))
        block = next_block(parent, depth, tokens[start : start + block_size], keys or None)
        parent = block.digest
        yield block


def attainable_tokens(prompt_tokens: int, block_size: int) -> int:
    """The most tokens of a prompt that a prefix cache can serve: full blocks only, and one token must be computed.

    Raises ValueError for a negative prompt or a block size below 1.
    """
    if prompt_tokens < 0 or block_size < 1:
        raise ValueError(f"no prompt has {prompt_tokens} tokens in blocks of {block_size}")
    return max(0, prompt_tokens - 1) // block_size * block_size
