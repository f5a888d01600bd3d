"""A store that all tests of the sanity rules share, and servers in it that are a test's own."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from clickhouse_connect.driver.client import Client

from analysis.sanity.examine import examine
from analysis.sanity.model import Finding
from analysis.sanity.table import rule
from tests.field_reports.bench import store
from tests.field_reports.form import START, Input

BEGIN, END = (datetime.fromtimestamp(START, UTC) + timedelta(hours=hours) for hours in (-1, 1))


class Bench:
    """Servers of one test in a store that all tests share; `s` is the one that a test is about."""

    def __init__(self, client: Client, test: str) -> None:
        self.client, self.test = client, test

    def put(self, server: str, *sent: Input) -> None:
        """Bring in what a server sent."""
        name = f"{self.test} {server}"
        store(self.client, [entry for one in sent for entry in one.entries(name)], name)

    def find(self, id: str, *servers: str) -> list[Finding]:
        """What one rule finds; servers under the names that the test gave them."""
        names = [f"{self.test} {server}" for server in servers or ("s",)]
        examination = examine(self.client, names, BEGIN, END, [rule(id)])
        assert examination.unanswered == ()
        found = examination.findings
        return [replace(finding, server=finding.server.removeprefix(f"{self.test} ")) for finding in found]

    def only(self, id: str) -> Finding:
        (finding,) = self.find(id)
        return finding
