"""What holds for every dialect: each server is recognised for what it is, and each table is consistent."""

from __future__ import annotations

from collections import Counter
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner

import collector.dialects
from collector.attach import detect
from collector.detection import Probe
from collector.dialects.detectors import DETECTORS
from collector.metric import Alias, Metric, resolve
from hitmap.commands.attach import command as attach
from tests.collector.servers import STUBS, Stub

_FOLDERS = sorted(path.parent.name for path in Path(collector.dialects.__path__[0]).glob("*/metrics.py"))


@pytest.fixture(params=_FOLDERS)
def table(request: pytest.FixtureRequest) -> tuple[Metric, ...]:
    module: ModuleType = import_module(f"collector.dialects.{request.param}.metrics")
    metrics: tuple[Metric, ...] = module.METRICS
    return metrics


@pytest.mark.parametrize("stub", STUBS, ids=lambda stub: stub.name)
def test_a_server_is_recognised_for_what_it_is(stub: Stub) -> None:
    with stub.make() as server:
        detection = detect(server.url)
    assert detection.kind == stub.kind
    assert detection.url == server.url
    assert all(capability.evidence for capability in detection.capabilities)
    assert len({capability.signal for capability in detection.capabilities}) == len(detection.capabilities)


@pytest.mark.parametrize("stub", STUBS, ids=lambda stub: stub.name)
def test_what_is_not_seen_has_a_way_to_it_or_none_is_said_to_exist(stub: Stub) -> None:
    with stub.make() as server:
        rows = [row for row in detect(server.url).capabilities if not row.seen and not row.flag]
    silent = [
        row for row in rows if "no option opens" not in row.evidence and "with the first" not in row.evidence
    ]
    assert silent == []


@pytest.mark.parametrize("stub", STUBS, ids=lambda stub: stub.name)
def test_no_other_dialect_takes_it_for_its_own(stub: Stub) -> None:
    with stub.make() as server:
        probe = Probe(server.url)
        found = {detection.kind for ask in DETECTORS if (detection := ask(probe, "127.0.0.1:4317"))}
    assert found == {stub.kind, *stub.shows}


@pytest.mark.parametrize("stub", STUBS, ids=lambda stub: stub.name)
def test_attach_prints_what_it_sees_and_the_flag_for_the_rest(stub: Stub) -> None:
    with stub.make() as server:
        detection = detect(server.url, service="blue")
        answer = CliRunner().invoke(attach, [f"blue={server.url}", "--check"])
    assert answer.exit_code == 0, answer.output
    assert answer.output.startswith(f"blue: {stub.kind} ")
    lines = [line.strip() for line in answer.output.splitlines()]
    marks = {True: "sees", False: "does not see", None: "cannot tell"}
    for row in detection.capabilities:
        assert any(line.startswith(marks[row.seen]) and row.signal in line for line in lines)
        assert not row.flag or row.flag in lines
    assert all(note in lines for note in detection.notes)


@pytest.mark.parametrize("stub", STUBS, ids=lambda stub: stub.name)
def test_every_metric_that_it_exposes_once_is_resolved_once(stub: Stub) -> None:
    with stub.make() as server:
        detection = detect(server.url)
    names = detection.resolve([alias.raw.partition("{")[0] for alias in _aliases()])
    times = Counter(metric.name for metric in names.values())
    assert {name for name, count in times.items() if count > 1} == set()


def _aliases() -> list[Alias]:
    modules = (import_module(f"collector.dialects.{folder}.metrics") for folder in _FOLDERS)
    return [alias for module in modules for metric in module.METRICS for alias in metric.aliases]


def test_a_table_names_each_metric_and_each_alias_once(table: tuple[Metric, ...]) -> None:
    assert [name for name, count in Counter(metric.name for metric in table).items() if count > 1] == []
    raws = Counter(alias.raw for metric in table for alias in metric.aliases)
    assert [raw for raw, count in raws.items() if count > 1] == []


def test_every_alias_of_a_table_is_found_alone(table: tuple[Metric, ...]) -> None:
    for metric in table:
        for alias in metric.aliases:
            found = resolve(table, [alias.raw.partition("{")[0]])
            assert found[alias.raw].name == metric.name


def test_a_metric_under_two_names_at_once_belongs_to_one(table: tuple[Metric, ...]) -> None:
    found = resolve(table, {alias.raw.partition("{")[0] for metric in table for alias in metric.aliases})
    assert max(Counter(metric.name for metric in found.values()).values()) == 1


def test_one_canonical_name_means_one_unit_and_kind_everywhere() -> None:
    modules = (import_module(f"collector.dialects.{folder}.metrics") for folder in _FOLDERS)
    told: dict[str, set[tuple[str, str]]] = {}
    for module in modules:
        for metric in module.METRICS:
            told.setdefault(metric.name, set()).add((metric.kind, metric.unit))
    assert {name: units for name, units in told.items() if len(units) > 1} == {}
