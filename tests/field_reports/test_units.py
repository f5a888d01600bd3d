"""Field reports about units in which caches reuse tokens: the law is found in what the server tells, and what it costs
is counted as such. Each test is named after the row of the list of threads (README.md has the table)."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from cachemodel.alignment import Alignment
from cachemodel.alignment_fit import Pair, fit_pairs
from tests.field_reports.caches import Cache, Fleet, Tokens
from tests.field_reports.outcome import Outcome


def agents(fleet: Fleet, seed: int, longest: int, turns: int = 40, first: int = 0) -> Iterator[int]:
    """Sessions on the server "s" that grow by some tokens a turn, now and then sent again as they are; how much of each
    prompt was served."""
    rng, tokens = Random(seed), Tokens(seed)
    sessions = [tokens(rng.randrange(longest)) for _ in range(4)]
    for at in range(first, first + turns):
        session = sessions[at % 4]
        if rng.random() < 0.7:
            session += tokens(rng.randrange(longest // 4))
        yield fleet.ask("s", session, at)


def test_row_2_checkpoints_at_the_ends_of_chunks_only() -> None:
    """One request at a time: states are kept each 8,192 tokens. Several at once: chunks end earlier, and hits begin."""
    alone, busy = (Fleet({"s": Cache(Alignment(unit), block=512)}) for unit in (8192, 2048))
    assert sum(agents(alone, 2, 4000, turns=8)) == 0
    assert sum(agents(busy, 2, 4000, turns=8)) > 0
    found = Outcome(alone)
    assert set(found.parts()) == {"unaligned", "cold"}
    assert found.fit("s") is None
    (said,) = found.too_long_units()
    assert "8,193 tokens or more" in said
    assert Outcome(busy).too_long_units() == []


@pytest.mark.parametrize(("row", "prompt", "unit"), [(3, 561, 784), (9, 4000, 4096)])
def test_rows_3_9_prompts_shorter_than_a_unit(row: int, prompt: int, unit: int) -> None:
    fleet, again = Fleet({"s": Cache(Alignment(unit))}), Tokens(row)(prompt)
    for at in range(4):
        fleet.ask("s", again, at)
    found = Outcome(fleet)
    assert found.parts() == {"cold": prompt, "unaligned": 3 * prompt}
    (said,) = found.too_long_units()
    assert f"4 of 4 prompts can never hit: that takes {unit + 1:,} tokens or more" in said
    (line,) = found.ceilings()
    assert (line.achieved, line.attainable) == (0, 0)


def test_row_5_one_block_of_1072_tokens_is_dropped_at_every_hit() -> None:
    """MTP: 92 % becomes 71 %, and all that is lost is `unaligned`."""
    plain, mtp = (Fleet({"s": Cache(Alignment(1072, dropped), block=1072)}) for dropped in (0, 1))
    for fleet in (plain, mtp):
        tokens = Tokens(5)
        prompts = [tokens(length) for length in (4661, 4661, 5826)]
        for at, prompt in enumerate(prompts * 2):
            fleet.ask("s", prompt, at)
    before, after = Outcome(plain), Outcome(mtp)
    again = slice(3, None)
    assert round(before.hit_rate(again), 2) == 0.92
    assert round(after.hit_rate(again), 2) == 0.71
    assert set(after.parts(again)) == {"cached", "unaligned"}
    lost = after.parts(again)["unaligned"] - before.parts(again)["unaligned"]
    assert lost == 3 * 1072


@pytest.mark.parametrize(("row", "unit"), [(5, 1072), (6, 1648)])
def test_rows_5_6_the_dropped_block_is_found_in_traffic_and_proved_by_events(row: int, unit: int) -> None:
    fleet = Fleet({"s": Cache(Alignment(unit, 1))})
    assert sum(agents(fleet, row, 6 * unit)) > 0
    matched = sum(tokens > 0 for tokens in agents(Fleet({"s": Cache(Alignment(unit))}), row, 6 * unit))
    guess = Outcome(fleet, laws={}).fit("s")
    assert guess is not None
    assert guess.alignment == Alignment(unit, 1)
    assert not guess.certain  # nobody said what was held
    # the ladder knows from events what was held, whatever law it was climbed with
    assert Outcome(fleet, laws={}).proven()["s"].alignment == Alignment(unit, 1)
    assert Outcome(fleet).proven() == {}
    found, lossless = Outcome(fleet), Outcome(fleet, laws={"s": Alignment(unit)})
    (line,), (without,) = found.ceilings(), lossless.ceilings()
    assert line.achieved == line.attainable
    assert without.attainable - line.attainable == matched * unit


def test_row_19_a_setting_that_makes_a_cache_coarser_shows_in_its_law() -> None:
    """The same agents before and after: not their prompts have changed, but the unit of what is kept of them."""
    fleet = Fleet({"s": Cache(Alignment(64))})
    before = sum(agents(fleet, 19, 3000))
    fleet.clear("s", 50)
    fleet.caches["s"].law = Alignment(1024)
    after = sum(agents(fleet, 19, 3000, first=60))
    assert after < before
    found = Outcome(fleet)
    fine, coarse = found.fit("s", slice(0, 40)), found.fit("s", slice(40, None))
    assert fine is not None
    assert coarse is not None
    assert (fine.alignment, coarse.alignment) == (Alignment(64), Alignment(1024))


def test_row_15_no_law_explains_a_cache_that_hits_only_when_a_prompt_goes_on() -> None:
    pairs = [Pair(prompt, 0, prompt) for prompt in range(300, 500, 10)]
    pairs += [Pair(prompt + 80, prompt // 16 * 16, prompt) for prompt in range(300, 500, 10)]
    found = fit_pairs(pairs)
    assert found is not None
    assert not found.unit_certain
    # the same prompts, served by whole blocks
    lawful = fit_pairs(
        [pair._replace(cached=Alignment(16).served(pair.prompt, pair.held or 0)) for pair in pairs]
    )
    assert lawful is not None
    assert lawful.unit_certain


@pytest.mark.parametrize("seed", range(3))
def test_row_29_hits_that_were_counted_twice_do_not_bend_the_law(seed: int) -> None:
    """A few requests were preempted, and what was computed again was told as cached, more than was ever sent before."""
    rng = Random(seed)
    law = Alignment(16)
    pairs = [Pair(prompt, law.served(prompt, held), held) for prompt, held in _prompts(rng, 100)]
    lies = [Pair(prompt, prompt // 16 * 16, 0) for prompt, _ in _prompts(rng, 6)]
    found = fit_pairs([*pairs, *lies])
    assert found is not None
    assert (found.alignment, found.misfits) == (law, 6)


def _prompts(rng: Random, count: int) -> list[tuple[int, int]]:
    return [(prompt, rng.randrange(prompt)) for prompt in (rng.randrange(100, 2000) for _ in range(count))]
