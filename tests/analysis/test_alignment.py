"""Alignment laws are found again in traffic and by probes; what cannot be told is not called certain."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.alignment import MOST_PAIRS, fit, proven, served
from analysis.misses.ladder import climb
from analysis.misses.model import NOT_TOLD
from cachemodel.alignment import Alignment
from cachemodel.alignment_fit import COMPUTED_TOKENS, DROPPED_UNITS, LIES, Pair, fit_pairs
from cachemodel.alignment_probes import designed_probes
from tests.field_reports.caches import Cache, Fleet, Tokens

PLAIN = Alignment(16)
DATA = Path(__file__).parent.parent / "data"
UNITS = (1, 24, 100, 528, 561, *range(16, 2145, 16))
LAWS = st.builds(
    Alignment, st.integers(1, 2200), st.sampled_from(DROPPED_UNITS), st.sampled_from(COMPUTED_TOKENS)
)


def traffic(law: Alignment, requests: int, rng: Random, repeats: float = 0.15) -> Iterator[Pair]:
    """What a server with a law and a cache without end tells of sessions that grow, a few templates, and prompts that
    are sent again."""
    longest = max(400, 4 * law.unit)
    templates = [rng.randrange(1, 2 * longest) for _ in range(5)]
    sessions: list[int] = []
    past: list[int] = []
    for _ in range(requests):
        kind = rng.random()
        if past and kind < repeats:
            prompt = held = rng.choice(past)
        elif sessions and kind < 0.6:
            session = rng.randrange(len(sessions))
            held = sessions[session]
            prompt = sessions[session] = held + rng.randrange(1, longest)
        else:
            held = rng.choice(templates) if past else 0
            prompt = held + rng.randrange(1, longest)
            sessions.append(prompt)
        past.append(prompt)
        yield Pair(prompt, law.served(prompt, held), held)


def blind(pairs: Iterator[Pair] | list[Pair]) -> list[Pair]:
    return [pair._replace(held=None) for pair in pairs]


def probed(law: Alignment, longest: int) -> tuple[list[Pair], int]:
    """What a canary sees of a cache that follows the law, and the prompt tokens it sent."""
    pairs: list[Pair] = []
    tokens = 0
    while probes := designed_probes(pairs, longest):
        probe = probes[0]
        assert 0 < probe.held <= probe.prompt <= longest
        pairs.append(Pair(probe.prompt, law.served(probe.prompt, probe.held), probe.held))
        tokens += probe.tokens
        assert len(pairs) < 30
    return pairs, tokens


@pytest.mark.parametrize("dropped", [0, 1])
def test_every_planted_unit_is_found_in_traffic(dropped: int) -> None:
    wrong = []
    for unit in UNITS:
        law = Alignment(unit, dropped)
        found = fit_pairs(blind(traffic(law, 40, Random(unit))))
        if found is None or found.alignment != law:
            wrong.append((law, found and found.alignment))
    assert wrong == []


@pytest.mark.parametrize("dropped", [0, 1])
@pytest.mark.parametrize("unit", [1, 16, 561, 1072, 2144])
@pytest.mark.parametrize("known", [False, True])
def test_a_few_lies_change_nothing(unit: int, dropped: int, known: bool) -> None:
    rng = Random(unit)
    law = Alignment(unit, dropped)
    told = list(traffic(law, 300, rng))
    pairs = told if known else blind(told)
    for number in rng.sample(range(300), 12):
        pair = pairs[number]
        pairs[number] = pair._replace(cached=rng.choice([0, pair.prompt, rng.randrange(pair.prompt + 1)]))
    found = fit_pairs(pairs)
    assert found is not None
    assert (found.alignment.unit, found.alignment.dropped_units) == (unit, dropped)
    assert found.misfits <= 12


@pytest.mark.parametrize("dropped", DROPPED_UNITS)
@pytest.mark.parametrize("computed", COMPUTED_TOKENS)
def test_probes_find_every_law_for_certain(dropped: int, computed: int) -> None:
    wrong = []
    for unit in UNITS:
        law = Alignment(unit, dropped, computed)
        pairs, tokens = probed(law, 16384)
        found = fit_pairs(pairs)
        if found is None or not found.certain or found.alignment != law:
            wrong.append((law, found and found.alignment))
        assert tokens <= 36 * unit + 400
    assert wrong == []


def test_probes_end_where_the_longest_prompt_cannot_tell() -> None:
    pairs, tokens = probed(Alignment(4096), 3000)
    assert [pair.prompt for pair in pairs] == [40, 80, 160, 320, 640, 1280, 2560, 3000]
    assert fit_pairs(pairs) is None
    assert tokens == 2 * sum(pair.prompt for pair in pairs)
    assert designed_probes([], 0) == []


@given(law=LAWS, longest=st.integers(50, 9000))
def test_probes_are_never_certain_and_wrong(law: Alignment, longest: int) -> None:
    pairs, _ = probed(law, longest)
    found = fit_pairs(pairs)
    if found is None:
        assert law.attainable(longest) == 0
    else:
        assert law == found.alignment or (not found.certain and law in found.candidates)


@st.composite
def any_pairs(draw: st.DrawFn) -> tuple[Alignment, list[Pair]]:
    """Prompts of any length that have anything in common (in steps that a client may keep to), some of which lie."""
    law = draw(LAWS)
    step = draw(st.sampled_from([1, 2, 16, 64, law.unit, 3 * law.unit]))
    known = draw(st.booleans())
    pairs = []
    for prompt in draw(st.lists(st.integers(1, 6 * law.unit + 40), min_size=1, max_size=40)):
        held = min(prompt, draw(st.integers(0, prompt // step + 1)) * step)
        pairs.append(Pair(prompt, law.served(prompt, held), held if known else None))
    hits = sum(pair.cached > 0 for pair in pairs)
    # zeros that lie take hits away, so that one more hit must be there for each ten
    for number in range(min(draw(st.integers(0, 3)), int(LIES * max(0, hits - 3)))):
        pair = pairs[number]
        pairs[number] = pair._replace(cached=draw(st.integers(0, 2 * pair.prompt)))
    return law, pairs


@settings(max_examples=150)
@given(any_pairs())
def test_the_true_law_is_among_those_found_and_certain_means_true(case: tuple[Alignment, list[Pair]]) -> None:
    law, pairs = case
    found = fit_pairs(pairs)
    if found is None:
        assert all(pair.cached == 0 for pair in pairs)
        return
    assert law == found.alignment or law in found.candidates
    assert found.certain == (not found.candidates)
    assert found.sentence.endswith(".")


def test_traffic_alone_is_never_certain_of_a_unit_that_clients_may_have_made() -> None:
    """What prompts share may come in steps of the client: 512 tokens of documents on blocks of 16."""
    told = [Pair(512 * n + 17 * m, 512 * n) for n in range(1, 9) for m in (1, 2, 3)]
    found = fit_pairs(told)
    assert found is not None
    assert not found.certain
    assert not found.unit_certain
    assert Alignment(16) in found.candidates
    assert "canary" in found.sentence


def test_a_told_block_size_rules_smaller_units_out() -> None:
    told = blind(traffic(Alignment(64), 100, Random(1)))
    found = fit_pairs(told, block=64)
    assert found is not None
    assert found.alignment == Alignment(64)
    assert found.unit_certain
    assert fit_pairs(told, block=48) is None


def test_hits_above_what_a_prompt_can_get_are_counted_apart() -> None:
    told = [*traffic(Alignment(16), 100, Random(1)), *[Pair(100, 160, 90), Pair(100, 32, 90)]]
    found = fit_pairs(told)
    assert found is not None
    assert found.alignment == Alignment(16)
    assert (found.misfits, found.above) == (2, 1)
    assert "2 of which do not fit" in found.sentence


def test_where_what_was_held_explains_no_hits_the_hits_alone_are_read() -> None:
    """A cache that had forgotten: whatever was thought to be held, it holds the first three units only."""
    told = [Pair(prompt, 16 * (prompt % 3 + 1), prompt) for prompt in range(400, 460)]
    found = fit_pairs(told)
    assert found is not None
    assert (found.alignment.unit, found.certain) == (16, False)


@pytest.mark.parametrize("told", [[], [Pair(100, 0)], [Pair(100, 0, 90)], [Pair(100, 200)] * 5])
def test_no_hits_or_impossible_ones_tell_no_law(told: list[Pair]) -> None:
    assert fit_pairs(told) is None


def test_the_sentence_says_what_is_open() -> None:
    one = fit_pairs([Pair(100, 64, 90)])
    assert one is not None
    assert "sent twice" in one.sentence
    drop = fit_pairs([Pair(3000, 1072, 3000), Pair(4500, 3216, 4500), Pair(2143, 0, 2143)])
    assert drop is not None
    assert drop.alignment == Alignment(1072, 1)
    assert "units of 1,072 tokens, of which every match loses the last one" in drop.sentence
    assert "whether a whole prompt can be served is open" in drop.sentence


def test_columns_are_read_like_pairs() -> None:
    pairs = list(traffic(Alignment(48, 1), 200, Random(2)))
    prompt, cached, held = (np.array(column, dtype=np.int64) for column in zip(*pairs, strict=True))
    assert fit(prompt, cached, held) == fit_pairs(pairs)
    untold = np.full(200, NOT_TOLD)
    assert fit(prompt, cached, untold) == fit(prompt, cached) == fit_pairs(blind(pairs))
    assert fit(prompt, untold, held) is None


def test_of_many_pairs_some_are_drawn_the_same_ones_each_time() -> None:
    pairs = list(traffic(Alignment(784), 5 * MOST_PAIRS, Random(3)))
    prompt, cached, held = (np.array(column, dtype=np.int64) for column in zip(*pairs, strict=True))
    found = fit(prompt, cached, held)
    assert found is not None
    assert found.pairs == MOST_PAIRS
    assert found.alignment == Alignment(784)
    assert fit(prompt, cached, held) == found


@given(law=LAWS, rows=st.lists(st.tuples(st.integers(0, 9000), st.integers(0, 9000)), max_size=20))
def test_laws_of_columns_are_laws_of_numbers(law: Alignment, rows: list[tuple[int, int]]) -> None:
    prompt, held = (np.array([row[i] for row in rows], dtype=np.int64) for i in (0, 1))
    assert served(law, prompt, held).tolist() == [law.served(*row) for row in rows]


@pytest.mark.parametrize(
    ("run", "unit"), [("vllm-0.32/run1", 32), ("vllm-0.32/run3", 32), ("llamacpp-b11434/run_tiny", 1)]
)
def test_what_recorded_servers_told_shows_their_unit(run: str, unit: int) -> None:
    """vLLM with blocks of 32 tokens; llama.cpp reuses tokens one by one."""
    lines = (DATA / run / "requests.jsonl").read_text().splitlines()
    told = [usage for line in lines if (usage := json.loads(line).get("usage"))]
    pairs = [
        Pair(each["prompt_tokens"], each["prompt_tokens_details"]["cached_tokens"] or 0) for each in told
    ]
    found = fit_pairs(pairs)
    assert found is not None
    assert (found.alignment, found.misfits) == (Alignment(unit), 0)


def test_a_law_is_proven_by_what_was_held_whatever_law_the_ladder_was_climbed_with() -> None:
    fleet = Fleet(
        {"mtp": Cache(Alignment(64, 1)), "plain": Cache(PLAIN), "quiet": Cache(PLAIN)}, told=["mtp", "plain"]
    )
    rng, tokens = Random(1), Tokens(1)
    for at in range(60):
        prompt = tokens(rng.randrange(100, 600))
        for number, server in enumerate(fleet.names):
            fleet.ask(server, prompt, 10 * at + number)
            fleet.ask(server, prompt[: rng.randrange(1, len(prompt))] + tokens(50), 10 * at + 5 + number)
    chains, events, sent, pieces = fleet.chains(), fleet.events(), fleet.blocks_sent(), fleet.pieces_sent()
    first = climb(chains, events, sent, pieces, {})
    found = proven(chains, first)
    assert {server: told.alignment for server, told in found.items()} == {"mtp": Alignment(64, 1)}
    again = climb(chains, events, sent, pieces, {"mtp": found["mtp"].alignment})
    assert proven(chains, again) == {}
    mtp = chains.server == 0
    assert (first.served[mtp, 2] - first.served[mtp, 1]).sum() > 0  # taken for loads that failed
    assert (again.served[mtp, 2] == again.served[mtp, 1]).all()


def test_a_few_hits_prove_nothing() -> None:
    fleet = Fleet({"mtp": Cache(Alignment(64, 1))})
    for at in range(8):
        fleet.ask("mtp", Tokens(at // 2)(500), at)
    first = climb(fleet.chains(), fleet.events(), fleet.blocks_sent(), fleet.pieces_sent(), {})
    assert proven(fleet.chains(), first) == {}
