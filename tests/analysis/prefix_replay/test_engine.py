"""The reference engine, stepped by hand: each request's own count of cached tokens against a replay of its prompt."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from analysis.prefix_replay.model import Requests
from analysis.prefix_replay.replay import replay
from analysis.prefix_replay.rules import ENGINE
from cachemodel.alignment import Alignment
from engine.core.sequence import Sequence
from tests.analysis.prefix_replay.worlds import ragged, requests
from tests.engine.core.tiny import ByHand


def prompts(rng: random.Random, count: int) -> list[tuple[list[int], int, str, bool]]:
    """(prompt, tokens to generate, salt, whether reads are off): conversations of four users and what is new."""
    histories: list[list[int]] = [[rng.randrange(4, 60) for _ in range(40)]] * 4
    out = []
    for _ in range(count):
        user = rng.randrange(4)
        more = [rng.randrange(4, 60) for _ in range(rng.randrange(1, 25))]
        histories[user] = (
            (histories[user] + more) if len(histories[user]) < 100 else histories[user][:40] + more
        )
        if rng.random() < 0.2:
            histories[user] = histories[user][: rng.randrange(1, len(histories[user]) + 1)]
        out.append(
            (list(histories[user]), rng.randrange(1, 9), rng.choice(["", "", "a"]), rng.random() < 0.1)
        )
    return out


def columns(sequences: list[Sequence]) -> Requests:
    asked = [sequence.request for sequence in sequences]
    return requests(
        [one.prompt for one in asked],
        isolation=np.array([len(one.salt) for one in asked], np.uint64),
        reads_off=np.array([one.reads_off for one in asked], np.bool_),
        replies=ragged([one.output for one in asked], np.uint32),
    )


def counted(sequences: list[Sequence]) -> np.ndarray:
    return np.array([sequence.request.sources.cached for sequence in sequences])


@pytest.mark.parametrize("blocks", [30, 60, 500])
@pytest.mark.parametrize(
    ("unit", "drops"), [(0, False), (8, False), (4, True)], ids=["blocks", "units", "drops the last"]
)
def test_one_at_a_time_to_the_token(blocks: int, unit: int, drops: bool) -> None:
    """Sequences of up to 33 blocks in caches too small, just so and large enough."""
    engine = ByHand(device_blocks=blocks + 4, cache_unit=unit, drop_last_unit=drops)
    sequences = []
    for prompt, tokens, salt, off in prompts(random.Random(blocks), 150):
        sequences.append(engine.submit(prompt, tokens, salt=salt, reads_off=off, ignore_eos=True))
        engine.drain()
    engine.close()
    law = Alignment(unit or 4, int(drops))
    rule = replace(ENGINE, block_size=4, capacity=blocks + 4, alignment=law)
    assert replay(columns(sequences), rule).served.tolist() == counted(sequences).tolist()
    assert counted(sequences).sum() > 1000


@pytest.mark.parametrize(
    ("budget", "arrivals"), [(16, 0.2), (256, 0.7)], ids=["long queues", "several a step"]
)
def test_many_at_once_from_when_they_were_sent(budget: int, arrivals: float) -> None:
    """Time is the number of the step; requests come in the middle of one and leave a little behind its end. How a
    step's tokens were shared between prompts is not told, so that the replay is off by some; it is right for most."""
    engine = ByHand(device_blocks=500, max_num_batched_tokens=budget, max_num_seqs=8)
    rng = random.Random(11)
    sequences: list[Sequence] = []
    sent: list[float] = []
    first: dict[int, float] = {}
    done: dict[int, float] = {}
    waiting, step = prompts(rng, 200), 0
    while waiting or engine.stepper.scheduler.sequences:
        while waiting and rng.random() < arrivals:
            prompt, tokens, salt, off = waiting.pop(0)
            sequences.append(engine.submit(prompt, tokens, salt=salt, reads_off=off, ignore_eos=True))
            sent.append(step - 0.5)
        if engine.stepper.scheduler.sequences:
            engine.step()
        step += 1
        for row, sequence in enumerate(sequences):
            if sequence.request.output:
                first.setdefault(row, float(step))
            if sequence.request.finish_reason:
                done.setdefault(row, step + 0.1)
    engine.close()
    rows = range(len(sequences))
    timed = replace(
        columns(sequences),
        sent=np.array(sent),
        first_token=np.array([first[row] for row in rows]),
        done=np.array([done[row] for row in rows]),
    )
    rule = replace(ENGINE, block_size=4, chunk=budget, max_num_seqs=8)
    told, found = counted(sequences), replay(timed, rule).served
    in_a_row = replay(columns(sequences), rule).served
    for how, what in (("by time", found), ("in a row", in_a_row)):
        print(f"{how}: {(what == told).mean():.1%} equal, {what.sum() / told.sum() - 1:+.2%} tokens")
    assert abs(found.sum() - told.sum()) < 0.02 * told.sum()
    assert (found == told).mean() > 0.9
