"""Rules in a user's file and in settings: what they change, and what is said of a mistake."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from analysis.alerts.evaluate import evaluate
from analysis.alerts.table import rules, with_file, with_settings
from cachemodel.errors import UsageError
from tests.analysis.alerts import planted
from tests.analysis.alerts.planted import LATER, second
from tests.databases import Database

OWN = """\
- id: slow
  means: Requests take long.
  value: longest request
  unit: us
  severity: info
  breach: above
  threshold: 1000
  window: 1
  for: 0
  by: [server]
  of: requests
  minimum: 1
  needs: requests
  sql: SELECT start_of(time) AS at, server, max(e2e_us) AS value, count() AS samples FROM requests GROUP BY at, server
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "rules.yaml"
    file.write_text(text)
    return file


def complaint(folder: Path, text: str) -> str:
    with pytest.raises(UsageError) as refused:
        with_file(rules(), written(folder, text))
    return str(refused.value).replace(f"{folder}/", "")


def test_the_rules_that_hitmap_brings_have_the_thresholds_of_its_design() -> None:
    table = {rule.id: rule for rule in rules()}
    ratio, tensor = table["hit-ratio-low"], table["tensor-miss-ratio-high"]
    assert (ratio.threshold, ratio.breach, ratio.window_s) == (0.85, "below", 1)
    assert (tensor.threshold, tensor.breach) == (0.32, "above")
    assert len(table) == len(rules()) == 10
    assert all(rule.enabled and rule.needs and rule.means.endswith(".") for rule in rules())
    assert all(rule.prometheus.expr or rule.prometheus.reason for rule in rules())


def test_the_readme_of_the_rules_names_every_field() -> None:
    from analysis.alerts import table
    from analysis.alerts.fields import FIELDS

    readme = (Path(table.__file__).parent / "rules" / "README.md").read_text()
    told = {
        name for row in re.findall(r"^\| (`.*?) \|", readme, re.M) for name in re.findall(r"`(\w+)`", row)
    }
    assert told == set(FIELDS)


def test_an_entry_with_a_known_id_changes_the_fields_that_it_names(tmp_path: Path) -> None:
    table = with_file(rules(), written(tmp_path, "- id: hit-ratio-low\n  threshold: 0.5\n  for: 60\n"))
    before = {rule.id: rule for rule in rules()}
    for rule in table:
        changed = (
            (0.5, 60) if rule.id == "hit-ratio-low" else (before[rule.id].threshold, before[rule.id].hold_s)
        )
        assert (rule.threshold, rule.hold_s, rule.sql) == (*changed, before[rule.id].sql)
    assert [rule.id for rule in table] == list(before)


def test_a_rule_of_ones_own_is_asked(db: Database, tmp_path: Path) -> None:
    planted.requests(db.client, "s", [0.9] * 3)
    table = with_file(rules(), written(tmp_path, OWN))
    report = evaluate(db.client, second(0), second(3), table[-1:], now=LATER)
    (alert,) = report.alerts
    assert (alert.rule.id, alert.worst, alert.start, alert.windows) == ("slow", 1002, second(1), 2)


def test_an_override_decides_what_fires(db: Database) -> None:
    planted.requests(db.client, "s", [0.8] * 10)

    def fired(*settings: str) -> list[tuple[float, int]]:
        table = with_settings([rule for rule in rules() if rule.id == "hit-ratio-low"], settings)
        report = evaluate(db.client, second(0), second(10), table, now=LATER)
        return [(a.rule.threshold, a.windows) for a in report.alerts]

    assert fired() == [(0.85, 10)]
    assert fired("hit-ratio-low.threshold=0.8") == []
    assert fired("hit-ratio-low.threshold=0.81") == [(0.81, 10)]
    assert fired("hit-ratio-low.for=11") == []
    assert fired("hit-ratio-low.minimum=2001") == []
    assert fired("hit-ratio-low.window=5", "hit-ratio-low.for=10") == [(0.85, 2)]
    assert fired("hit-ratio-low.enabled=false") == []


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("hit-ratio-low", "sets nothing: write RULE.FIELD=VALUE"),
        ("threshold=1", "sets nothing: write RULE.FIELD=VALUE"),
        ("hit-ratio.threshold=1", "there is no rule 'hit-ratio'; did you mean hit-ratio-low?"),
        ("hit-ratio-low.treshold=1", "'treshold' cannot be set here; did you mean threshold?"),
        ("hit-ratio-low.sql=SELECT 1", "'sql' cannot be set here"),
        ("hit-ratio-low.threshold=high", "threshold must be a number, not 'high'"),
        ("hit-ratio-low.threshold=.nan", "threshold must be a number, not nan"),
        ("hit-ratio-low.threshold=[", "threshold must be a number"),
        ("hit-ratio-low.window=0", "window must be whole seconds from 1 to 86400, not 0"),
        ("hit-ratio-low.window=1.5", "window must be whole seconds"),
        ("hit-ratio-low.for=-1", "for must be whole seconds from 0"),
        ("hit-ratio-low.minimum=-1", "minimum must be 0 or more"),
        ("hit-ratio-low.severity=bad", "severity must be one of critical, warning, info, not 'bad'"),
        ("hit-ratio-low.enabled=perhaps", "enabled must be true or false"),
    ],
)
def test_a_wrong_setting_is_refused_with_what_to_do(setting: str, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        with_settings(rules(), [setting])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "- id: hit-ratio-low\n  threshold: high\n",
            "rules.yaml:2: rule hit-ratio-low: threshold must be a number, not 'high'",
        ),
        (
            "- id: hit-ratio-low\n  thresold: 1\n",
            "rules.yaml:2: rule hit-ratio-low: no field of a rule: thresold; did you mean threshold?",
        ),
        ("\n- threshold: 1\n", "rules.yaml:2: id is missing"),
        ("- id: Hit Ratio\n", "rules.yaml:1: id must be a name of a-z, 0-9 and -, not 'Hit Ratio'"),
        ("- id: [1]\n", "rules.yaml:1: id must be a name of a-z, 0-9 and -, not [1]"),
        ("- id: hit-ratio-lo\n  threshold: 1\n", "did you mean to change hit-ratio-low?"),
        (
            "- id: quite-new\n  threshold: 1\n",
            "rules.yaml:1: rule quite-new is new and lacks means, value, unit,",
        ),
        ("id: x\n", "rules.yaml:1: a file of rules is a list"),
        ("- 1\n", "rules.yaml:1: a rule is fields with values"),
        ("- id: hit-ratio-low\n  for: 1\n  for: 2\n", "rules.yaml:3: for stands twice, first in line 2"),
        (
            "- id: hit-ratio-low\n\n- id: hit-ratio-low\n",
            "rules.yaml:3: rule hit-ratio-low is there twice, first in line 1",
        ),
        ("- id: [\n", "rules.yaml:2: "),
        (
            "- id: hit-ratio-low\n  by: server\n",
            "rules.yaml:2: rule hit-ratio-low: by must be a list of columns",
        ),
        ("- id: hit-ratio-low\n  by: ['a; b']\n", "by must be a list of columns"),
        ("- id: hit-ratio-low\n  look: ['hitmap {']\n", "look has a placeholder that is not closed"),
        ("- id: hit-ratio-low\n  prometheus: {expr: up}\n", "must have an expr with $threshold"),
        ("- id: hit-ratio-low\n  breach: under\n", "breach must be one of above, below, not 'under'"),
        ("- id: !!python/object:os.system x\n", "could not determine a constructor"),
        ("- &a [*a]\n", "a rule is fields with values"),
    ],
)
def test_a_mistake_in_a_file_is_named_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    assert said in complaint(tmp_path, text)


def test_every_mistake_is_named_at_once(tmp_path: Path) -> None:
    said = complaint(tmp_path, "- id: hit-ratio-low\n  threshold: x\n- id: kv-thrash\n  window: 0\n  of: 7\n")
    assert [line.split(":")[1] for line in said.splitlines()] == ["2", "4", "5"]


def test_a_file_that_cannot_be_read_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        with_file(rules(), tmp_path / "none.yaml")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="is no text in UTF-8"):
        with_file(rules(), tmp_path / "binary")
    (tmp_path / "large").write_text("#" * (1 << 20) + "#")
    with pytest.raises(UsageError, match="more than 1 MB"):
        with_file(rules(), tmp_path / "large")


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    assert with_file(rules(), written(tmp_path, "# later\n")) == rules()
