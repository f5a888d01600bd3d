"""Verification finds out what a server does, and tells the truth of it or says why it cannot."""

from __future__ import annotations

from typing import Any

import pytest

from analysis.advisor.learning.learn import learn
from analysis.advisor.learning.remedy import rules_of
from analysis.advisor.rewriting.rules import Rule
from analysis.prefix_replay.rules import BlockRule
from cachemodel.errors import UserError
from cachemodel.prompts.model import Prompt
from hitmap.advise.arms import Apart, marked, unusable
from hitmap.advise.verify import Bounds, Verified, verify
from hitmap.advise.view import sentences
from tests.analysis.advisor.planted import at_top, clock, log, tools_shuffled
from tests.verified.fake import BLOCK, MS_A_WORD, Server, word_tokens

CACHE = BlockRule(block_size=BLOCK, planned=False)
URL = "http://fake"
TWENTY = Bounds(20, 1e6, 60)


def planted() -> tuple[list[Prompt], list[Rule]]:
    prompts = log([at_top(clock("Now: %H:%M:%S")), tools_shuffled], n=40, tools=True)
    return prompts, [rule for slot in learn(prompts) for rule in rules_of(slot)]


def verified(server: Server, prompts: list[Prompt] | None = None, bounds: Bounds = TWENTY) -> Verified:
    found, rules = planted()
    return verify(server, URL, prompts or found, rules, word_tokens(), CACHE, bounds)


@pytest.mark.parametrize(
    ("server", "apart"),
    [
        (Server(), Apart.SALT),
        (Server(tells="some"), Apart.SALT),
        (Server(busy=7), Apart.SALT),
        (Server(refuses=("max_tokens", "temperature", "stream_options")), Apart.SALT),
        (Server(salts="refused"), Apart.MARK),
        (Server(salts="ignored"), Apart.MARK),
    ],
    ids=["plain", "tells some", "busy", "refuses much", "refuses salts", "ignores salts"],
)
def test_what_is_measured_is_what_the_server_saved_and_what_was_predicted(server: Server, apart: str) -> None:
    told = verified(server)
    assert (told.apart, told.pairs, told.failed, told.inside) == (apart, 20, 0, True)
    gains = told.gains
    assert gains.tokens
    assert gains.tokens.value == pytest.approx(gains.tokens_predicted.value)
    assert gains.tokens.value > 50
    assert gains.ms_per_token == pytest.approx(MS_A_WORD)
    assert gains.ms.value == pytest.approx(MS_A_WORD * gains.tokens.value)
    assert gains.ms_predicted
    assert gains.ms_predicted.low is not None
    assert gains.ms.value == pytest.approx(gains.ms_predicted.value)


def test_arms_find_nothing_of_each_other_even_where_the_rules_change_nothing() -> None:
    """Each arm pays for its own first prompts: else the one that is sent second would look better by all of it."""
    for salts in ("keep", "ignored"):
        server = Server(salts=salts)
        prompts = log([], n=30, tools=True)
        told = verify(server, URL, prompts, [], word_tokens(), CACHE, Bounds(30, 1e6, 60))
        assert told.gains.tokens
        assert told.gains.tokens.value == 0
        assert told.inside


def test_each_request_is_sent_once_in_either_arm_for_one_token() -> None:
    server = Server()
    verified(server)
    sent = server.bodies[3:]  # the first are to find out what it is
    assert len(sent) == 2 * 20
    assert len({body["cache_salt"] for body in sent}) == 2
    assert {body["max_tokens"] for body in sent} == {1}
    assert all(body["stream"] for body in sent)
    first = [body["cache_salt"] for body in sent[::2]]
    assert len(set(first)) == 2  # now one arm goes first, now the other


def test_what_the_log_kept_apart_stays_apart() -> None:
    def tenants(made: Any, index: int) -> None:
        made.last.more = {"isolation": f"tenant-{index % 3}"}

    server = Server()
    prompts = log([at_top(clock("Now: %H:%M:%S")), tenants], n=30)
    told = verified(server, prompts)
    assert told.inside
    assert len({body["cache_salt"] for body in server.bodies[3:]}) == 6


def test_a_server_that_tells_of_no_cache_is_measured_by_its_times() -> None:
    told = verified(Server(tells="never", salts="ignored"))
    assert told.apart == Apart.MARK  # a salt that does nothing could not be told from one that does
    assert (told.gains.tokens, told.gains.ms_predicted, told.inside) == (None, None, None)
    assert told.gains.ms.value == pytest.approx(MS_A_WORD * told.gains.tokens_predicted.value)
    said = " ".join(sentences(told))
    assert "not told by the server" in said
    assert "--enable-prompt-tokens-details" in said


def test_where_nothing_keeps_arms_apart_nothing_is_told() -> None:
    with pytest.raises(UserError, match="nothing keeps the two arms apart"):
        verified(Server(deaf=True))


def test_requests_that_fail_are_left_out_in_both_arms() -> None:
    told = verified(Server(fails=frozenset({10, 21})))
    assert (told.pairs, told.failed) == (18, 2)
    assert any("2 more failed" in line for line in sentences(told))


def test_a_server_that_fails_is_left_alone() -> None:
    server = Server(fails=frozenset(range(20, 1000)))
    with pytest.raises(UserError, match="3 requests in a row failed at http://fake: HTTP 500: out of cheese"):
        verified(server)
    assert server.number < 30


def test_a_server_that_answers_nothing_is_told_so_in_its_words() -> None:
    with pytest.raises(
        UserError, match="does not answer a request of the log: HTTP 400: messages is not known"
    ):
        verified(Server(refuses=("messages",)))


def test_the_time_is_kept() -> None:
    told = verified(Server(), bounds=Bounds(20, rate=30.0, seconds=1.0))
    assert 10 <= told.pairs < 20
    assert any("the budget of 1 seconds" in note for note in told.notes)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (None, "no request"),
        ({"system": "x", "messages": [{"role": "user", "content": "x"}]}, "Anthropic"),
        ({"input": "x"}, "neither messages"),
        ({"prompt": [1, 2]}, "neither messages"),
        ({"messages": [{"role": "user", "content": "x"}]}, ""),
        ({"prompt": "x"}, ""),
    ],
)
def test_what_can_be_sent(body: dict[str, Any] | None, why: str) -> None:
    assert (why in unusable(body)) if why else unusable(body) == ""


def test_a_log_of_nothing_that_can_be_sent_says_why() -> None:
    prompts = [Prompt(request_id=str(at), parts=()) for at in range(12)]
    with pytest.raises(UserError, match="0 requests can be sent, 10 are needed; 12: the log has no request"):
        verified(Server(), prompts)


def test_a_mark_stands_before_all_that_a_prompt_says() -> None:
    tool = {"type": "function", "function": {"name": "f", "description": "d"}}
    body = {"messages": [{"role": "system", "content": [{"type": "text", "text": "a"}]}], "tools": [tool]}
    told = marked(body, "m")
    assert told["messages"][0]["content"][0]["text"] == "m"
    assert told["tools"][0]["function"]["description"] == "m d"
    assert marked({"prompt": "a"}, "m") == {"prompt": "m\na"}
    assert body["tools"] == [tool]
    assert tool["function"]["description"] == "d"  # type: ignore[index]
