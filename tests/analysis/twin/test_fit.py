"""Laws found again from what requests tell, on servers whose law is known, or is none of the twin's."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from analysis.attribution.model import Side
from analysis.twin.fidelity import fidelity, misfit
from analysis.twin.fit import fit
from analysis.twin.limits import NONE
from analysis.twin.model import Fit, Law, Limits, Told
from analysis.twin.simulate import replay
from analysis.twin.workload import workload
from tests.analysis.attribution import contention
from tests.analysis.twin.plain import LAYERS, real_side, side_of, traffic

LAW = Law(step=5.0, prefill=0.06, attention=0.004, decode=0.25, context=0.03, host=0.01, host_fixed=2.0)
LIMITS = Limits(16, 512)
TOLD = Told(max_num_seqs=16, max_num_batched_tokens=512)
WORLDS = {
    f"{cause}, {when}": pair[at]
    for cause, pair in contention.CASES.items()
    for at, when in enumerate(("before", "after"))
}


@pytest.fixture(scope="module")
def plain() -> Side:
    work = traffic(2000, 1, 7.0)
    return real_side(work, LAW, LIMITS)


@pytest.fixture(scope="module")
def found(plain: Side) -> Fit:
    return fit(plain, TOLD)


def pass_ms(law: Law, tokens: float, behind: float, batch: float, each: float) -> float:
    """A pass over `tokens` of a prompt with `behind` before them, and `batch` requests of `each` tokens that decode."""
    filling = law.prefill * tokens + law.attention * tokens * (behind + tokens / 2) / 1000
    return law.step + filling + law.decode * batch + law.context * batch * each / 1000


def test_a_law_that_is_the_twins_is_found_again(found: Fit) -> None:
    """Each of 7 numbers within 4 standard errors, and 40 % for the lightest; what they are for, a pass, within 2 %."""
    for field, sigma in zip(fields(Law), np.sqrt(np.diag(found.covariance)), strict=True):
        real, value = getattr(LAW, field.name), getattr(found.law, field.name)
        if real:
            off = abs(value / real - 1)
            assert off < min(4 * sigma, 0.4), f"{field.name}: {value:g} for {real:g}, sigma {sigma:.3f}"
        else:
            assert (value, sigma) == (0.0, 0.0)
    for case in ((0, 0, 1, 800), (0, 0, 10, 800), (300, 500, 0, 0), (500, 0, 8, 1000)):
        assert pass_ms(found.law, *case) == pytest.approx(pass_ms(LAW, *case), rel=0.02), case


def test_its_replay_is_what_was(plain: Side, found: Fit) -> None:
    rows = fidelity(plain, found)
    assert [row.figure for row in rows[:3]] == [f"P{q} of time to first token" for q in (50, 95, 99)]
    assert [row.figure for row in rows[-2:]] == ["mean prefill", "mean decode"]
    assert misfit(rows) == ""
    worst = max(abs(row.twin / row.real - 1) for row in rows if row.real)
    assert worst < 0.03, rows


def test_a_wrong_law_is_found_out(plain: Side, found: Fit) -> None:
    slow = replace(found, law=replace(found.law, decode=2 * found.law.decode))
    said = misfit(fidelity(plain, slow))
    assert said.startswith("the twin of a has "), said
    assert "may be off by" in said
    assert "other figures are off too" in said


@pytest.mark.slow
@pytest.mark.parametrize("name", WORLDS)
def test_a_server_that_is_not_the_twins_is_reproduced(name: str) -> None:
    """One that bends, jitters and hiccups: every figure of both sides of every case, within its bounds."""
    world = WORLDS[name]
    side = contention.side(world, contention.Draws.of(2000, 11), name)
    told = fit(side, contention.told(world))
    rows = fidelity(side, told)
    assert misfit(rows) == "", told.law
    step = 6 * world.decode
    for law_ms, real_ms in (
        (pass_ms(told.law, 0, 0, 8, 1200), step + world.decode * (0.14 * 8**1.1 + 0.012 * 8 * 1.2)),
        (
            pass_ms(told.law, 400, 0, 0, 0),
            step + world.prefill * (0.075 * 400**0.96 + 0.0012 * 400 * 0.2),
        ),
    ):
        assert law_ms == pytest.approx(real_ms, rel=0.08), told.law


@pytest.mark.slow
def test_limits_that_nobody_tells_are_found() -> None:
    work = traffic(2500, 2, 9.0)
    side = real_side(work, LAW, Limits(6, 512))
    found = fit(side)
    assert (found.limits.max_num_seqs, found.limits.max_num_batched_tokens) == (6, 512)
    assert any("max_num_seqs is not told and is taken for 6" in note for note in found.notes)
    assert any("max_num_batched_tokens is not told; of the usual sizes 512" in note for note in found.notes)
    assert any("KV pool is not told" in note for note in found.notes)
    assert misfit(fidelity(side, found)) == ""


def test_where_nobody_waited_seats_are_no_limit(plain: Side) -> None:
    work = traffic(300, 3, 0.5)
    side = real_side(work, LAW, LIMITS)
    assert fit(side, Told(max_num_batched_tokens=512)).limits.max_num_seqs == NONE


@pytest.mark.slow
def test_the_wait_that_vllm_hides_is_told_from_what_comes_before() -> None:
    """The twin's own traffic: `before` holds a line over the prompt's tokens, and the wait for the running pass."""
    work = replace(traffic(2000, 4, 7.0), hidden_wait=True)
    work = replace(work, before=3.0 + 0.002 * work.prompt)
    real = replay(work, LAW, LIMITS)
    side = side_of(work, real.before, {layer: getattr(real, layer) for layer in LAYERS})
    found = fit(side, replace(TOLD, hidden_wait=True))
    assert found.quiet == pytest.approx((3.0, 0.002), rel=0.15)
    assert misfit(fidelity(side, found)) == ""
    again = replay(workload(side, True, found.quiet), found.law, found.limits)
    assert again.before.mean() == pytest.approx(real.before.mean(), rel=0.05)
