"""Every treatment saves what it is for: its example, replayed as sent and as rewritten."""

from __future__ import annotations

import json

import numpy as np
import pytest

from analysis.prefix_replay.model import Requests
from analysis.prefix_replay.replay import replay
from analysis.prefix_replay.rules import BlockRule
from analysis.treatments import ANCHORS, CONSTRAINTS, SPLIT, TREATMENTS, Body, Treatment, of_zones
from tests.analysis.advisor.test_advice import tokens


def computed(bodies: tuple[Body, ...]) -> tuple[int, int]:
    """Tokens of these requests, sent one after the other, and those that a cache in blocks of 4 does not serve."""
    each = [tokens(body) for body in bodies]
    offsets = np.concatenate([[0], np.cumsum([len(one) for one in each])]).astype(np.int64)
    isolation = np.zeros(len(each), np.uint64)
    served = replay(Requests(np.concatenate(each), offsets, isolation), BlockRule(block_size=4)).served
    return int(offsets[-1]), int(offsets[-1] - served.sum())


@pytest.mark.parametrize(
    ("treatment", "least"),
    [(SPLIT, 0.5), (CONSTRAINTS, 0.5), (ANCHORS, 0.3)],
    ids=lambda one: getattr(one, "name", ""),
)
def test_its_example_computes_less(treatment: Treatment, least: float) -> None:
    (sent, before), (_, after) = computed(treatment.as_sent), computed(treatment.rewritten)
    print(f"{treatment.name}: {sent:,} tokens, computed {before:,} -> {after:,}")
    assert 1 - after / before > least


@pytest.mark.parametrize("treatment", TREATMENTS, ids=lambda one: one.name)
def test_its_example_does_the_same_job(treatment: Treatment) -> None:
    """As many requests, and no word of a task or question is lost; what anchors keep is never more than the window."""
    assert len(treatment.as_sent) == len(treatment.rewritten)
    for before, after in zip(treatment.as_sent, treatment.rewritten, strict=True):
        last = before["messages"][-1]["content"].splitlines()[0]
        if treatment is SPLIT:
            task = before["messages"][0]["content"].partition(". ")[2]
            assert task == after["messages"][-1]["content"]
            assert before["messages"][1] in after["messages"]
        elif treatment is CONSTRAINTS:
            both = ["\n".join(one["content"] for one in body["messages"]) for body in (before, after)]
            assert sorted(both[0].splitlines()) == sorted(both[1].splitlines())
        else:
            assert after["messages"][-1]["content"] == last
            assert len(after["messages"]) <= max(len(one["messages"]) for one in treatment.as_sent)
            assert len(after["messages"]) >= len(before["messages"]) / 2


def test_zones_have_the_treatments_that_are_for_them() -> None:
    assert of_zones(["hot"]) == [SPLIT, CONSTRAINTS]
    assert of_zones(["warm", "cold"]) == [ANCHORS]
    assert of_zones(["cold", ""]) == []


def test_a_template_holds_what_varies_in_brackets_and_is_plain_text() -> None:
    for treatment in TREATMENTS:
        assert treatment.template.count("<") == treatment.template.count(">") > 1
        assert json.dumps(treatment.template, ensure_ascii=False).isprintable()
