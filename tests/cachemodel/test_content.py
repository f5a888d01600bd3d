"""Keyed hashes of contents: the laws that those who write and those who read them rely on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemodel.content import ContentHasher

HASHER = ContentHasher(b"the key of the tests")
tokens = st.lists(st.integers(0, 2**64 - 1), max_size=40)
sizes = st.integers(1, 9)


@given(tokens, sizes)
def test_a_chain_is_block_after_block(prompt: list[int], size: int) -> None:
    chain = list(HASHER.chain(prompt, size))
    assert len(chain) == len(prompt) // size
    parent = 0
    for at, content in enumerate(chain):
        block = prompt[at * size : (at + 1) * size]
        assert HASHER.block(parent, block) == HASHER.follow(parent, HASHER.piece(block)) == content
        assert HASHER.pieces(prompt, size)[at] == HASHER.piece(block)
        parent = content


@given(tokens, tokens, sizes)
def test_equal_prefixes_and_nothing_else_have_equal_contents(
    one: list[int], other: list[int], size: int
) -> None:
    shared = 0
    for a, b in zip(HASHER.chain(one, size), HASHER.chain(other, size), strict=False):
        shared += size
        assert (a == b) == (one[:shared] == other[:shared])


@given(st.lists(st.text(max_size=4), max_size=4), st.integers(0, 2**64 - 1))
def test_keys_isolate_in_any_order_and_none_do_not(keys: list[str], before: int) -> None:
    told = HASHER.isolation(before, keys)
    assert told == HASHER.isolation(before, [*reversed(keys), *keys, ""])
    assert told == HASHER.isolated(before, HASHER.keys(keys))
    assert (told == before) == (not any(keys))


def test_who_has_another_key_learns_nothing() -> None:
    other = ContentHasher(b"the key of somebody else")
    for one, another in (
        (HASHER.piece([1, 2]), other.piece([1, 2])),
        (HASHER.block(0, [1, 2]), other.block(0, [1, 2])),
        (HASHER.isolation(0, ["t1"]), other.isolation(0, ["t1"])),
        (HASHER.text("t1"), other.text("t1")),
        (HASHER.pseudonym("t1"), other.pseudonym("t1")),
    ):
        assert one != another


def test_kinds_are_apart() -> None:
    same = [HASHER.text("x"), HASHER.keys(["x"]), int(HASHER.pseudonym("x")[1:], 16)]
    assert len(set(same)) == 3
    assert len({HASHER.keys(keys) for keys in (["a", "b"], ["ab"], ["a\0b"], ["1:a"], ["a1:b"])}) == 5


def test_a_pseudonym_hides_a_name_and_keeps_what_is_equal() -> None:
    name = HASHER.pseudonym
    assert name("tenant-1") == name(b"tenant-1") != name("tenant-2")
    assert "tenant" not in name("tenant-1")
    assert len(name("x" * 10_000)) == 17
    assert name("\ud800")


def test_what_is_a_digest_already_stays() -> None:
    digest = "0123456789abcdef" * 4
    assert HASHER.pseudonym(digest) == digest
    assert HASHER.pseudonym(digest[:-1]) != digest[:-1]


@pytest.mark.parametrize("length", [0, 15, 65])
def test_keys_that_are_too_short_or_too_long(length: int) -> None:
    with pytest.raises(ValueError, match="16 to 64 bytes"):
        ContentHasher(bytes(length))
