"""Advice as files for CI: SARIF that its schema takes, JUnit whose failures are those past the budget."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import pytest

from tests.analysis.advisor import planted
from tests.analysis.advisor.planted import sometimes
from tests.hitmap.test_advise import CLOCK, advise, log_of, written

# Of sarif-schema-2.1.0.json (OASIS), the objects that are written here: what each must have and, as it takes nothing
# else, may have.


class Object(NamedTuple):
    required: set[str]
    allowed: set[str]


SCHEMA = {
    "log": Object({"version", "runs"}, {"$schema", "inlineExternalProperties", "properties"}),
    "run": Object({"tool"}, {"columnKind", "results", "artifacts", "properties", "originalUriBaseIds"}),
    "tool": Object({"driver"}, {"extensions", "properties"}),
    "driver": Object({"name"}, {"version", "rules", "informationUri", "semanticVersion", "properties"}),
    "rule": Object({"id"}, {"name", "shortDescription", "fullDescription", "help", "helpUri", "properties"}),
    "result": Object(
        {"message"},
        {"ruleId", "ruleIndex", "level", "locations", "partialFingerprints", "properties", "kind"},
    ),
    "location": Object(set(), {"id", "physicalLocation", "logicalLocations", "message", "properties"}),
    "physical": Object({"artifactLocation"}, {"region", "contextRegion", "address", "properties"}),
    "artifact": Object(set(), {"uri", "uriBaseId", "index", "description", "properties"}),
    "region": Object(set(), {"startLine", "endLine", "startColumn", "endColumn", "snippet", "message"}),
    "logical": Object(set(), {"name", "fullyQualifiedName", "kind", "index", "properties"}),
    "text": Object({"text"}, {"markdown", "properties"}),
}


def check(kind: str, told: dict[str, Any]) -> None:
    assert SCHEMA[kind].required <= set(told), (kind, told)
    assert set(told) <= SCHEMA[kind].required | SCHEMA[kind].allowed, (kind, told)


def checked(text: str) -> dict[str, Any]:
    """The run of a SARIF log, held against the schema."""
    whole = json.loads(text)
    check("log", whole)
    assert whole["version"] == "2.1.0"
    assert whole["$schema"].endswith("sarif-schema-2.1.0.json")
    (run,) = whole["runs"]
    check("run", run)
    assert run["columnKind"] in ("utf16CodeUnits", "unicodeCodePoints")
    check("tool", run["tool"])
    driver = run["tool"]["driver"]
    check("driver", driver)
    assert len({rule["id"] for rule in driver["rules"]}) == len(driver["rules"])
    for rule in driver["rules"]:
        check("rule", rule)
        for name in ("shortDescription", "help"):
            check("text", rule[name])
    for result in run["results"]:
        _check_result(result, driver["rules"])
    assert isinstance(run, dict)
    return run


def _check_result(result: dict[str, Any], rules: list[dict[str, Any]]) -> None:
    check("result", result)
    check("text", result["message"])
    assert result["level"] in ("none", "note", "warning", "error")
    assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
    assert all(isinstance(print_, str) for print_ in result["partialFingerprints"].values())
    for location in result["locations"]:
        check("location", location)
        physical = location["physicalLocation"]
        check("physical", physical)
        check("artifact", physical["artifactLocation"])
        assert isinstance(physical["artifactLocation"]["uri"], str)
        if region := physical.get("region"):
            check("region", region)
            assert 1 <= region["startLine"] <= region["endLine"]
        for logical in location["logicalLocations"]:
            check("logical", logical)


def sarif_of(folder: Path, log: Path, *options: str) -> dict[str, Any]:
    shown = advise(log, "--sarif", folder / "advice.sarif", *options)
    assert shown.exit_code == 0, shown.output
    return checked((folder / "advice.sarif").read_text())


def junit_of(folder: Path, log: Path, *options: str) -> ElementTree.Element:
    shown = advise(log, "--junit", folder / "advice.xml", *options)
    assert shown.exit_code == 0, shown.output
    return ElementTree.parse(folder / "advice.xml").getroot()


def test_a_result_stands_at_the_request_that_shows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    log = log_of(tmp_path, [CLOCK], "some requests.jsonl")
    log.write_text("\n\n" + log.read_text())  # so that a request's number is not its line
    run = sarif_of(tmp_path, log)
    (result,) = run["results"]
    assert result["ruleId"] == "clock"
    (location,) = result["locations"]
    physical = location["physicalLocation"]
    assert physical["artifactLocation"]["uri"] == "some%20requests.jsonl"
    line = log.read_text().splitlines()[physical["region"]["startLine"] - 1]
    told = json.loads(advise(log, "--json").stdout)["suggestions"][0]
    shown = next(row[1:] for row in told["diff"].splitlines() if row.startswith("-Now"))
    assert shown in json.loads(line)["body"]["messages"][0]["content"]
    assert location["logicalLocations"][0]["fullyQualifiedName"] == "messages[0].content"


def test_an_array_has_no_lines_and_a_log_elsewhere_its_whole_address(tmp_path: Path) -> None:
    log = log_of(tmp_path, [CLOCK])
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    log.write_text(json.dumps(rows))
    (result,) = sarif_of(tmp_path, log)["results"]
    physical = result["locations"][0]["physicalLocation"]
    assert physical == {"artifactLocation": {"uri": log.resolve().as_uri()}}


@pytest.mark.parametrize(
    ("change", "budget", "level"),
    [
        (CLOCK, "0.05", "error"),
        (CLOCK, "0.99", "warning"),
        (planted.at_top(planted.request_id), "0.99", "note"),  # the model would read less
    ],
)
def test_levels_are_by_share_and_then_by_safety(
    tmp_path: Path, change: planted.Change, budget: str, level: str
) -> None:
    run = sarif_of(tmp_path, log_of(tmp_path, [change]), "--budget", budget)
    assert [result["level"] for result in run["results"]] == [level]


def test_a_cause_is_one_rule_however_often_it_is_found(tmp_path: Path) -> None:
    log = log_of(tmp_path, [CLOCK, planted.tools_shuffled], tools=True)
    run = sarif_of(tmp_path, log)
    causes = [result["ruleId"] for result in run["results"]]
    assert sorted(set(causes)) == [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert {"clock", "tool-order"} <= set(causes)


def test_suggestions_of_one_cause_and_place_are_told_apart(tmp_path: Path) -> None:
    """By what stands around them, which is the same in the next log, too."""

    two = [planted.after_first_line(planted.request_id), planted.at_top(planted.request_id)]
    two.append(
        lambda made, index: setattr(made, "system", f"Trace: {index * 7919 % 10007:05}f0a\n{made.system}")
    )

    def files(seed: int) -> tuple[list[str], list[str]]:
        folder = tmp_path / str(seed)
        folder.mkdir()
        log = folder / "log.jsonl"
        log.write_text(written(planted.log(two, seed=seed)))
        prints = [one["partialFingerprints"]["slot/v2"] for one in sarif_of(folder, log)["results"]]
        return prints, [str(case.get("name")) for case in junit_of(folder, log).iter("testcase")]

    prints, names = files(1)
    assert len(prints) == len(names) > 1
    assert len(set(prints)) == len(prints)
    assert len(set(names)) == len(names)
    assert [set(told) for told in files(2)] == [set(prints), set(names)]


def test_a_clean_log_has_no_results_and_one_passing_case(tmp_path: Path) -> None:
    log = log_of(tmp_path, [])
    assert sarif_of(tmp_path, log)["results"] == []
    root = junit_of(tmp_path, log)
    assert (root.get("tests"), root.get("failures")) == ("1", "0")
    (case,) = root.iter("testcase")
    assert len(case) == 0


@pytest.mark.parametrize("budget", [0.05, 0.4, 0.99])
def test_a_case_fails_past_the_budget_as_the_check_does(tmp_path: Path, budget: float) -> None:
    changes = [CLOCK, sometimes(planted.tools_shuffled, 0.3)]
    log = log_of(tmp_path, changes, tools=True)
    root = junit_of(tmp_path, log, "--budget", str(budget))
    told = json.loads(advise(log, "--json").stdout)["suggestions"]
    cases = list(root.iter("testcase"))
    assert [case.get("name") for case in cases] == [
        f"{one['cause']} at {one['path']} [{one['key']}]" for one in told
    ]
    failed = [case.find("failure") is not None for case in cases]
    assert failed == [one["share"] > budget for one in told]
    assert root.get("failures") == str(sum(failed))
    checked_code = advise(log, "--check", "--budget", str(budget)).exit_code
    assert checked_code == (1 if any(failed) else 0)


def test_a_failure_says_what_to_do_and_shows_no_more_of_a_prompt_than_a_screen(tmp_path: Path) -> None:
    def long(made: planted.Log, _: int) -> None:
        made.system = made.system + "\n" + "word " * 20_000

    root = junit_of(tmp_path, log_of(tmp_path, [long, CLOCK], n=20))
    failure = root.find(".//failure")
    assert failure is not None
    assert failure.text
    assert "move: put the time behind what stays the same" in failure.text
    assert "-Now: " in failure.text
    assert max(map(len, failure.text.splitlines())) < 200


def test_both_files_come_with_a_budget_that_is_exceeded(tmp_path: Path) -> None:
    log = log_of(tmp_path, [CLOCK])
    shown = advise(
        log,
        "--check",
        "--sarif",
        tmp_path / "a.sarif",
        "--junit",
        tmp_path / "a.xml",
        "-o",
        tmp_path / "a.md",
    )
    assert shown.exit_code == 1
    assert {path.suffix for path in tmp_path.iterdir()} == {".jsonl", ".sarif", ".xml", ".md"}


def test_one_id_in_two_logs_stands_in_the_first(tmp_path: Path) -> None:
    first, second = log_of(tmp_path, [CLOCK]), tmp_path / "second.jsonl"
    second.write_text(written(planted.log([CLOCK], seed=2)))
    shown = advise(first, second, "--sarif", tmp_path / "a.sarif")
    assert shown.exit_code == 0
    (result,) = checked((tmp_path / "a.sarif").read_text())["results"]
    assert result["locations"]
