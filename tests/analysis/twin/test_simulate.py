"""The replay against a server written apart from it, and against what can be worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analysis.twin.model import Law, Limits, Replay, Workload
from analysis.twin.simulate import replay, replay_all
from tests.analysis.twin.plain import served, traffic

LAW = Law(step=5.0, prefill=0.05, attention=0.003, decode=0.2, context=0.02, host=0.004, host_fixed=1.5)
SIMPLE = Law(step=10.0, prefill=0.1, attention=0.0, decode=1.0, context=0.0)
ROOMY = Limits(max_num_seqs=48, max_num_batched_tokens=1024)
LIMITS = {
    "roomy": ROOMY,
    "few seats, short chunks": Limits(8, 256),
    "a pool that fills": Limits(48, 512, kv_tokens=12_000),
    "all of it": Limits(6, 64, kv_tokens=4_000),
}
LAYERS = ("queue", "host", "remote", "prefill", "decode")


def requests(*rows: tuple[float, int, int, int, int, int]) -> Workload:
    """From (arrival ms, prompt, completion, host, remote, computed)."""
    columns = np.array(rows, float).T
    nothing = np.zeros(len(rows))
    return Workload(columns[0] / 1e3, *columns[1:5], columns[5], before=nothing, after=nothing)


def layers_of(replayed: Replay) -> dict[str, list[float]]:
    return {
        name: getattr(replayed, name).round(6).tolist() for name in LAYERS if getattr(replayed, name).any()
    }


@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize("rate", [2.0, 20.0])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_as_a_server_that_goes_pass_by_pass(limits: Limits, rate: float, seed: int) -> None:
    """Jumps over passes that are alike change nothing, preemptions included."""
    work = traffic(300, seed, rate)
    ours, (theirs, passes) = replay(work, LAW, limits), served(work, LAW, limits)
    for name in ("queue", "host", "prefill", "decode"):
        np.testing.assert_allclose(
            getattr(ours, name), [r.spent.get(name, 0.0) for r in theirs], atol=1e-6, err_msg=name
        )
    np.testing.assert_allclose(ours.ttft, work.before + [r.first - r.ready for r in theirs], atol=1e-6)
    assert passes > 300


def test_some_of_these_preempt() -> None:
    work = traffic(300, 0, 20.0)
    assert replay(work, LAW, LIMITS["a pool that fills"]).preemptions.sum() > 5
    assert not replay(work, LAW, ROOMY).preemptions.any()


@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
def test_layers_add_up_to_the_whole(limits: Limits) -> None:
    work = traffic(400, 3, 10.0)
    work = replace(work, remote=np.floor((work.prompt - work.computed - work.host) / 2))
    law = replace(LAW, remote=0.01, remote_fixed=3.0)
    for hidden in (False, True):
        found = replay(replace(work, hidden_wait=hidden), law, limits)
        parts = found.before + work.after + sum(getattr(found, name) for name in LAYERS)
        np.testing.assert_allclose(parts, found.e2e, atol=1e-6)
        calm = found.preemptions == 0
        upto = found.before + found.queue + found.host + found.remote + found.prefill
        np.testing.assert_allclose(upto[calm], found.ttft[calm], atol=1e-6)
        assert found.remote[work.remote > 0].min() >= 3.0
        assert all((getattr(found, name) >= 0).all() for name in LAYERS)


def test_one_request_by_hand() -> None:
    found = replay(requests((0, 100, 3, 0, 0, 40)), SIMPLE, ROOMY)
    assert layers_of(found) == {"prefill": [14.0], "decode": [22.0]}
    assert (found.ttft[0], found.e2e[0]) == pytest.approx((14.0, 36.0))


def test_chunks_take_turns_with_decoding() -> None:
    """The second's prompt takes two passes, each of which gives the first a token."""
    found = replay(requests((0, 10, 4, 0, 0, 10), (11, 150, 1, 0, 0, 150)), SIMPLE, Limits(8, 101))
    # passes end at 11, then 11 + 10 + 1 + 10 = 32, then + 10 + 1 + 5 = 48, then 11 more
    assert layers_of(found) == {"prefill": [11.0, 37.0], "decode": [48.0, 0.0]}


def test_who_finds_no_seat_waits_for_one() -> None:
    found = replay(requests((0, 10, 3, 0, 0, 10), (1, 10, 1, 0, 0, 10)), SIMPLE, Limits(1, 1024))
    assert layers_of(found) == {"queue": [0.0, 32.0], "prefill": [11.0, 11.0], "decode": [22.0, 0.0]}


def test_the_last_to_arrive_makes_room_and_computes_again() -> None:
    """30 tokens: both prompts and two tokens each fit, the third token of the first does not."""
    work = requests((0, 14, 4, 0, 0, 14), (0, 14, 4, 0, 0, 14))
    found = replay(work, replace(SIMPLE, prefill=0.0), Limits(8, 1024, kv_tokens=30))
    assert found.preemptions.tolist() == [0, 1]
    # pass 1 both prompts, 2 the first alone (30 + 2 > 30), 3 and 4 too; then the second computes 15 tokens and goes on
    assert layers_of(found)["decode"] == [33.0, 22.0]
    assert layers_of(found)["queue"] == [0.0, 33.0]
    assert layers_of(found)["prefill"] == [10.0, 20.0]
    assert found.ttft.tolist() == pytest.approx([10.0, 10.0])


def test_a_shared_prefix_takes_no_room_twice() -> None:
    work = requests((0, 100, 50, 0, 0, 20), (0, 100, 50, 0, 0, 20))
    alone, shared = (replay(work, SIMPLE, Limits(8, 1024, 210, share)) for share in (0.0, 1.0))
    assert alone.preemptions.sum() > 0
    assert shared.preemptions.sum() == 0


def test_host_loads_hold_up_everybody_and_remote_ones_their_request() -> None:
    law = replace(SIMPLE, host=0.5, host_fixed=4.0, remote=0.5, remote_fixed=4.0)
    first = (0.0, 10, 20, 0, 0, 10)
    host = replay(requests(first, (5, 110, 1, 100, 0, 10)), law, ROOMY)
    remote = replay(requests(first, (5, 110, 1, 0, 100, 10)), law, ROOMY)
    alone = replay(requests(first), law, ROOMY)
    assert host.decode[0] == pytest.approx(alone.decode[0] + 54 + 1)  # and the ms of its ten tokens
    assert host.host[1] == pytest.approx(11 + 54)  # behind the pass in which it was admitted
    assert remote.decode[0] == pytest.approx(alone.decode[0] + 1)
    assert remote.remote[1] == pytest.approx(55)  # five passes of 11 ms: the next takes it in


def test_the_hidden_wait_is_told_before_the_queue() -> None:
    work = requests((0, 100, 1, 0, 0, 100), (1, 10, 1, 0, 0, 10))
    told, hidden = (replay(replace(work, hidden_wait=hides), SIMPLE, ROOMY) for hides in (False, True))
    assert (told.before[1], told.queue[1]) == pytest.approx((0.0, 19.0))
    assert (hidden.before[1], hidden.queue[1]) == pytest.approx((19.0, 0.0))
    np.testing.assert_allclose(told.e2e, hidden.e2e)


def test_order_of_rows_and_units_change_nothing() -> None:
    work, limits = traffic(300, 5, 12.0), LIMITS["a pool that fills"]
    straight = replay(work, LAW, limits)
    order = np.random.default_rng(0).permutation(300)
    columns = {name: value[order] for name, value in vars(work).items() if isinstance(value, np.ndarray)}
    shuffled = replay(replace(work, **columns), LAW, limits)
    np.testing.assert_allclose(shuffled.e2e, straight.e2e[order], atol=1e-6)
    slow = Law(*(2 * value for value in (getattr(LAW, name) for name in Law.__slots__)))
    columns = {name: 2 * getattr(work, name) for name in ("arrival", "before", "after")}
    np.testing.assert_allclose(
        replay(replace(work, **columns), slow, limits).e2e, 2 * straight.e2e, rtol=1e-9
    )


def test_many_cases_come_back_in_order() -> None:
    works = [traffic(50, seed, 5.0) for seed in range(8)]
    means = replay_all([(work, LAW, ROOMY) for work in works], lambda found: float(found.e2e.mean()))
    assert means == [float(replay(work, LAW, ROOMY).e2e.mean()) for work in works]


def test_nobody_comes() -> None:
    assert replay(requests((0, 1, 1, 0, 0, 1)), SIMPLE, ROOMY).e2e.tolist() == pytest.approx([10.1])
    nobody = Workload(*(np.zeros(0) for _ in range(8)))
    assert replay(nobody, SIMPLE, ROOMY).e2e.tolist() == []


@pytest.mark.parametrize(
    ("wrong", "law", "limits"),
    [
        ("prompt", LAW, ROOMY),
        ("", replace(LAW, step=-1.0), ROOMY),
        ("", replace(LAW, decode=float("inf")), ROOMY),
        ("", LAW, Limits(0, 1024)),
        ("", LAW, Limits(8, 0)),
    ],
)
def test_what_cannot_be_replayed_is_refused(wrong: str, law: Law, limits: Limits) -> None:
    work = traffic(10, 0, 1.0)
    if wrong:
        work = replace(work, **{wrong: np.full(10, np.nan)})
    with pytest.raises(ValueError, match=r"finite|time back|at least one"):
        replay(work, law, limits)
