"""Caches by the names that the command line offers."""

from __future__ import annotations

import click
import pytest

from analysis.prefix_replay.named import CACHES, SETTINGS, named
from analysis.prefix_replay.rules import ANTHROPIC, BlockRule, ProviderRule, RadixRule, SlotRule, unlimited
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


def test_limits_are_set_by_the_names_of_the_rule_and_told() -> None:
    assert named("vllm", settings={"capacity": "400"}).rule == BlockRule(block_size=16, capacity=400)
    assert named("sglang", 64, {"chunk": "8192"}).rule == RadixRule(page_size=64, chunk=8192)
    rule, words = named("llama.cpp", settings={"slots": "2", "host_tokens": "0", "similarity": "0.5"})
    assert rule == SlotRule(slots=2, host_tokens=0, similarity=0.5)
    assert words == "the slots of llama.cpp's server with slots 2, host_tokens 0, similarity 0.5"
    assert named("openai", settings={"lifetime": "600.5"}).rule == ProviderRule(lifetime=600.5)
    for cache, names in SETTINGS.items():
        for name in names:
            assert getattr(named(cache, settings={name: "1"}).rule, name) == 1


@pytest.mark.parametrize(
    ("cache", "name", "value", "told"),
    [
        ("vllm", "slots", "3", "vllm has no 'slots' to set; it has capacity, chunk, max_num_seqs"),
        ("sglang", "capacity", "many", "capacity is 'many': give a whole number"),
        ("sglang", "capacity", "0.5", "give a whole number"),
        ("openai", "lifetime", "inf", "leave it out where there is no limit"),
        ("openai", "lifetime", "nan", "leave it out where there is no limit"),
        ("anthropic", "minimum", "-3", "minimum and look_back are counts"),
        ("llama.cpp", "similarity", "7", "give a share between 0 and 1"),
    ],
)
def test_what_cannot_be_set_is_said(cache: str, name: str, value: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        named(cache, settings={name: value})


def test_what_evicts_nothing_is_known() -> None:
    for cache in CACHES:
        assert unlimited(named(cache).rule)
    assert not unlimited(BlockRule(capacity=9))
    assert not unlimited(RadixRule(capacity=9))
    assert not unlimited(SlotRule(host_tokens=0))
