"""Arrival processes and the mix: laws over seeds, and the same seed twice."""

from __future__ import annotations

import itertools
import json
import math
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemodel.errors import UsageError
from hitmap.load import mix
from hitmap.load.arrivals import BURST, PROCESSES, arrivals
from hitmap.load.plan import Body, Plan, Planned, outline

SEEDS = st.integers(0, 2**31)
RATES = st.floats(0.1, 100)


def first(process: str, rate: float, seed: int, count: int) -> list[float]:
    return list(itertools.islice(arrivals(process, rate, seed), count))


@given(seed=SEEDS, rate=RATES, process=st.sampled_from(PROCESSES))
def test_arrivals_are_in_order_and_repeatable(seed: int, rate: float, process: str) -> None:
    times = first(process, rate, seed, 100)
    assert times == sorted(times) == first(process, rate, seed, 100)
    assert times[0] >= 0


@pytest.mark.parametrize("process", PROCESSES)
@pytest.mark.parametrize("rate", [0.5, 40.0])
def test_the_rate_is_the_one_asked_for(process: str, rate: float) -> None:
    count = 40_000
    assert first(process, rate, 7, count)[-1] == pytest.approx(count / rate, rel=0.05)


@pytest.mark.parametrize("seed", range(5))
def test_poisson_gaps_are_exponential(seed: int) -> None:
    """Kolmogorov's distance to 1 - exp(-rate t) stays below its 0.1 % point, 1.95 / sqrt(n)."""
    count, rate = 5000, 3.0
    times = [0.0, *first("poisson", rate, seed, count)]
    gaps = sorted(later - earlier for earlier, later in itertools.pairwise(times))
    law = [1 - math.exp(-rate * gap) for gap in gaps]
    distance = max(max((i + 1) / count - p, p - i / count) for i, p in enumerate(law))
    assert distance < 1.95 / math.sqrt(count)


def test_uniform_is_a_beat_and_a_burst_comes_at_once() -> None:
    assert first("uniform", 4.0, 1, 5) == [0.0, 0.25, 0.5, 0.75, 1.0]
    times = first("burst", 4.0, 1, 20 * BURST)
    assert {times.count(time) for time in times} == {BURST}


def in_bytes(plan: Plan) -> bytes:
    return b"\n".join(
        json.dumps(
            [planned.due_s, planned.session, dict(planned.labels), planned.body(("A.", "B.", "C."))]
        ).encode()
        for planned in plan
    )


def mixed(seed: int = 0, rate: float = 5.0, clock: str = "none", **shares: float) -> Plan:
    return mix.plan(shares or mix.DEFAULT, rate=rate, seed=seed, clock=clock)


@given(seed=SEEDS, clock=st.sampled_from(mix.CLOCKS), count=st.integers(1, 60))
def test_the_same_seed_gives_the_same_plan_to_the_byte(seed: int, clock: str, count: int) -> None:
    plan = mixed(seed, clock=clock).limited(count=count)
    assert in_bytes(plan) == in_bytes(plan) == in_bytes(mixed(seed, clock=clock).limited(count=count))
    assert len(list(plan)) == count


def test_another_seed_gives_another_plan() -> None:
    assert in_bytes(mixed(1).limited(count=5)) != in_bytes(mixed(2).limited(count=5))


def test_limits() -> None:
    due = [planned.due_s for planned in mixed().limited(duration_s=30)]
    assert max(due) < 30
    assert len(due) == len([time for time in first("poisson", 5.0, 0, 1000) if time < 30])
    assert len(list(mixed().limited(duration_s=30, count=3))) == 3


def at(*times: float) -> Plan:
    return Plan("times", lambda: iter([Planned(time, lambda _: {}, {}) for time in times]))


@pytest.mark.parametrize(
    ("plan", "requests", "window_s", "per_s", "cut"),
    [
        (at(1, 2, 3, 4), 4, 4.0, 1.0, False),  # three gaps of a second
        (at(1, 2, 3, 4).limited(duration_s=10), 4, 4.0, 1.0, False),  # it ends before that
        (at(1, 2, 3, 4).limited(duration_s=4), 3, 4.0, 0.75, True),
        (at(1, 2, 3, 4).limited(count=2), 2, 2.0, 1.0, False),
        (at(1, 2, 3, 4).limited(duration_s=4, count=3), 3, 3.0, 1.0, False),
        (at(5).limited(duration_s=4), 0, 4.0, 0.0, True),
        (at(5, 5), 2, 0.0, None, False),
        (at(5), 1, 0.0, None, False),
        (at(), 0, 0.0, None, False),
    ],
)
def test_a_schedule(plan: Plan, requests: int, window_s: float, per_s: float | None, cut: bool) -> None:
    schedule = plan.schedule()
    assert (schedule.requests, schedule.window_s, schedule.per_s, schedule.cut) == (
        requests,
        window_s,
        per_s,
        cut,
    )
    assert requests == len(list(plan))


def test_a_plan_without_end_has_no_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hitmap.load.plan.MOST_REQUESTS", 100)
    with pytest.raises(UsageError, match="more than 100 requests would be due: give a shorter --duration"):
        mixed().schedule()
    assert mixed().limited(count=100).schedule().requests == 100


@given(seed=SEEDS, count=st.integers(1, 60))
def test_the_times_of_a_mix_are_those_of_its_requests(seed: int, count: int) -> None:
    plan = mixed(seed).limited(count=count)
    assert plan.schedule().last_due_s == [planned.due_s for planned in plan][-1]


def test_shares_are_those_asked_for() -> None:
    counts = outline(mixed(3, chat=0.5, rag=0.3, agent=0.2).limited(count=4000)).by_template
    assert {kind: count / 4000 for kind, count in counts.items()} == pytest.approx(mix.DEFAULT, abs=0.04)
    assert set(outline(mixed(3, rag=1.0, chat=0.0).limited(count=50)).by_template) == {"rag"}


def sessions(plan: Plan) -> dict[str, list[Planned]]:
    found = defaultdict(list)
    for planned in plan:
        found[planned.session].append(planned)
    return found


def flat(messages: list[Body]) -> str:
    return "\n".join(json.dumps(message) for message in messages)


@pytest.mark.parametrize("clock", ["none", "last"])
def test_a_turn_begins_with_all_that_was_said_before(clock: str) -> None:
    answers = ("One.", "Two.", "Three.", "Four.")
    long = [turns for turns in sessions(mixed(clock=clock).limited(count=300)).values() if len(turns) > 2]
    assert {turns[0].labels["template"] for turns in long} == {"chat", "agent"}
    for turns in long:
        for number, (before, after) in enumerate(itertools.pairwise(turns)):
            assert after.due_s >= before.due_s + mix.THINK_S
            earlier = before.body(answers[:number])["messages"]
            later = after.body(answers[: number + 1])["messages"]
            assert flat(later).startswith(flat(earlier))
            said = later[len(earlier)]
            assert said["role"] == "assistant"
            assert said.get("tool_calls") or said["content"] == answers[number]


def test_a_clock_stands_where_it_is_asked_for() -> None:
    plain = [planned.body(())["messages"] for planned in mixed().limited(count=60)]
    clocks = set()
    for place, index in (("first", 0), ("last", -1)):
        for planned, without in zip(mixed(clock=place).limited(count=60), plain, strict=True):
            messages = planned.body(())["messages"]
            changed, kept = str(messages[index]["content"]), str(without[index]["content"])
            before, _, after = changed.partition("Current time: ")
            clocks.add(after.split("\n")[0])
            if place == "first":
                assert (before, after.partition("\n")[2]) == ("", kept)
            else:
                assert before == kept + "\n"
    assert len(clocks) == 60  # each request its own, the same in both places


def test_prompts_share_what_such_callers_share() -> None:
    """Few system prompts for all chats, one order of tools for all agents, documents of one pool in many orders."""
    bodies = defaultdict(list)
    for planned in mixed().limited(count=400):
        bodies[planned.labels["template"]].append(planned.body(()))
    assert len({body["messages"][0]["content"] for body in bodies["chat"]}) == 3
    assert len({json.dumps(body["tools"]) for body in bodies["agent"]}) == 1
    contexts = [body["messages"][1]["content"].rpartition("\n\n")[0] for body in bodies["rag"]]
    assert len(set(contexts)) > len(contexts) / 2
    documents = [context.split("\n\n") for context in contexts]
    assert {len(set(prompt)) for prompt in documents} == {mix.DOCUMENTS_A_PROMPT}
    assert len({document for prompt in documents for document in prompt}) == mix.DOCUMENTS


def test_calls_have_their_results() -> None:
    for planned in mixed(agent=1.0).limited(count=100):
        messages = planned.body(())["messages"]
        calls = [call["id"] for message in messages for call in message.get("tool_calls", ())]
        assert calls == [message["tool_call_id"] for message in messages if message["role"] == "tool"]


@pytest.mark.parametrize("spec", ["", "chat", "chat=x", "poem=1", "chat=0", "chat=-1,rag=2", "chat=nan"])
def test_shares_that_are_none_are_refused(spec: str) -> None:
    with pytest.raises(UsageError, match="--mix"):
        mix.parse(spec)


def test_shares_are_read() -> None:
    assert mix.parse("chat=.5, rag=1") == {"chat": 0.5, "rag": 1.0}
