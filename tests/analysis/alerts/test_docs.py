"""What docs/alerts.md says of the rules is so, and its example of a rule works."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.alerts.evaluate import evaluate
from analysis.alerts.table import rules, with_file
from tests.analysis.alerts.planted import LATER, second
from tests.databases import Database

DOCS = Path(__file__).parents[3] / "docs" / "alerts.md"
TEXT = DOCS.read_text() if DOCS.exists() else ""
pytestmark = pytest.mark.skipif(not TEXT, reason="docs/ is not beside the tests: run them in a checkout")


def test_its_table_has_every_rule_with_its_numbers() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| (.*?) \| (\d+) s \| (-|\d+ s) \| ([\d,]+) .*\|$", TEXT, re.M)
    assert [row[0] for row in rows] == [rule.id for rule in rules()]
    for rule, (_, fires, window, hold, minimum) in zip(rules(), rows, strict=True):
        sign = "less" if rule.breach == "below" else "more"
        limit = f"{rule.threshold:,.12g}"
        assert re.search(rf"{sign} than {re.escape(limit)} ", fires), (rule.id, fires)
        assert (int(window), hold) == (rule.window_s, f"{rule.hold_s} s" if rule.hold_s else "-")
        assert float(minimum.replace(",", "")) == rule.minimum


def test_its_example_is_a_rule_that_fires(db: Database, tmp_path: Path) -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", TEXT, re.S)
    (tmp_path / "rules.yaml").write_text(example)
    table = {rule.id: rule for rule in with_file(rules(), tmp_path / "rules.yaml")}
    assert table["hit-ratio-low"].threshold == 0.7
    assert not table["queue-grows"].enabled
    columns = ["time", "server", "model", "request_id", "span_id", "ttft_us"]
    rows = [[second(n), "s", "m", str(n), n + 1, 2_500_000 if 20 <= n < 50 else 90_000] for n in range(70)]
    db.client.insert("requests", rows, column_names=columns)
    own = table["slow-first-token"]
    report = evaluate(db.client, second(0), second(70), [own], now=LATER)
    (alert,) = report.alerts
    assert (alert.labels, alert.start, alert.end, alert.worst, alert.state) == (
        {"server": "s", "model": "m"},
        second(20),
        second(50),
        2500.0,
        "resolved",
    )
    assert evaluate(db.client, second(0), second(70), [replace(own, threshold=2500)], now=LATER).alerts == ()
