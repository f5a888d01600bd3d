"""The module that `--apply` writes does what the rules do, wherever it runs; so does its data."""

from __future__ import annotations

import ast
import copy
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from analysis.advisor.advice import Advice, advise
from analysis.advisor.export import Export, chosen, module, read_rules, rules_yaml
from analysis.advisor.learning.cause import Cause, Safety
from analysis.advisor.rewriting import export_source
from analysis.advisor.rewriting.export_source import Standalone
from analysis.advisor.rewriting.rules import Action, Body, Rule, apply
from analysis.advisor.suggest import Suggestion
from analysis.prefix_replay.rules import BlockRule
from tests.analysis.advisor import planted
from tests.analysis.advisor.planted import at_top, clock, log
from tests.analysis.advisor.test_advice import HOSTILE, tokens
from tests.analysis.advisor.test_rules import BODIES, RULES, STRANGE
from tests.analysis.advisor.test_rules_forms import BODIES as FORMS
from tests.analysis.advisor.test_rules_forms import RULES as RULES_OF_FORMS

Rewrite = Callable[[dict[str, Any]], dict[str, Any]]
OF_3_9 = {
    *("__future__", "collections.abc", "contextlib", "copy", "dataclasses", "enum", "json", "re", "typing"),
    "unicodedata",
}
NEWER = {"strict", "slots", "kw_only"}  # keywords that came after Python 3.9


@cache
def advised() -> Advice:
    """Of a log with a clock, tools in any order and an id, which is dropped."""
    changes = [at_top(clock("Now: %H:%M:%S")), at_top(planted.request_id), planted.tools_shuffled]
    prompts, cache_rule = log(changes, tools=True), BlockRule(block_size=4)
    return advise(prompts, tokens, cache_rule, cache_name="blocks of 4", tokens_by="words", min_share=0)


@cache
def suggestion() -> Suggestion:
    return next(one for one in advised().suggestions if one.slot.cause is Cause.CLOCK)


def of(*rules: Rule) -> Export:
    return Export((replace(suggestion(), rules=rules),), (), Safety.MOVE)


def executed(source: str) -> Rewrite:
    return namespace(source)["rewrite"]  # type: ignore[no-any-return]


def namespace(source: str) -> dict[str, Any]:
    names: dict[str, Any] = {
        "__name__": __name__
    }  # a module that is there: dataclasses look theirs up by name
    exec(compile(source, "rewriter.py", "exec"), names)
    return names


def in_yaml(export: Export) -> dict[str, Any]:
    told = yaml.safe_load(rules_yaml(export, cache="c", tokens_by="t", by="hitmap"))
    assert isinstance(told, dict)
    return told


@given(BODIES | STRANGE | FORMS, st.lists(RULES | RULES_OF_FORMS, max_size=4))
def test_the_module_does_what_the_rules_do(body: dict[str, Any], rules: Sequence[Rule]) -> None:
    before = copy.deepcopy(body)
    rewrite = executed(module(of(*rules)))
    after = rewrite(body)
    assert after == apply(rules, body)
    assert json.dumps(after) == json.dumps(apply(rules, body))  # and in the same order
    assert body == before


@given(st.lists(RULES, max_size=5))
def test_the_data_are_the_same_rules(rules: Sequence[Rule]) -> None:
    assert read_rules(in_yaml(of(*rules))) == tuple(rules)


TEXTS = st.text(st.characters(), max_size=20)


@given(TEXTS, TEXTS, st.lists(TEXTS, max_size=2))
def test_whatever_a_rule_holds_is_kept_and_steers_nothing(pattern: str, role: str, items: list[str]) -> None:
    rule = Rule(Action.SORT_ITEMS, role, pattern=pattern, items=tuple(items))
    source = module(of(rule))
    assert source.replace("\n", "").isprintable()
    (own,) = namespace(source)["RULES"]
    assert (own.role, own.pattern, own.items) == (role, pattern, tuple(items))
    assert read_rules(in_yaml(of(rule))) == (rule,)


def test_hostile_text_in_a_log_stays_text() -> None:
    def hostile(made: planted.Log, _: int) -> None:
        short = HOSTILE.replace(" [link](javascript:1) **bold**", "")  # what says more goes nowhere
        made.system = f'{short} """ {made.last.time:%H:%M:%S}\n{made.system}'

    prompts = log([hostile])
    advice = advise(prompts, tokens, BlockRule(block_size=4), cache_name="c", tokens_by="w")
    export = chosen(advice)
    assert export.rules
    source, data = module(export), rules_yaml(export, cache="c", tokens_by="w", by="hitmap")
    assert (source + data).replace("\n", "").isprintable()
    body = prompts[3].body
    assert body
    assert executed(source)(dict(body)) == apply(export.rules, body)


def test_a_copy_shares_nothing_with_the_request() -> None:
    body = {"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}]}
    after = executed(module(of(Rule(Action.SORT_TOOLS, "tools"))))(body)
    after["messages"][0]["content"].append("more")
    assert body == {"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}]}


def test_a_request_that_is_nested_too_deep_passes_as_it_is() -> None:
    deep: Any = "x"
    for _ in range(5000):
        deep = [deep]
    body = {"messages": [{"role": "system", "content": "Now: 12:00:00\nBe kind."}], "tools": deep}
    rules = [Rule(Action.SORT_KEYS, "tools"), Rule(Action.SORT_TOOLS, "tools")]
    assert executed(module(of(*rules)))(body)["tools"] is deep


def test_it_runs_without_any_package(tmp_path: Path) -> None:
    export = chosen(advised())
    (tmp_path / "rewriter.py").write_text(module(export))
    bodies = [prompt.body for prompt in log([at_top(clock("Now: %H:%M:%S"))], n=5, tools=True) if prompt.body]
    code = (
        "import sys, json; sys.path.insert(0, sys.argv[1]); import rewriter;"
        "print(json.dumps([rewriter.rewrite(body) for body in json.load(sys.stdin)]))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-W", "error", "-c", code, str(tmp_path)],
        input=json.dumps(bodies),
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == [apply(export.rules, body) for body in bodies]


def test_it_asks_for_nothing_newer_than_python_3_9() -> None:
    tree = ast.parse(module(chosen(advised(), Safety.DROP)), feature_version=(3, 9))
    imported = {
        name
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imported <= OF_3_9
    keywords = {node.arg for node in ast.walk(tree) if isinstance(node, ast.keyword)}
    assert not keywords & NEWER
    assert "StrEnum" not in {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    first = tree.body[1]
    assert isinstance(first, ast.ImportFrom)
    assert first.module == "__future__"  # so that no annotation is looked at


def test_no_memory_of_requests_is_kept_in_it() -> None:
    assert "cache(" not in module(chosen(advised(), Safety.DROP))


def test_nothing_is_in_it_that_the_rules_do_not_need() -> None:
    tree = ast.parse(module(chosen(advised())))
    defined = {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    named = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert defined - named == {"rewrite"}


@pytest.mark.parametrize(
    ("most", "taken", "left"),
    [
        (Safety.CANONICALISE, {Cause.TOOL_ORDER}, {Cause.CLOCK, Cause.NONCE}),
        (Safety.MOVE, {Cause.TOOL_ORDER, Cause.CLOCK}, {Cause.NONCE}),
        (Safety.DROP, {Cause.TOOL_ORDER, Cause.CLOCK, Cause.NONCE}, set[Cause]()),
    ],
)
def test_what_is_riskier_than_was_asked_for_is_left_out(
    most: Safety, taken: set[Cause], left: set[Cause]
) -> None:
    export = chosen(advised(), most)
    assert {one.slot.cause for one in export.taken} == taken
    assert {one.slot.cause for one in export.left} == left
    told = in_yaml(export)
    assert {one["cause"] for one in told["rules"]} == {cause.value for cause in taken}
    assert {one["cause"] for one in told["left_out"]} == {cause.value for cause in left}
    assert all(one["evidence"] and one["path"] and one["safety"] for one in told["rules"])


def test_by_default_the_model_reads_all_that_it_read() -> None:
    export = chosen(advised())
    assert Action.DROP not in {rule.action for rule in export.rules}
    rewrite = executed(module(export))
    for prompt in log([at_top(clock("Now: %H:%M:%S")), at_top(planted.request_id)], n=10):
        assert prompt.body
        before: Body = prompt.body
        said = " ".join(str(message["content"]) for message in rewrite(dict(before))["messages"])
        for message in before["messages"]:
            assert all(line in said for line in message["content"].split("\n"))


def test_rules_of_another_version_are_refused() -> None:
    told = in_yaml(of(Rule(Action.SORT_TOOLS, "tools")))
    with pytest.raises(ValueError, match="version 2"):
        read_rules({**told, "version": 2})


def test_two_definitions_of_one_name_are_not_mixed(monkeypatch: pytest.MonkeyPatch) -> None:
    read = export_source._read

    def twice(of: Any) -> Any:
        source = read(of)
        if of.__name__.endswith("words"):
            source.definitions["items"] = source.definitions["squeezed"]
            source.wanted.add("items")
        return source

    monkeypatch.setattr(export_source, "_read", twice)
    with pytest.raises(ValueError, match="items is defined in two modules"):
        Standalone(apply)
