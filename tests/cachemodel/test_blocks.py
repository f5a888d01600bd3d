"""The hash laws, against every block a real server published, and the ceiling of what a prefix cache can serve."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemodel.blocks import attainable_tokens, chain, next_block, salt_key, vllm_root
from cachemodel.kv_events import BlockStored, decode_batch
from tests.cachemodel.test_kv_events import payloads

ROOT = vllm_root("0")  # the recording host had PYTHONHASHSEED=0


@pytest.mark.parametrize(("run", "blocks", "salted"), [("run1", 1215, 2), ("run3", 31, 0)])
def test_every_published_hash_is_recomputed(
    run: str, blocks: int, salted: int, request: pytest.FixtureRequest
) -> None:
    digests: dict[int | None, bytes] = {None: ROOT}
    count = salts = 0
    for payload in payloads(request.getfixturevalue(run)):
        for event in decode_batch(payload).events:
            if not isinstance(event, BlockStored):
                continue
            assert event.block_size is not None
            parent = digests[event.parent_block_hash]
            for at, published in enumerate(event.block_hashes):
                tokens = event.token_ids[at * event.block_size : (at + 1) * event.block_size]
                shown = event.extra_keys[at] if event.extra_keys else None
                keys = tuple(salt_key(s) for s in shown) if shown else None
                block = next_block(parent, 0, tokens, keys)
                assert block.hash64 == published
                digests[published] = parent = block.digest
                count, salts = count + 1, salts + bool(shown)
    assert count == blocks
    assert salts == salted


@given(st.lists(st.integers(0, 50_000), max_size=70), st.integers(1, 16))
def test_a_chain_has_the_full_blocks_and_names_its_prefix(tokens: list[int], size: int) -> None:
    blocks = list(chain(tokens, size, ROOT))
    assert len(blocks) == len(tokens) // size
    assert [t for b in blocks for t in b.tokens] == tokens[: len(blocks) * size]
    longer = list(chain([*tokens, *range(size)], size, ROOT))
    assert [b.digest for b in longer[: len(blocks)]] == [b.digest for b in blocks]


def test_a_changed_token_changes_every_later_hash_and_none_before() -> None:
    tokens = list(range(40))
    changed = [*tokens[:15], 99, *tokens[16:]]
    before, after = (list(chain(t, 8, ROOT)) for t in (tokens, changed))
    assert [a.digest == b.digest for a, b in zip(before, after, strict=True)] == [
        True,
        False,
        False,
        False,
        False,
    ]


def test_a_salt_isolates_the_whole_chain() -> None:
    plain, salted = (list(chain(range(24), 8, ROOT, salt=s)) for s in (None, "tenant-1"))
    assert not {b.digest for b in plain} & {b.digest for b in salted}
    assert [b.extra_keys for b in salted] == [(("cache_salt", "tenant-1"),), None, None]


@pytest.mark.parametrize(
    ("prompt", "size", "ceiling"),
    [(0, 16, 0), (16, 16, 0), (17, 16, 16), (32, 16, 16), (33, 16, 32), (371, 32, 352)],
)
def test_the_last_token_is_always_computed(prompt: int, size: int, ceiling: int) -> None:
    assert attainable_tokens(prompt, size) == ceiling


@pytest.mark.parametrize("call", [lambda: attainable_tokens(-1, 4), lambda: attainable_tokens(4, 0)])
def test_nonsense_is_an_error(call) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match="no prompt"):
        call()
