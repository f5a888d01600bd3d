"""Reads /slots of llama.cpp: how many tokens each slot holds, has computed and found in its cache. No prompt text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from collector.json_poll import Reading, gauges
from collector.prometheus import Labels

# An idle slot says 0 of these, which means that nothing is told.
_OF_A_TASK = ("n_prompt_tokens_processed", "n_prompt_tokens_cache")
_ALWAYS = ("is_processing", "id_task", "n_ctx", "n_prompt_tokens")


def read_slots(answer: object, now_us: int) -> Iterator[Reading]:
    """One reading of all slots. Raises ValueError where the answer is no list of slots."""
    if not isinstance(answer, list) or not all(isinstance(slot, dict) for slot in answer):
        raise ValueError("no list of slots")
    yield Reading(now_us, gauges(value for slot in answer for value in _values(slot)))


def _values(slot: Mapping[str, Any]) -> Iterator[tuple[str, Labels, object]]:
    labels: Labels = (("slot", str(slot.get("id", ""))),)
    told = _ALWAYS + (_OF_A_TASK if slot.get("is_processing") else ())
    for name in told:
        if name != "id_task" or slot.get(name, -1) != -1:  # -1: there was none yet
            yield f"slots.{name}", labels, slot.get(name)
