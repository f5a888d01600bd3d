"""The reference engine with something broken on purpose, watched as `hitmap attach` does it: what it looks like."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from clickhouse_connect.driver.client import Client

from analysis.attribution.model import Side
from analysis.attribution.reader import alike, read_side
from analysis.diagnosis import diagnose
from analysis.diagnosis.facts import facts
from analysis.diagnosis.model import Fact
from analysis.report.metrics import METRICS
from analysis.selection import Selection
from store.client import connect
from tests.analysis.diagnosis.traffic import drawn, shown
from tests.attributed import live
from tests.attributed.live import Phase, send, watched

pytestmark = [pytest.mark.slow, pytest.mark.alone]

RATE, SECONDS = 4.0, 9.0
ANSWERS = (60, 120)  # tokens: long enough for running requests to outgrow a small pool
DEVICE = ("layer=prefill,delay_ms=6", "layer=decode,delay_ms=6", "layer=host,delay_ms=10")
PHASES = (
    Phase("warm", RATE, seed=9, seconds=5),
    Phase("base", RATE, seconds=SECONDS),
    Phase("again", RATE, seconds=SECONDS),
    Phase("slow host", RATE, fault="layer=host,delay_ms=60", seconds=SECONDS),
    Phase("crowded", RATE, fault="device_blocks=80", seconds=SECONDS),
)


@dataclass(frozen=True)
class Seen:
    """What is seen of a phase beside the one that is called base."""

    facts: Mapping[str, Fact]
    rules: frozenset[str]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Seen]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live, "ANSWER_TOKENS", ANSWERS)
        patch.setattr(live, "SLOW_DEVICE", DEVICE)
        yield _seen(tmp_path_factory.mktemp("live") / "diagnosed")


def _seen(home: Path) -> Mapping[str, Seen]:
    found: dict[str, Seen] = {}

    def look(dsn: str) -> None:
        with connect(dsn) as client:
            base = read_phase(client, "base")
            for phase in PHASES[2:]:
                a, b = alike(base, read_phase(client, phase.name))
                of_both, view = drawn(a, b), shown(a, b)
                rules = frozenset(finding.rule for finding in diagnose(client, a, b, of_both, [view]))
                found[phase.name] = Seen(facts(client, a, b, of_both, []), rules)

    options = ("--device-blocks", "200", "--host-blocks", "4096")
    with watched(home, options, look) as on:
        for phase in PHASES:
            send(phase, on)
    return found


def read_phase(client: Client, phase: str) -> Side:
    asked = Selection(phase, "labels['phase'] = {phase:String}", {"phase": phase})
    return read_side(client, asked, METRICS["e2e"])


def test_slower_loads_are_seen_as_such(seen: Mapping[str, Seen]) -> None:
    """Each waits 60 ms more; these are all of one size, so that nobody can tell waiting from transfer, and no rule
    does."""
    time = seen["slow host"].facts["load_time"]
    assert time.a is not None
    assert time.b is not None
    assert time.b - time.a > 30, time
    assert not {"tier-wait", "tier-transfer"} & seen["slow host"].rules


def test_a_pool_that_is_too_small_preempts(seen: Mapping[str, Seen]) -> None:
    assert "preemption-spiral" in seen["crowded"].rules, seen["crowded"].facts


def test_the_same_load_again_looks_like_nothing(seen: Mapping[str, Seen]) -> None:
    assert not seen["again"].rules, seen["again"]
