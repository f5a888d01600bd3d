"""What a reader may ask: an allow-list decided on the engine's own parse of the statement.

The engine hands its syntax tree out as JSON (`parseQueryToJSON`). Every node must be of a kind known here, every
function and table in it known to stay inside the database, every setting known to shape the answer and lift no limit.
What is not known is refused: a reader who misses something gets a clear error, and what a later engine brings does not
slip through.

Beside the obvious doors, chDB has these: `readonly` stops neither INTO OUTFILE nor file(); the database `default` is an
overlay of the file system, so that default.`/etc/passwd` is a table; the table function python() reads this process.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

from store import guard_lists as lists
from store.engine import quote_text
from store.errors import EngineError

DEADLINE = "max_execution_time"
FILTERS = "additional_table_filters"
MOST_DIGITS = 40  # of a number that is looked at; Python makes no int of some thousand
BAD_ARGUMENTS = 36  # what parseQueryToJSON answers to a valid statement that it has no JSON for

# nobody asked for that
_OUR_SCOPE = re.compile(
    r": In scope SELECT (?:parseQueryToJSON|formatQuerySingleLine)\(.*\)(?=\. \()", re.DOTALL
)
_AST_LINE = re.compile(r" *(\w+).*")
_OUR_FUNCTIONS = """
SELECT DISTINCT if(f.case_insensitive, lower(f.name), f.name)
FROM system.functions AS f
LEFT JOIN system.functions AS target ON target.name = f.alias_to
WHERE if(f.alias_to = '', f.categories, target.categories) IN ({categories})
"""
_EVERY_FUNCTION = "SELECT DISTINCT lower(name) FROM system.functions"
_COMBINATORS = "SELECT name FROM system.aggregate_function_combinators ORDER BY length(name) DESC"

Ask = Callable[[str], str]


class Guard:
    """Checks readers' statements; `ask` runs one of ours on the engine and returns its raw text.

    at_most: settings that limit a reader, and the values in force, which a reader may lower.
    """

    def __init__(self, ask: Ask, at_most: Mapping[str, int]) -> None:
        categories = ", ".join(map(quote_text, sorted(lists.FUNCTION_CATEGORIES)))
        self._functions = (
            frozenset(ask(_OUR_FUNCTIONS.format(categories=categories)).split()) | lists.FUNCTIONS
        )
        self._combinators = tuple(ask(_COMBINATORS).split())
        self._every_function = frozenset(ask(_EVERY_FUNCTION).split())
        self._ask = ask
        self._at_most = at_most

    def check(self, sql: str) -> None:
        """Raise EngineError unless a reader may run `sql`: ClickHouse's ACCESS_DENIED, or its word on the syntax."""
        try:
            tree = json.loads(self._parse("parseQueryToJSON", sql))
        except EngineError as error:
            if error.code != BAD_ARGUMENTS:
                raise
            self._check_plain(sql)
        except RecursionError:
            refuse("the statement is nested too deeply")
        else:
            if tree.get("type") == "SetQuery":
                refuse(
                    "a setting of a reader goes into the URL or the statement, for it stays with a handle others use"
                )
            for node in _nodes(tree):
                self._check_node(node)

    def bounded(self, settings: Mapping[str, str]) -> dict[str, str]:
        """The settings of a reader's URL, checked; a deadline beyond ours becomes ours.

        clickhouse-go sends its caller's deadline as max_execution_time with every query.
        """
        allowed = dict(settings)
        deadline, ours = allowed.get(DEADLINE, ""), self._at_most[DEADLINE]
        if deadline.isdecimal() and int(deadline[:9]) > ours:
            allowed[DEADLINE] = str(ours)
        for name, value in allowed.items():
            self.check_setting(name, value)
        return allowed

    def check_setting(self, name: str, value: Any) -> None:
        """Raise EngineError unless a reader may give this setting this value (None: its default)."""
        if name in self._at_most:
            text = str(value)
            if not (text.isdecimal() and len(text) < MOST_DIGITS and 0 < int(text) <= self._at_most[name]):
                refuse(f"a reader may set {name} from 1 to {self._at_most[name]}")
        elif not lists.SETTING.fullmatch(name):
            refuse(f"a reader may not change the setting {name}")

    def _parse(self, function: str, sql: str) -> str:
        try:
            return self._ask(f"SELECT {function}({quote_text(sql)})")
        except EngineError as error:
            raise EngineError.of(Exception(_OUR_SCOPE.sub("", str(error)))) from None

    def _check_plain(self, sql: str) -> None:
        """DESCRIBE, EXISTS and SHOW CREATE of a table by its name: nothing else may hang below them."""
        self._parse("formatQuerySingleLine", sql)  # fails on more than one statement
        tree = self._ask("EXPLAIN AST " + sql)
        kind, *below = (_AST_LINE.sub(r"\1", line) for line in tree.splitlines())
        if kind not in lists.PLAIN_STATEMENTS:
            refuse("a reader may only SELECT, SHOW, DESCRIBE, EXISTS and EXPLAIN")
        if not lists.PLAIN_NODES.issuperset(below) or any(name in tree.lower() for name in lists.OVERLAYS):
            refuse("a reader may describe a table by its name, and no more")

    def _check_node(self, node: Mapping[str, Any]) -> None:
        kind = node["type"]
        if kind not in lists.NODES:
            refuse(f"a reader may only SELECT, SHOW, DESCRIBE, EXISTS and EXPLAIN, not {kind}")
        if "out_file" in node:
            refuse("INTO OUTFILE writes files")
        if kind == "TableExpression" and (function := node.get("table_function")):
            if function["name"] not in lists.TABLE_FUNCTIONS:
                refuse(f"the table function {function['name']} leaves the database")
        elif kind == "Function" and node["name"] not in lists.TABLE_FUNCTIONS:
            self._check_function(node["name"])
        elif kind == "ColumnsApplyTransformer" and "func_name" in node:
            self._check_function(node["func_name"])
        elif kind in ("TableIdentifier", "Identifier"):
            _check_name(node)
            self._check_bare_function(node)
        elif kind == "SetQuery":
            for change in node.get("changes", ()):
                if change["name"] == FILTERS:
                    self._check_filters(change["value"])
                else:
                    self.check_setting(change["name"], change["value"].get("value"))
            for name in node.get("default_settings", ()):
                self.check_setting(name, None)

    def _check_filters(self, filters: Mapping[str, Any]) -> None:
        """Grafana's ad hoc filters: {table: condition}, each condition the text of an expression."""
        if filters.get("field_type") != "Map":
            refuse(f"{FILTERS} is written as a map")
        for pair in filters["value"]:
            self.check(f"SELECT (\n{pair['value'][1]['value']}\n)")

    def _check_bare_function(self, node: Mapping[str, Any]) -> None:
        """A name alone can stand for a lambda: arrayMap(file, [...]) calls file()."""
        name = str(node.get("name", ""))
        if name.lower() in self._every_function:
            self._check_function(name)

    def _check_function(self, name: str) -> None:
        """A function that is known, or an aggregate that is, with combinators: quantileTDigestIfMerge."""
        base = name
        while base not in self._functions and base.lower() not in self._functions:
            for combinator in self._combinators:
                if base.endswith(combinator) and base != combinator:
                    base = base.removesuffix(combinator)
                    break
            else:
                refuse(f"the function {name} is not open to readers")


def check_database(name: str) -> None:
    """Raise EngineError when a reader may not make this database the current one."""
    if name.lower() in lists.OVERLAYS | lists.SYSTEM_DATABASES:
        refuse(f"a reader may not work in the database {name}")


def _nodes(tree: Any) -> Iterator[Mapping[str, Any]]:
    """Every node of the tree; the settings of EXPLAIN itself, which only choose what it prints, are left out."""
    open_branches = [tree]
    while open_branches:
        branch = open_branches.pop()
        if isinstance(branch, list):
            open_branches += branch
        elif isinstance(branch, dict):
            if "type" in branch:
                yield branch
            explain = branch.get("type") == "ExplainQuery"
            open_branches += [value for key, value in branch.items() if not (explain and key == "settings")]


def _check_name(node: Mapping[str, Any]) -> None:
    """A column's or a table's name, which stands right of IN, too."""
    if node.get("children"):
        refuse("a parameter cannot be a name")
    database, *rest = (part.lower() for part in node.get("name_parts", ()) or ("",))
    if database in lists.OVERLAYS:
        refuse(f"the database {database} is not open to readers")
    if database in lists.SYSTEM_DATABASES and rest[0] not in lists.SYSTEM_TABLES:
        refuse(f"{node['name']} is not open to readers")


def refuse(why: str) -> NoReturn:
    """Raise ClickHouse's ACCESS_DENIED."""
    raise EngineError(497, f"Not enough privileges: {why}.", "ACCESS_DENIED")
