"""One server under two names, of which nobody told: found by `hitmap sources`, and named where a report lacks half."""

from __future__ import annotations

import pytest

from analysis.report.compare import Asked, compare
from analysis.sanity.examine import examine
from analysis.sanity.model import Finding
from analysis.sanity.words import sentence
from cachemodel.errors import UserError
from tests.analysis.sanity_bench import BEGIN, END
from tests.conftest import Database
from tests.field_reports.bench import store
from tests.field_reports.form import START, Input, Responses, Scrapes, Server, Spans
from tests.field_reports.texts import llm_request, metrics, response

ATTACHED = [Server("vllm"), Scrapes(metrics(counters={"vllm:prompt_tokens": 400}))]
RESPONSES = Responses([response(f"r{n}", 100, 50) for n in range(4)])
SPANS = Spans([llm_request(f"r{n}", 100) for n in range(4)])


def put(db: Database, **sent: list[Input]) -> None:
    """What came in under each name."""
    for name, inputs in sent.items():
        store(db.client, [entry for one in inputs for entry in one.entries(name)], name)


def found(db: Database, *servers: str) -> dict[str, list[Finding]]:
    """What the two rules find, by server."""
    findings = examine(db.client, servers, BEGIN, END).findings
    asked = ("two-names", "not-scraped")
    return {s: [f for f in findings if f.server == s and f.rule.id in asked] for s in servers}


def test_two_names_are_told_under_both(db: Database) -> None:
    put(db, blue=[*ATTACHED, RESPONSES], unknown_service=[SPANS])
    findings = found(db, "blue", "unknown_service")
    told = (
        "blue was attached and has 4 responses without a span;"
        " unknown_service never was and has 4 spans without a response"
    )
    assert {name: [(f.rule.id, sentence(f)) for f in fs] for name, fs in findings.items()} == {
        "blue": [("two-names", told)],
        "unknown_service": [("two-names", told)],  # and no advice to attach to it
    }
    assert "--service" in findings["blue"][0].rule.do
    assert [f.rule.id for f in found(db, "unknown_service")["unknown_service"]] == ["two-names"]


def test_a_report_that_lacks_the_metric_names_the_other(db: Database) -> None:
    put(db, blue=[*ATTACHED, RESPONSES], unknown_service=[SPANS])
    with pytest.raises(UserError) as raised:
        compare(db.client, "server=blue", "server=unknown_service", Asked(metric="e2e"))
    assert str(raised.value) == (
        "4 requests are 'server=blue', 0 of them with e2e; at least 3 are needed (--metric takes ttft, e2e, tpot,"
        " client_ttft, client_e2e); blue has no spans, those of unknown_service may be its own: attach it with"
        " --service unknown_service"
    )


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param({"blue": [*ATTACHED, RESPONSES, SPANS], "other": [SPANS]}, id="its own spans are there"),
        pytest.param({"blue": [RESPONSES], "other": [SPANS]}, id="never attached"),
        pytest.param({"blue": [*ATTACHED, RESPONSES], "other": [*ATTACHED, SPANS]}, id="both attached"),
        pytest.param({"blue": ATTACHED, "other": [SPANS]}, id="no responses"),
        pytest.param(
            {"blue": [Server("sglang"), RESPONSES], "other": [SPANS]}, id="spans of another kind of server"
        ),
        pytest.param({"blue": [*ATTACHED, RESPONSES], "other": [SPANS, RESPONSES]}, id="both have responses"),
    ],
)
def test_what_may_not_be_one_server_is_not_called_so(db: Database, sent: dict[str, list[Input]]) -> None:
    put(db, **sent)
    assert "two-names" not in {f.rule.id for fs in found(db, "blue", "other").values() for f in fs}


def test_spans_of_another_time_are_not_its_own(db: Database) -> None:
    later = Responses([response(f"r{n}", 100, 50, time=START + 600 + n) for n in range(4)])
    put(db, blue=[*ATTACHED, later], other=[SPANS])
    assert found(db, "blue")["blue"] == []
