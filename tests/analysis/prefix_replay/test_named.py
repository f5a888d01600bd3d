"""Caches by the names that the command line offers."""

from __future__ import annotations

import click
import pytest

from analysis.prefix_replay.named import CACHES, named
from analysis.prefix_replay.rules import ANTHROPIC, BlockRule, ProviderRule, RadixRule, SlotRule
from cachemodel.errors import UsageError
from hitmap.commands.advise import command


def test_each_name_is_a_rule_and_the_command_offers_all() -> None:
    assert [named(cache).rule for cache in CACHES] == [
        BlockRule(block_size=16),
        RadixRule(page_size=1),
        SlotRule(),
        ProviderRule(),
        ANTHROPIC,
    ]
    (offered,) = (one.type for one in command.params if one.name == "cache")
    assert isinstance(offered, click.Choice)
    assert tuple(offered.choices) == CACHES


def test_blocks_have_the_size_that_is_asked_for_where_there_are_blocks() -> None:
    assert named("vllm", 32) == (BlockRule(block_size=32), "vLLM's prefix cache in blocks of 32 tokens")
    assert named("sglang", 64) == (RadixRule(page_size=64), "SGLang's radix cache in pages of 64 tokens")
    assert named("sglang").words.endswith("pages of 1 token")
    for cache in ("llama.cpp", "openai", "anthropic"):
        with pytest.raises(UsageError, match="no blocks of a size"):
            named(cache, 16)
