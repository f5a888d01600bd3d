"""Ten faults planted in logs, verified on a live engine: what a rewrite gains is what was predicted, nine times in ten.

`pytest -s tests/verified/test_verified.py` prints a line a case. Tokens are held against the prediction; milliseconds
are printed, since a busy machine takes its own.
"""

from __future__ import annotations

import json
import runpy
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner

from analysis.advisor.advice import Advice, advise
from analysis.advisor.export import chosen
from analysis.advisor.learning.cause import Safety
from analysis.advisor.stored.verdicts import verified as verified_rewrites
from analysis.interval import Interval
from cachemodel.prompts.model import Prompt
from collector.canary import HttpTransport
from engine.model import demo
from hitmap.advise.arms import Apart, Wording
from hitmap.advise.verify import Bounds, Verified, verify
from hitmap.cli import cli
from hitmap.prompt_tokens import BodyTokens, body_tokens
from tests.analysis.advisor import planted
from tests.analysis.advisor.planted import Change, after_first_line, at_top, clock, log, sometimes
from tests.conftest import Database
from tests.verified.served import CACHE, its_tokens, served

pytestmark = pytest.mark.slow

REQUESTS = 30
CASES: dict[str, tuple[Sequence[Change], bool]] = {
    "clock at the top": ([at_top(clock("Now: %H:%M:%S"))], False),
    "clock in words": ([after_first_line(clock("Today is %A, %d %B %Y, %H:%M."))], False),
    "id": ([at_top(planted.request_id)], False),
    "counter": ([at_top(planted.counter)], False),
    "session's own": ([at_top(planted.session_note)], False),
    "tools shuffled": ([planted.tools_shuffled], True),
    "keys shuffled": ([planted.keys_shuffled], True),
    "a clock, rarely": ([sometimes(at_top(clock("Now: %H:%M:%S")), 0.2)], True),
    "clock and user's name": (
        [at_top(clock("Now: %H:%M:%S")), after_first_line(planted.user_name)],
        True,
    ),
    "facts in any order": ([planted.facts_by_likeness], True),
}


class Verifieds(NamedTuple):
    """Of a case: by the engine's own tokens, and by approximate ones."""

    exact: Verified
    approximate: Verified


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("served")) as at:
        yield at


@pytest.fixture(scope="module")
def told(url: str) -> dict[str, Verifieds]:
    own, approximate = its_tokens(), body_tokens("approximate")
    found = {}
    for case, (changes, tools) in CASES.items():
        prompts = log(changes, 2 * REQUESTS, tools=tools)
        by = [_verified(url, prompts, tokens) for tokens in (own, approximate)]
        found[case] = Verifieds(*by)
        print(f"\n{case:22} {_line(by[0])}", end="")
    return found


def _verified(url: str, prompts: list[Prompt], tokens: BodyTokens) -> Verified:
    advice: Advice = advise(prompts, tokens, CACHE, cache_name="the engine's", tokens_by=tokens.name)
    rules = chosen(advice, Safety.DROP).rules
    transport = HttpTransport(url)
    try:
        return verify(transport, url, prompts, rules, tokens, CACHE, Bounds(REQUESTS, rate=1000, seconds=60))
    finally:
        transport.close()


def _line(one: Verified) -> str:
    def shown(of: Interval | None) -> str:
        return "-" if of is None else f"{of.value:7.1f} ({of.low or 0:7.1f} to {of.high or 0:7.1f})"

    gains = one.gains
    tokens = f"tokens {shown(gains.tokens)}, predicted {shown(gains.tokens_predicted)}"
    return f"{tokens}; ms {shown(gains.ms)}, predicted {shown(gains.ms_predicted)}"


def test_gains_fall_inside_what_was_predicted_in_nine_cases_of_ten(told: dict[str, Verifieds]) -> None:
    assert len(told) == 10
    for tokenizer in ("exact", "approximate"):
        inside = [case for case, of in told.items() if getattr(of, tokenizer).inside]
        assert len(inside) >= 9, (tokenizer, set(told) - set(inside))


def test_with_the_tokens_of_the_server_the_prediction_is_the_gain(told: dict[str, Verifieds]) -> None:
    for case, of in told.items():
        gains = of.exact.gains
        assert gains.tokens, case
        assert gains.tokens.value == pytest.approx(gains.tokens_predicted.value, abs=1e-9), case


def test_each_rewrite_saves_something_and_all_requests_were_answered(told: dict[str, Verifieds]) -> None:
    for case, of in told.items():
        assert (of.exact.pairs, of.exact.failed, of.exact.apart) == (REQUESTS, 0, "cache_salt"), case
        assert of.exact.gains.tokens_predicted.value > 0, case


def test_arms_are_as_well_kept_apart_by_marks(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a server knows no salts: the prediction is still the gain, so no arm found anything of the other."""
    monkeypatch.setattr("hitmap.advise.verify.Wording", partial(Wording, apart=Apart.MARK))
    for case in ("clock at the top", "tools shuffled"):
        changes, tools = CASES[case]
        found = _verified(url, log(changes, 2 * REQUESTS, tools=tools), its_tokens())
        assert found.apart == Apart.MARK
        assert found.gains.tokens
        assert found.gains.tokens.value == pytest.approx(found.gains.tokens_predicted.value, abs=1e-9), case
        assert found.gains.tokens.value > 100


def test_each_suggestion_is_verified_beside_the_others_and_kept(
    url: str, tmp_path: Path, db: Database
) -> None:
    """Two faults in every prompt: mended alone, the one behind would save nothing."""
    changes, tools = CASES["clock and user's name"]
    written = _written(tmp_path, log(changes, 60, tools=tools))
    options = ["--tokenizer", str(demo.FOLDER), "--requests", "30", "--rate", "1000", "--json"]
    kept = ["--each", "--keep", "--store", db.dsn]
    shown = CliRunner().invoke(cli, ["advise", str(written), "--verify", url, *kept, *options])
    assert shown.exit_code == 0, shown.output
    told = json.loads(shown.stdout)
    each = {one["cause"]: one for one in told["verified_each"]}
    assert set(each) == {"clock", "variant"}, "the log does not say whose request it is"
    stored = verified_rewrites(db.client)
    assert set(stored) == {"", *(one["key"] for one in each.values())}
    for one in each.values():
        gains = one["verified"]["gains"]
        assert gains["tokens"]["value"] == pytest.approx(gains["tokens_predicted"]["value"], abs=1e-9)
        assert gains["tokens"]["value"] > 5
        assert stored[one["key"]].ms.value == pytest.approx(gains["ms"]["value"])
    assert stored[""].ms.value == pytest.approx(told["verified"]["gains"]["ms"]["value"])


def _written(folder: Path, prompts: list[Prompt]) -> Path:
    path = folder / "requests.jsonl"
    lines = [{"id": one.request_id, "time": one.time, "body": one.body} for one in prompts]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_the_command_verifies_and_applies(url: str, tmp_path: Path) -> None:
    prompts = log([at_top(clock("Now: %H:%M:%S"))], 40)
    written = _written(tmp_path, prompts)
    options = ["--tokenizer", str(demo.FOLDER), "--requests", "20", "--rate", "1000", "--json"]
    shown = CliRunner().invoke(
        cli, ["advise", str(written), "--apply", str(tmp_path / "rules"), "--verify", url, *options]
    )
    assert shown.exit_code == 0, shown.output
    verified = json.loads(shown.stdout)["verified"]
    assert (verified["pairs"], verified["failed"], verified["inside"]) == (20, 0, True)
    assert verified["gains"]["tokens"]["value"] > 100
    assert verified["gains"]["ms_per_token"] is not None
    rewrite = runpy.run_path(str(tmp_path / "rules" / "rewriter.py"))["rewrite"]
    heads = {json.dumps(rewrite(dict(one.body))["messages"][0]) for one in prompts if one.body is not None}
    assert len(heads) == 1
