"""The sanity rules: silent on healthy servers, right on each contradiction, and a table consistent in itself."""

from __future__ import annotations

import json
import string
from collections.abc import Iterator
from datetime import timedelta
from importlib import import_module
from pathlib import Path

import pytest
from clickhouse_connect.driver.client import Client

import collector.dialects
from analysis.sanity.examine import examine, parameters_of
from analysis.sanity.json import to_json
from analysis.sanity.model import Cause, Finding, Rule
from analysis.sanity.sources import Reuse, sources
from analysis.sanity.table import _rule, rule, rules
from analysis.sanity.versions import is_within, version_key
from analysis.sanity.views import METRICS_OF, metrics_of, with_views
from analysis.sanity.words import because, figures, quantity, sentence
from cachemodel.errors import UserError
from tests.analysis.sanity_bench import BEGIN, END
from tests.conftest import DATA
from tests.databases import Database, Databases
from tests.field_reports.bench import recorded, store
from tests.field_reports.form import Server

# -- healthy servers


@pytest.fixture(scope="module")
def healthy(databases: Databases, run1: Path, run3: Path) -> Iterator[Client]:
    """Recordings of servers that tell the truth: two of a vLLM, as two servers of one model, and one of a llama.cpp."""
    facts = {"block_size": "16", "num_gpu_blocks": "260", "enable_prefix_caching": "True"}
    signals = [
        ("KV-cache events", True, "published", ""),
        ("cached tokens by tier", False, "no such counter", "--newer"),
    ]
    with databases.migrated() as database:
        client = database.client
        for name, run in (("run1", run1), ("run3", run3)):
            told = Server("vllm", "0.32.0", facts, signals).entries(name)
            store(client, sorted([*told, *recorded(run, name)], key=lambda entry: entry.kind), name)
        told = Server("llama_cpp", "b11434").entries("llama")
        llama = recorded(DATA / "llamacpp-b11434" / "run_tiny", "llama", "llama_cpp")
        store(client, sorted([*told, *llama], key=lambda entry: entry.kind), "llama")
        yield client


def test_healthy_servers_get_no_warning_but_true_ones(healthy: Client) -> None:
    examination = examine(healthy, ["run1", "run3"], BEGIN, END)
    assert examination.unanswered == ()
    (finding,) = examination.findings
    assert (finding.server, finding.rule.id, finding.rule.severity) == (
        "run1",
        "cached-tokens-untold-by-some",
        "note",
    )
    assert finding.evidence == {"requests": 175, "silent": 2}
    assert (finding.said, finding.corrected) == (
        pytest.approx(56_480 / 95_678),
        pytest.approx(56_480 / 94_499),
    )


def test_a_healthy_llama_cpp_gets_none_either(healthy: Client) -> None:
    examination = examine(healthy, ["llama"], BEGIN, END)
    assert examination.unanswered == ()
    (finding,) = examination.findings
    assert (finding.rule.id, finding.rule.severity) == ("cached-tokens-untold-by-some", "note")
    assert finding.evidence == {"requests": 168, "silent": 2}


def test_the_sources_of_healthy_servers(healthy: Client) -> None:
    _, run1, run3 = sources(healthy, [], BEGIN, END)
    assert (run1.server, run1.kind, run1.version) == ("run1", "vllm", "0.32.0")
    assert {volume.kind: volume.rows for volume in run1.volumes} == {
        "request spans": 175,
        "responses": 175,
        "metric samples": 5481,
        "OTLP metrics": 0,
        "KV events": 2154,
        "log events": 0,
    }
    assert run1.reuse == (
        Reuse("173 of 175 requests", 56_480, 94_499, "tokens"),
        Reuse("counters of cached and prompt tokens", 57_248, 95_678, "tokens"),
        Reuse("counters of the device cache", 57_248, 95_678, "tokens"),
    )
    assert Reuse("counters of the KV connector", 448, 1070, "tokens") in run3.reuse
    assert [signal.seen for signal in run1.signals] == [True, False]
    assert run1.last_seen is not None
    assert f"{run1.last_seen:%H:%M:%S}" == "12:05:49"


def test_outside_the_time_range_there_is_nothing(healthy: Client) -> None:
    (run1,) = sources(healthy, ["run1"], BEGIN - timedelta(days=9), BEGIN)
    assert (run1.last_seen, run1.reuse, run1.findings) == (None, (), ())
    assert {volume.rows for volume in run1.volumes} == {0}


def test_an_unknown_server_is_named_with_those_that_are_known(healthy: Client, db: Database) -> None:
    with pytest.raises(UserError, match="no server 'run2'; it knows llama, run1, run3"):
        sources(healthy, ["run2"], BEGIN, END)
    with pytest.raises(UserError, match="it knows none: hitmap attach URL"):
        sources(db.client, ["run2"], BEGIN, END)
    assert sources(db.client, [], BEGIN, END) == []


def test_json_says_null_for_what_is_unknown(healthy: Client) -> None:
    run1 = json.loads(to_json(sources(healthy, ["run1"], BEGIN, END), BEGIN, END))["servers"][0]
    assert run1["volumes"][-1] == {"kind": "log events", "rows": 0, "last": None}
    assert run1["findings"][0]["rule"] == "cached-tokens-untold-by-some"
    assert run1["findings"][0]["evidence"] == {"requests": 175, "silent": 2}
    assert run1["reuse"][0]["ratio"] == pytest.approx(56_480 / 94_499)


# -- the table


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.id)
def test_a_rule_says_only_what_its_query_gives(rule: Rule, healthy: Client) -> None:
    parameters = {**parameters_of(["nobody"], BEGIN, END), "metrics": metrics_of(rule.sql, rule.metrics)}
    described = healthy.query(f"DESCRIBE ({with_views(rule.sql)})", parameters=parameters).result_rows
    columns = {row[0] for row in described}
    assert "server" in columns
    assert bool(rule.said) == ("said" in columns)
    assert {field for _, field, _, _ in string.Formatter().parse(rule.finding) if field} <= columns
    assert rule.means.endswith(".")
    assert rule.do.endswith(".")


def test_rules_ask_for_metrics_that_some_dialect_has() -> None:
    folders = (path.parent.name for path in Path(collector.dialects.__path__[0]).glob("*/metrics.py"))
    modules = (import_module(f"collector.dialects.{folder}.metrics") for folder in sorted(folders))
    known = {"*", "up"}
    for module in modules:
        for metric in (*module.METRICS, *getattr(module, "STATS", ())):
            known |= {metric.name, *(f"{metric.name}.{part}" for part in ("sum", "count"))}
    asked = {metric for rule in rules() for metric in rule.metrics} | {
        m for some in METRICS_OF.values() for m in some
    }
    assert asked - known == set()


def test_a_rule_that_the_store_cannot_answer_does_not_stop_the_others(healthy: Client) -> None:
    broken = Rule("broken", "It is.", "wrong", "SELECT server, throwIf(1) FROM usage", "", "Do.")
    examination = examine(healthy, ["run1"], BEGIN, END, [broken, rule("cached-tokens-untold-by-some")])
    assert [finding.rule.id for finding in examination.findings] == ["cached-tokens-untold-by-some"]
    (unanswered,) = examination.unanswered
    assert unanswered.rule is broken
    assert "FUNCTION_THROW_IF_VALUE_IS_NON_ZERO" in unanswered.reason


def test_a_rule_that_is_amiss_is_named() -> None:
    with pytest.raises(ValueError, match="r1: no field of a rule: colour"):
        _rule({"id": "r1", "colour": "red"})
    with pytest.raises(ValueError, match="r1: severity is one of"):
        _rule({"id": "r1", "means": "", "severity": "bad", "sql": "", "finding": "", "do": ""})


# -- words


def test_a_finding_in_words() -> None:
    made = Rule(
        "r",
        "It is.",
        "wrong",
        "",
        "{blocks:n block}, {rate:.1%}, {gone:,}",
        "Do.",
        unit="ratio",
        said="rate",
        corrected="how",
    )
    finding = Finding(made, "s", 0.5, None, {"blocks": 1, "rate": 0.25, "gone": None})
    assert sentence(finding) == "1 block, 25.0%, unknown"
    assert figures(finding) == "rate: said 50.0%, right unknown"
    assert figures(Finding(made, "s", 0.5, 0.50001, {})) == "rate: said 50.0%, which is right (how)"
    assert figures(Finding(made, "s", 0.5, 0.25, {})) == "rate: said 50.0%, right 25.0% (how)"
    assert quantity(12_345.0, "tokens") == "12,345 tokens"
    assert (
        because(Cause("vllm", "it was so", "PR 1", before="0.2", since="0.1"))
        == "it was so (from 0.1 to before 0.2, PR 1)"
    )


@pytest.mark.parametrize(
    ("version", "since", "before", "within"),
    [
        ("0.10.2", "", "0.11", True),
        ("0.11.0", "", "0.11", False),
        ("0.11.0rc1+cpu", "0.11", "", True),
        ("b11434", "b11000", "", True),
        ("", "", "0.11", False),
        ("nightly", "0.1", "", False),
    ],
)
def test_version_ranges(version: str, since: str, before: str, within: bool) -> None:
    assert is_within(version, since, before) == within


def test_version_keys() -> None:
    assert [version_key(text) for text in ("0.32.0", "v1.4.0rc2", "b11434", "")] == [
        (0, 32, 0),
        (1, 4, 0),
        (11434,),
        (),
    ]
