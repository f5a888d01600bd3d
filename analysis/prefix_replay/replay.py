"""Replay prompts through the cache of a server."""

from __future__ import annotations

from analysis.prefix_replay.blocks import replay_blocks
from analysis.prefix_replay.model import Requests, Served
from analysis.prefix_replay.providers import replay_provider
from analysis.prefix_replay.radix import replay_radix
from analysis.prefix_replay.rules import BlockRule, RadixRule, Rule, SlotRule
from analysis.prefix_replay.slots import replay_slots


def replay(requests: Requests, rule: Rule) -> Served:
    """What a cache under a rule, empty at first, serves of each prompt, and what it held of it.

    Nothing else is done to the requests: when they were sent, had their first token and were done is as given.
    """
    if isinstance(rule, BlockRule):
        return replay_blocks(requests, rule)
    if isinstance(rule, RadixRule):
        return replay_radix(requests, rule)
    if isinstance(rule, SlotRule):
        return replay_slots(requests, rule)
    return replay_provider(requests, rule)
