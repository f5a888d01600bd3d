"""The engine itself: one thing is changed under load, and 80 % of the change or more is laid on it, whatever layer
shows it. The truth is the change that came of it: all else was the same, as the phase without it shows, played twice.

`pytest -s tests/attributed` prints a line a case.
"""

from __future__ import annotations

import numpy as np
import pytest

from analysis.attribution.caused.split import caused
from analysis.attribution.certainty.gate import judge
from analysis.attribution.certainty.inputs import own_changes
from analysis.attribution.certainty.resampling import resampling
from analysis.attribution.model import Verdict, View
from analysis.attribution.reader import alike
from analysis.report.metrics import METRICS
from tests.attributed.live import Phase, Played, play

# Milliseconds of a live engine are compared, which other tests beside it would lengthen.
pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(900)]

RATE = 3.5
SHARE = 0.8  # of the change, on the right cause
QUIET = 0.15  # of a change: what the same load may take longer by itself, or the machine is not fit to tell
QUIET_MS = 1.0  # by which a step may take longer beside its device when the same load comes again
WARM = Phase("warm", RATE, seed=9, seconds=8)
WIDE = [
    WARM,
    Phase("base", RATE),
    Phase("decode speed", RATE, fault="layer=decode,delay_ms=28"),
    Phase("workload", 2 * RATE),
    Phase("again", RATE),
    Phase("capacity", RATE, fault="device_blocks=100"),
    Phase("changed", RATE, clock=True),
]
NARROW = [
    WARM,
    Phase("base", RATE),
    Phase("tier speed", RATE, fault="layer=host,delay_ms=160"),
]
ENGINES = {
    "wide": (WIDE, ("--device-blocks", "400", "--host-blocks", "0")),
    "narrow": (NARROW, ("--device-blocks", "200", "--host-blocks", "4096")),
}
CASES = [("wide", phase.name) for phase in WIDE[2:] if phase.name != "again"] + [("narrow", "tier speed")]


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Played]]:
    """What the phases of each engine came to."""
    home = tmp_path_factory.mktemp("attributed")
    return {name: play(home / name, phases, options) for name, (phases, options) in ENGINES.items()}


def judged(played: dict[str, Played], phase: str) -> View:
    """What is said of how much slower a phase is, on average, than the last one before it that was as ever."""
    earlier = [name for name in list(played)[: list(played).index(phase)] if name in ("base", "again")]
    (base, told_base, _), (other, told_other, _) = played[earlier[-1]], played[phase]
    a, b = alike(base, other)
    drawn = resampling(a, b, np.random.default_rng(0))
    split, fidelity, own = caused(a, b, None, METRICS["e2e"], (told_base, told_other), drawn)
    view = judge(split, {**own_changes(a, b, drawn), **own}, drawn)
    assert not view.refused, f"{view.refused}: {[line for line in fidelity if not line.ok]}"
    parts = [f"{s.name} {s.value:+.0f} [{s.low:.0f}, {s.high:.0f}] {s.verdict}" for s in view.shares]
    print(f"\n{phase}: {view.change:+.0f} ms: {'; '.join(parts)}; unexplained {view.residual:+.0f}")
    return view


@pytest.mark.parametrize(("engine", "cause"), CASES)
def test_what_was_changed_is_what_is_blamed(
    engines: dict[str, dict[str, Played]], engine: str, cause: str
) -> None:
    """The truth is the change that came of it, give or take what the same load takes longer by itself when it is sent
    again: on a machine that others use, too, that is not nothing."""
    base, again = (engines["wide"][name][0].totals.mean() for name in ("base", "again"))
    by_itself = abs(float(again - base))
    change = float(engines[engine][cause][0].totals.mean() - engines[engine]["base"][0].totals.mean())
    if by_itself > QUIET * change:
        pytest.skip(f"others use this machine: the same load took {base:.0f} ms and then {again:.0f} ms")
    steps = [engines["wide"][name].own_ms for name in ("base", "again")]
    if abs(steps[1] - steps[0]) > QUIET_MS:
        pytest.skip(
            "others use this machine: a step took {:.1f} ms beside its device, then {:.1f} ms".format(*steps)
        )
    view = judged(engines[engine], cause)
    share = next(share for share in view.shares if share.name == cause)
    words = f"{share} of {view.change:.0f} ms; by itself {by_itself:.0f} ms"
    assert share.value >= SHARE * view.change, words
    assert share.low is not None
    assert share.high is not None
    assert 0 < share.low <= view.change + by_itself, words
    assert share.high >= view.change - by_itself, words
    assert {one.name for one in view.shares if one.verdict is Verdict.NAMED} <= {cause}, words


def test_the_same_load_again_is_laid_on_nothing_that_was_the_same(
    engines: dict[str, dict[str, Played]],
) -> None:
    """The machine may have been slower, by itself: prompts, arrivals and room were not."""
    view = judged(engines["wide"], "again")
    named = {share.name for share in view.shares if share.verdict is Verdict.NAMED}
    assert not named - {"prefill speed", "decode speed", "tier speed", "other"}
