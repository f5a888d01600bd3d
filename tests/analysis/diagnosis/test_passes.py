"""What a pass is made of, by a law fitted to sides that a known law made."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from analysis.attribution.model import Share, Side, Verdict, View
from analysis.diagnosis import diagnose
from analysis.diagnosis.diagnose import findings, slower
from analysis.diagnosis.facts import facts
from analysis.diagnosis.passes import passes
from analysis.twin.model import Law, Limits
from tests.analysis.diagnosis.traffic import drawn
from tests.analysis.twin.plain import real_side, traffic
from tests.conftest import Database

LIMITS = Limits(48, 1024)
A = Law(step=2.0, prefill=0.02, attention=0.001, decode=0.05, context=0.25)
READS_SLOWER = replace(A, context=0.6)
WAITS = replace(A, step=5.0)
NAMED = Share("decode speed", 20.0, 15.0, 25.0, "a decode pass", 20.0, Verdict.NAMED)
CAUSED = View("caused", [NAMED], 20.0, 15.0, 25.0, 0.0, -1.0, 1.0, "simulated", "made up")
REFUSED = View("caused", [], 0.0, None, None, 0.0, None, None, "simulated", "", [], "no twin")


@cache
def made(law: Law, seed: int) -> Side:
    return real_side(traffic(800, seed, 20.0), law, LIMITS)


def sides(law: Law) -> tuple[Side, Side]:
    a, b = made(A, 1), made(law, 2)
    later = a.end - a.begin + 100
    moved = replace(b, name="b", arrival=b.arrival + later, begin=b.begin + later, end=b.end + later)
    return a, moved


@pytest.mark.parametrize(("law", "rule"), [(READS_SLOWER, "bandwidth-bound"), (WAITS, "host-device-sync")])
def test_what_grew_is_told_by_the_law(db: Database, law: Law, rule: str) -> None:
    a, b = sides(law)
    found = facts(db.client, a, b, drawn(a, b), [CAUSED])
    assert found["pass_host"].b == pytest.approx(law.step, rel=0.15)
    assert found["pass_host"].a == pytest.approx(A.step, rel=0.15)
    told = findings(found, slower([CAUSED]), [])
    assert [finding.rule for finding in told] == [rule]
    assert told[0].evidence[0] == "decode speed +20.0 ms of +20.0 ms (simulated, named)"


def test_nothing_is_told_of_passes_without_a_twin_or_of_the_same_law(db: Database) -> None:
    a, b = sides(A)
    assert diagnose(db.client, a, b, drawn(a, b), [REFUSED]) == []
    assert not {"bandwidth-bound", "host-device-sync"} & {
        f.rule for f in diagnose(db.client, a, b, drawn(a, b), [CAUSED])
    }


def test_a_law_is_of_one_server(db: Database) -> None:
    a, b = sides(A)
    half = b.n // 2
    server = b.server.copy()
    server[half:] = 1
    two = replace(b, server=server, servers=(*b.servers, "another"))
    assert passes(db.client, a, two, [CAUSED]) == {}
