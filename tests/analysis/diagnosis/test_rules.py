"""Every rule on a case made for it, on one that nearly is, and on pairs of windows in which nothing happened."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from clickhouse_connect.driver.client import Client

from analysis.attribution.model import Finding, Share, Side, Verdict, View
from analysis.diagnosis import diagnose
from analysis.diagnosis.diagnose import findings
from analysis.diagnosis.model import Condition, Fact
from analysis.diagnosis.table import rule_of, rules
from analysis.diagnosis.vocabulary import FACTS
from tests.analysis.diagnosis.planted import CASES, LATER, put, sides
from tests.analysis.diagnosis.traffic import Traffic, drawn, shown, side
from tests.databases import Databases

TIER = Share(
    "tier speed", 12.0, 10.0, 14.0, "a load of 200 tokens from host 8 ms -> 24 ms", 20.0, Verdict.NAMED
)
BY_LAW = {"bandwidth-bound"}
NULLS = 20


@pytest.fixture(scope="module")
def client(databases: Databases) -> Iterator[Client]:
    with databases.migrated() as database:
        yield database.client


def found(client: Client, case: str, near: bool = False) -> list[Finding]:
    a, b = sides(case, near)
    put(client, case, a, b, near)
    return diagnose(client, a, b, drawn(a, b), [*_by_twin(case), shown(a, b)])


def _by_twin(case: str) -> list[View]:
    if not CASES[case].tier:
        return []
    return [View("caused", [TIER], 12.0, 10.0, 14.0, 0.0, -1.0, 1.0, "simulated", "made up")]


@pytest.mark.parametrize("case", CASES)
def test_a_planted_case_is_found_and_nothing_else(client: Client, case: str) -> None:
    told = found(client, case)
    assert [finding.rule for finding in told] == [case]
    assert all("n = " in line or "named" in line for line in told[0].evidence), told[0].evidence
    assert len(told[0].evidence) >= 3
    assert told[0].remedy
    assert told[0].confirm


@pytest.mark.parametrize("case", CASES)
def test_a_near_miss_is_not_found(client: Client, case: str) -> None:
    assert case not in [finding.rule for finding in found(client, case, near=True)]


def test_every_rule_has_a_case() -> None:
    assert {rule.id for rule in rules()} == {*CASES, *BY_LAW}


def test_every_fact_is_used() -> None:
    used = {name for rule in rules() for name in (*rule.evidence, *(c.fact for c in rule.when))}
    assert used == set(FACTS), f"not used: {set(FACTS) - used}"


def test_nothing_is_found_where_nothing_happened(client: Client) -> None:
    """Traffic with loads, several servers and templates; a rule may chance on 1 in 100 pairs at most."""
    world = Traffic(
        n=400, host=0.2, weights=(1.0, 1.0, 1.0), queues=(20.0, 30.0, 25.0), elsewhere=0.1, evicted=0.1
    )
    told = []
    for seed in range(NULLS):
        a, b = side(world, seed), side(world, seed + 1000, "b", LATER)
        told += diagnose(client, a, b, drawn(a, b), [shown(a, b)])
    assert not told, f"{len(told)} findings in {NULLS} pairs: {[finding.rule for finding in told]}"


def test_what_is_not_known_lets_no_rule_hold() -> None:
    assert findings({}, {}, ["llama_cpp"]) == []


def test_an_empty_side_is_silent(client: Client) -> None:
    a, b = sides("thrash")
    nobody: Side = b.subset(b.arrival < 0)
    assert diagnose(client, a, nobody, drawn(a, nobody), []) == []


def test_arms_of_one_time_share_no_counters(client: Client) -> None:
    """What a server counts is of both arms: it says nothing of their difference."""
    a, _ = sides("preemption-spiral")
    b = replace(side(CASES["preemption-spiral"].b, 3, "b"), servers=a.servers)
    put(client, "preemption-spiral", a, b)
    assert diagnose(client, a, b, drawn(a, b), []) == []


GOOD = {"id": "r", "title": "t", "when": ["hits.change < -0.03"], "remedy": "do", "confirm": "see"}


def test_a_rule_is_read() -> None:
    (condition,) = rule_of(GOOD).when
    assert condition == Condition("hits", "change", "<", -0.03)
    assert condition.holds({"hits": Fact(0.9, 0.5, 10, 10)})
    assert not condition.holds({"hits": Fact(None, 0.5, 10, 10)})
    assert not condition.holds({})


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"wen": 1}, "r: no field of a rule: wen"),
        ({"remedy": ""}, "r: a rule needs remedy"),
        ({"when": ["hitz > 1"]}, "r: no fact: hitz; facts are rate"),
        ({"evidence": ["nothing"]}, "r: no fact: nothing"),
        ({"when": ["hits >= 1"]}, "r: 'hits >= 1' is no condition; write: fact.change > 0.05"),
        ({"when": ["hits.mean > 1"]}, "r: 'hits.mean > 1' is no condition"),
    ],
)
def test_a_wrong_rule_is_told(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        rule_of({**GOOD, **wrong})


def test_growth_from_nothing_is_endless() -> None:
    assert Fact(0.0, 3.0, 1, 1).aspect("ratio") == math.inf
    assert Fact(0.0, 0.0, 1, 1).aspect("ratio") is None
