"""A name is blamed past the gate and when its own input changed; words and numbers for everything else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analysis.attribution.certainty.gate import LOWEST_GATE, judge, level_of
from analysis.attribution.certainty.inputs import own_changes
from analysis.attribution.certainty.resampling import resampling
from analysis.attribution.model import Placebo, Refused, Resampling, Side, Split, Verdict
from tests.analysis.attribution.loads import by_layer, under_load

HOUR = 3600.0
MOVED = {"x": ("x 1 -> 2", 9.0), "y": ("y 1 -> 2", 9.0)}


def split(values: list[float], *, sigma: float = 1.0, kind: str = "shows", q: float | None = 0.95) -> Split:
    noise = np.random.default_rng(0).standard_normal((200, len(values)))
    noise = sigma * (noise - noise.mean(axis=0)) / noise.std(axis=0, ddof=1)
    return Split(
        kind=kind,  # type: ignore[arg-type]
        q=q,
        names=("x", "y")[: len(values)],
        values=np.array(values),
        replicates=np.array(values) + noise,
        change=sum(values) + 0.5,
        change_replicates=noise.sum(axis=1),
        residual=0.5,
        residual_replicates=np.zeros(200),
        provenance="measured",
        method="",
    )


def drawn(n: int = 1000, **more: object) -> Resampling:
    nothing, counts = np.zeros(n, np.int64), np.ones((200, 1))
    return replace(Resampling(nothing, nothing, counts, counts, False, 60.0, n, n), **more)  # type: ignore[arg-type]


def verdicts(*values: float, **more: object) -> list[Verdict]:
    return [
        share.verdict for share in judge(split(list(values)), more.pop("own", MOVED), drawn(**more)).shares
    ]  # type: ignore[arg-type]


def test_past_the_gate_is_named_within_chance_is_noise_between_is_undecided() -> None:
    assert verdicts(5.0, 1.0) == [Verdict.NAMED, Verdict.NOISE]
    assert verdicts(2.4, -5.0) == [Verdict.UNDECIDED, Verdict.NAMED]


def test_what_is_clear_and_does_not_matter_is_slight() -> None:
    """1 ms of 500: told from chance by 10 sigma, and nothing that anybody would act on."""
    view = judge(split([500.0, 1.0], sigma=0.1), MOVED, drawn())
    assert [share.verdict for share in view.shares] == [Verdict.NAMED, Verdict.SLIGHT]
    assert view.least == pytest.approx(0.05 * 501.5)
    assert (
        "from 25.1 ms on (5 % of what moved and 1 % of P95; past the gate and smaller is slight)"
        in view.notes[-1]
    )
    at = 0.05 * (500 + 26 + 0.5)
    for value, verdict in ((at * 0.98, Verdict.SLIGHT), (26.5, Verdict.NAMED)):
        found = judge(split([500.0, value], sigma=0.1), MOVED, drawn())
        assert found.shares[1].verdict is verdict


def test_shares_that_cancel_are_measured_by_what_moved_not_by_what_is_left() -> None:
    view = judge(split([300.0, -297.0], sigma=0.1), MOVED, drawn())
    assert [share.verdict for share in view.shares] == [Verdict.NAMED, Verdict.NAMED]
    assert view.least == pytest.approx(0.05 * 300)


def test_a_change_of_next_to_nothing_of_the_level_blames_nobody() -> None:
    for level, verdict in ((900.0, Verdict.SLIGHT), (400.0, Verdict.NAMED)):
        view = judge(split([5.0], sigma=0.1), MOVED, drawn(), level=level)
        assert view.shares[0].verdict is verdict
        assert view.least == pytest.approx(max(0.05 * 5.5, 0.01 * level))


@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_neither_the_unit_of_time_nor_the_order_decides(scale: float) -> None:
    of_change, of_level = split([500.0, 30.0], sigma=2.0), split([500.0, 6.0], sigma=0.1)
    for one in (of_change, of_level):
        told, other, turned = (
            [share.verdict for share in judge(same, MOVED, drawn(), level=level).shares]
            for same, level in ((one, 700.0), (scaled(one, scale), 700.0 * scale), (reordered(one), 700.0))
        )
        assert told == other == turned[::-1]


def scaled(one: Split, by: float) -> Split:
    names = ("values", "replicates", "change", "change_replicates", "residual", "residual_replicates")
    return replace(one, **{name: by * getattr(one, name) for name in names})


def reordered(one: Split) -> Split:
    return replace(one, names=one.names[::-1], values=one.values[::-1], replicates=one.replicates[:, ::-1])


def test_the_level_is_the_larger_of_both_sides() -> None:
    a, b, _ = sides(decode=40.0)
    assert level_of(None, a, b) == max(a.totals.mean(), b.totals.mean())
    assert level_of(0.95, a) == pytest.approx(np.quantile(a.totals, 0.95), rel=0.02)


def test_what_did_not_change_itself_is_not_blamed() -> None:
    assert verdicts(5.0, 5.0, own={"x": ("x", 2.9)}) == [Verdict.UNDECIDED, Verdict.UNDECIDED]
    assert verdicts(5.0, own={"x": ("x", None)}) == [Verdict.UNDECIDED]


def test_few_blocks_ask_for_more_and_widen_the_interval() -> None:
    assert verdicts(4.0) == [Verdict.NAMED]
    assert verdicts(4.0, degrees=4.0) == [Verdict.UNDECIDED]
    wide, narrow = (judge(split([5.0]), MOVED, drawn(degrees=d)).shares[0] for d in (4.0, np.inf))
    assert narrow.high == pytest.approx(5 + 1.96, abs=1e-3)
    assert wide.high == pytest.approx(5 + 2.776, rel=0.01)
    assert judge(split([5.0]), MOVED, drawn(widen=1.5)).shares[0].high == pytest.approx(
        5 + 1.5 * 1.96, abs=1e-3
    )


def test_more_names_raise_the_gate_and_so_does_the_users_own_history() -> None:
    assert verdicts(2.7) == [Verdict.NAMED]
    assert verdicts(2.7, 0.0)[0] == Verdict.UNDECIDED
    null = Placebo(40, 3, 0.075, 0.016, 0.2, critical=6.0, window_s=60)
    view = judge(split([5.0]), MOVED, drawn(), null)
    assert view.shares[0].verdict == Verdict.UNDECIDED
    assert "6.0 sigma" in view.notes[-1]
    assert "40 pairs" in view.notes[-1]


def test_a_composition_blames_nobody() -> None:
    view = judge(split([9.0], kind="composition"), MOVED, drawn())
    assert view.shares[0].verdict == Verdict.UNDECIDED


@pytest.mark.parametrize(
    ("resampled", "words"),
    [
        (drawn(refused="A has no requests"), "A has no requests"),
        (drawn(n=90), "90 requests are too few for P95; about 101"),
    ],
)
def test_without_an_interval_nothing_is_decided_and_the_reason_is_told(
    resampled: Resampling, words: str
) -> None:
    view = judge(split([9.0]), MOVED, resampled)
    assert view.shares[0].low is None
    assert view.change_low is None
    assert view.shares[0].verdict == Verdict.UNDECIDED
    assert words in view.notes[-1]


def test_resamples_that_could_not_be_split_are_left_out() -> None:
    some, most = split([9.0]), split([9.0])
    some.replicates[:20], most.replicates[:180] = np.nan, np.nan
    assert judge(some, MOVED, drawn()).shares[0].verdict == Verdict.NAMED
    assert "20 of 200 resamples" in judge(most, MOVED, drawn()).notes[-1]


def test_shares_and_residual_add_up_and_a_refusal_keeps_its_reason() -> None:
    view = judge(split([5.0, 1.0]), MOVED, drawn())
    assert sum(share.value for share in view.shares) + view.residual == pytest.approx(view.change)
    refused = judge(Refused("caused", "no tokens"), MOVED, drawn())
    assert (refused.shares, refused.refused) == ([], "no tokens")


def test_constants_that_moved_are_named_and_constants_that_did_not_are_noise() -> None:
    assert judge(split([5.0], sigma=0.0), MOVED, drawn()).shares[0].verdict == Verdict.NAMED
    assert judge(split([0.0], sigma=0.0), MOVED, drawn()).shares[0].verdict == Verdict.NOISE
    assert LOWEST_GATE > 2.5


def sides(**changes: float) -> tuple[Side, Side, Resampling]:
    rng = np.random.default_rng(1)
    a, b = under_load(1500, HOUR, 0, rng), under_load(1500, HOUR, 0, rng, begin=2 * HOUR, **changes)
    return a, b, resampling(a, b, rng)


def test_own_changes_say_what_changed_and_by_how_many_sigmas() -> None:
    own = own_changes(*sides(hits=0.5))
    assert own["hits"][0] == own["cached"][0].replace("cached", "hits")
    assert own["hits"][0].startswith("hits 69.")
    assert own["hits"][1] > 10  # type: ignore[operator]
    assert own["decode"][1] < 3  # type: ignore[operator]
    a, b, drawn_ = sides(decode=30.0)
    assert own_changes(a, b, drawn_)["decode"][1] > 5  # type: ignore[operator]
    twice = replace(b, begin=b.begin + HOUR / 2)
    assert own_changes(a, twice, drawn_)["workload"][0].startswith("arrivals 0.417/s -> 0.833/s")


def test_own_changes_of_what_nobody_tells_are_left_out() -> None:
    a, b, drawn_ = sides()
    unknown = replace(
        b, tokens=np.full((2, b.n), np.nan), times=np.vstack([np.full(b.n, np.nan), b.times[1:]])
    )
    own = own_changes(a, unknown, drawn_)
    assert "queue" not in own
    assert "hits" not in own
    assert own["decode"][1] is not None
    assert own_changes(a.subset(np.arange(0)), b, drawn_) == {}


def test_a_real_change_is_named_for_what_it_is() -> None:
    a, b, drawn_ = sides(decode=40.0)
    view = judge(by_layer(a, b, drawn_), own_changes(a, b, drawn_), drawn_)
    named = [share.name for share in view.shares if share.verdict == Verdict.NAMED]
    assert named == ["decode"]


def test_a_tier_has_the_tokens_it_served_and_the_time_that_took() -> None:
    """`host` is a layer and a source: one must not stand for the other."""
    a, b, drawn_ = sides(decode=40.0)
    a, b = (replace(s, sources=("host", "computed"), layers=("queue", "prefill", "host")) for s in (a, b))
    own = own_changes(a, b, drawn_)
    assert own["host"][0].startswith("mean host")
    assert own["host"][1] > 5  # type: ignore[operator]
    assert own["host tokens"][0].startswith("host tokens 69.")
    assert own["host tokens"][1] < 3  # type: ignore[operator]


def test_constants_that_differ_by_rounding_have_an_interval_of_no_width() -> None:
    """Each request takes as long as every other: resamples differ in the last digits of a float only."""
    rounded = split([2.0, 4.0], sigma=1e-13)
    view = judge(rounded, MOVED, drawn())
    assert [share.verdict for share in view.shares] == [Verdict.NAMED, Verdict.NAMED]
    assert [(share.low, share.high) for share in view.shares] == [(2.0, 2.0), (4.0, 4.0)]
    assert view.gate == LOWEST_GATE
