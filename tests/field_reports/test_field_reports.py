"""Every field report goes through the real readers into one real store; then each is asked what must come of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from clickhouse_connect.driver.client import Client

from analysis.sanity.examine import examine
from analysis.sanity.model import Finding
from analysis.sanity.table import rules
from analysis.sanity.words import because, sentence
from tests.databases import Databases
from tests.field_reports.bench import store
from tests.field_reports.form import START, Expected, FieldReport, Figure, Silent, Warns
from tests.field_reports.table import REPORTS

# The rows of the list of threads whose kind is COL: what a collector or normaliser must get right or warn of.
COLLECTOR_ROWS = {
    *(
        1,
        3,
        7,
        9,
        10,
        11,
        14,
        18,
        24,
        26,
        29,
        30,
        32,
        34,
        36,
        37,
        38,
        39,
        43,
        44,
        46,
        49,
        50,
        52,
        53,
        54,
        56,
        57,
        58,
    ),
    *(59, 60, 62, 67, 94, 98, 99, 101, 102, 112),
}
BEGIN, END = (datetime.fromtimestamp(START, UTC) + timedelta(hours=hours) for hours in (-1, 1))


@pytest.fixture(scope="module")
def client(databases: Databases) -> Iterator[Client]:
    """A store with the inputs of all reports."""
    entries = (
        entry
        for report in REPORTS
        for sent in report.inputs
        for entry in sent.entries(report.name_of(sent.server))
    )
    with databases.migrated() as database:
        store(database.client, sorted(entries, key=lambda entry: entry.kind), "reports")
        yield database.client


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report.id)
def test_what_must_come_of_it(report: FieldReport, client: Client) -> None:
    servers = list(dict.fromkeys(report.name_of(sent.server) for sent in report.inputs))
    asked = {expected.rule for expected in report.expected if not isinstance(expected, Figure)}
    examination = examine(client, servers, BEGIN, END, [rule for rule in rules() if rule.id in asked])
    assert examination.unanswered == ()
    assert report.expected
    assert asked <= {rule.id for rule in rules()}
    for expected in report.expected:
        _check(expected, report.name_of(expected.server), examination.findings, client)


def test_every_row_is_there() -> None:
    assert COLLECTOR_ROWS - {report.row for report in REPORTS} == set()


def test_the_rows_that_a_rule_answers_are_tested_with_it() -> None:
    tested = {
        (expected.rule, report.row)
        for report in REPORTS
        for expected in report.expected
        if isinstance(expected, Warns)
    }
    answered = {(rule.id, row) for rule in rules() for row in rule.answers}
    assert tested - answered == set()
    assert {row for _, row in answered} <= {report.row for report in REPORTS}


def test_names_are_unique() -> None:
    names = [report.id for report in REPORTS]
    assert [name for name, same in itertools.groupby(sorted(names)) if len(list(same)) > 1] == []


def _check(expected: Expected, server: str, found: Sequence[Finding], client: Client) -> None:
    if isinstance(expected, Figure):
        (row,) = client.query(expected.sql, parameters={"server": server}).result_rows
        assert _same(expected.value, row[0]), row
        return
    of_rule = [finding for finding in found if (finding.rule.id, finding.server) == (expected.rule, server)]
    if isinstance(expected, Silent):
        assert of_rule == []
        return
    assert len(of_rule) == 1, [finding.rule.id for finding in found if finding.server == server]
    (finding,) = of_rule
    assert _same(expected.said, finding.said), finding
    assert _same(expected.corrected, finding.corrected), finding
    for name, value in expected.evidence.items():
        assert _same(value, finding.evidence[name]), (name, finding)
    words = " ".join([sentence(finding), finding.rule.do, *map(because, finding.causes)])
    assert expected.about in words


def _same(expected: Any, value: Any) -> bool:
    if expected is ...:
        return True
    if isinstance(expected, float) and value is not None:
        return bool(value == pytest.approx(expected, rel=1e-6))
    return bool(expected == value)
