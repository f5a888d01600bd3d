"""The table in README.md names every test of a cause, and every row that asks for one has its test."""

from __future__ import annotations

import re
from pathlib import Path

from tests.field_reports import test_causes, test_told, test_units

# Rows about hit rates, alignment, speculative decoding, isolation, routing, preemption, and hits that bring
# no speed.
CAUSE_ROWS = {
    *(1, 2, 3, 5, 6, 7, 9, 10, 11, 14, 15, 18, 19, 23, 24, 27, 29, 32, 33, 63, 65, 66, 68, 93, 96, 99, 101),
    *(102, 103, 111, 112, 114, 115),
}
_MODULES = {"causes": test_causes, "units": test_units, "told": test_told}
_NAMED = re.compile(r"test_rows?((?:_\d+)+)_")


def rows_of(name: str) -> set[int]:
    """The rows in a test's name."""
    found = _NAMED.match(name)
    return {int(number) for number in found[1].split("_")[1:]} if found else set()


def test_every_row_has_its_test_and_its_line() -> None:
    tested = {row for module in _MODULES.values() for name in vars(module) for row in rows_of(name)}
    assert tested == CAUSE_ROWS
    table = (Path(__file__).parent / "README.md").read_text()
    listed = re.findall(r"^\| ([\d, ]+) \|", table, re.MULTILINE)
    assert {int(row) for cell in listed for row in cell.split(",")} == CAUSE_ROWS


def test_tests_that_the_table_names_are_there() -> None:
    table = (Path(__file__).parent / "README.md").read_text()
    named = re.findall(r"(causes|units|told): `(rows?_[\d_]+)", table)
    assert len(named) >= len(re.findall(r"^\| \d", table, re.MULTILINE))
    for module, name in named:
        assert any(test.startswith(f"test_{name.rstrip('_')}_") for test in vars(_MODULES[module])), name
