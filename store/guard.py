"""What a reader may ask: an allow-list decided on the engine's own parse of the statement.

The engine prints its syntax tree (`EXPLAIN AST`); the statement must be of a kind known here, every function and table
in it known to stay inside the database. What is not known is refused: a reader who misses something gets a clear error,
and a statement of a kind that a later engine brings does not slip through.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple, NoReturn

from store.engine import EngineError, quote_text

STATEMENTS = frozenset(
    {
        "SelectWithUnionQuery",
        "ShowTables",
        "ShowColumns",
        "ShowFunctions",
        "ShowCreateTableQuery",
        "ShowCreateDatabaseQuery",
        "DescribeQuery",
        "ExistsTableQuery",
        "ExistsDatabaseQuery",
        "Explain",
    }
)
# Table functions that make rows out of nothing or out of a subquery that is checked like any other.
TABLE_FUNCTIONS = frozenset(
    {"numbers", "numbers_mt", "zeros", "generate_series", "generateSeries", "values", "view"}
)
# Functions that share their name with a table function and are harmless in an expression.
PLAIN_FUNCTIONS = frozenset({"format", "values", "numbers", "null"})
# Ordinary functions that read files, other tables or the inside of the server, or that hold a handle for nothing.
FORBIDDEN_FUNCTION = re.compile(
    r"(?i)(file|dict(Get|Has|IsIn).*|joinGet.*|catboostEvaluate|addressTo.*|sleep.*|getServerSetting|getServerPort"
    r"|hostName|fqdn|filesystem.*|show.*Certificate|ai[A-Z].*|hasColumnInTable|nonDeterministic.*)"
)
# What stock clients look up when they connect, and what a person may need to understand the store.
SYSTEM_TABLES = frozenset(
    {
        "build_options",
        "columns",
        "data_skipping_indices",
        "data_type_families",
        "databases",
        "formats",
        "functions",
        "numbers",
        "one",
        "parts",
        "parts_columns",
        "settings",
        "table_engines",
        "table_functions",
        "tables",
        "time_zones",
    }
)
SYSTEM_DATABASES = frozenset({"system", "information_schema"})
# A reader's own settings may shape an answer, not lift a limit or open a door.
FORBIDDEN_SETTING = re.compile(
    r"(?i)(readonly|allow_.*|.*memory.*|max_execution_time.*|timeout_overflow_mode|max_concurrent.*|.*_for_user"
    r"|.*_path|format_schema.*|s3_.*|url_.*|.*external.*|log_.*|.*cache.*|distributed.*|ai_.*|workload|priority)"
)

_NODE = re.compile(r"( *)([A-Za-z_]+)(?: (.*?))?(?: \(alias .*\))?(?: \(children \d+\))?")

Ask = Callable[[str], str]


class Node(NamedTuple):
    """One line of EXPLAIN AST."""

    kind: str
    name: str
    parent: str


class Guard:
    """Checks readers' statements on an engine; an `ask` runs a statement there and returns raw text."""

    def __init__(self, ask: Ask) -> None:
        self._table_functions = (
            frozenset(ask("SELECT name FROM system.table_functions").split()) - PLAIN_FUNCTIONS
        )

    def check(self, sql: str, database: str, ask: Ask) -> None:
        """Raise EngineError (ClickHouse's ACCESS_DENIED) unless a reader may run `sql` in `database`.

        ask: knows the values of the statement's parameters; what is asked only parses `sql`. formatQuerySingleLine
        fails on more than one statement, which the engine would otherwise run all.
        """
        normal = ask(f"SELECT formatQuerySingleLine({quote_text(sql)})")
        nodes = list(_nodes(ask("EXPLAIN AST " + sql)))
        if nodes[0].kind not in STATEMENTS:
            _refuse("a reader may only SELECT, SHOW, DESCRIBE, EXISTS and EXPLAIN")
        for node in nodes:
            if node.kind == "Literal" and node.parent in STATEMENTS:
                _refuse("INTO OUTFILE writes files")
            if node.kind == "Function":
                self._check_function(node)
            if node.kind in ("TableIdentifier", "Identifier"):
                _check_table(node, database)
            if node.kind == "Set":
                for name in _settings_in(normal):
                    check_setting(name)

    def _check_function(self, node: Node) -> None:
        if node.parent == "TableExpression" and node.name not in TABLE_FUNCTIONS:
            _refuse(f"the table function {node.name} leaves the database")
        if node.name in self._table_functions - TABLE_FUNCTIONS or FORBIDDEN_FUNCTION.fullmatch(node.name):
            _refuse(f"the function {node.name} leaves the database")


def check_setting(name: str) -> None:
    """Raise EngineError when a reader may not change this setting."""
    if FORBIDDEN_SETTING.fullmatch(name):
        _refuse(f"a reader may not change the setting {name}")


def _nodes(tree: str) -> Iterator[Node]:
    above: list[str] = []
    for line in tree.splitlines():
        found = _NODE.fullmatch(line.rstrip())
        if not found:
            _refuse(f"the engine's parse is not understood: {line.strip()!r}")
        depth = len(found[1])
        above[depth:] = [found[2]]
        yield Node(found[2], (found[3] or "").strip(), above[depth - 1] if depth else "")


def _check_table(node: Node, database: str) -> None:
    parts = node.name.replace("`", "").lower().split(".")
    if node.kind == "TableIdentifier" and len(parts) == 1:
        parts = [database.lower(), *parts]
    if len(parts) > 1 and parts[0] in SYSTEM_DATABASES and parts[1] not in SYSTEM_TABLES:
        _refuse(f"{node.name} is not open to readers")


def _settings_in(normal_sql: str) -> list[str]:
    """Names before `=` after any SETTINGS: more names than settings do no harm, they are only looked up."""
    return [
        name
        for part in re.split(r"(?i)\bSETTINGS\b", normal_sql)[1:]
        for name in re.findall(r"[`\"]?([A-Za-z_]\w*)[`\"]?\s*=", part)
    ]


def _refuse(why: str) -> NoReturn:
    raise EngineError(f"Code: 497. DB::Exception: Not enough privileges: {why}. (ACCESS_DENIED)", 497)
