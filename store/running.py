"""The statements under way by their query_id, and KILL QUERY of one of them.

The engine's own KILL QUERY knows neither a client's query_id nor whose statement it is.
"""

from __future__ import annotations

import re
import threading

from store.engine import Engine, quote_text
from store.errors import EngineError
from store.handles import Statement

_KILL = re.compile(
    r"\s*KILL\s+QUERY\s+WHERE\s+query_id\s*=\s*'([^'\\]{1,100})'\s*(?:SYNC|ASYNC)?\s*",
    re.IGNORECASE,
)


class Running:
    """Statements of one engine, from the time they are known to the end of their answer."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._statements: dict[str, Statement] = {}
        self._lock = threading.Lock()

    def add(self, statement: Statement) -> None:
        """Raise EngineError when another one of its query_id runs."""
        with self._lock:
            if self._statements.setdefault(statement.query_id, statement) is not statement:
                raise EngineError(
                    216,
                    f"Query with id = {statement.query_id} is already running.",
                    "QUERY_WITH_SAME_ID_IS_ALREADY_RUNNING",
                )

    def remove(self, statement: Statement) -> None:
        """Forget a statement, whether it was known or not."""
        with self._lock:
            if self._statements.get(statement.query_id) is statement:
                del self._statements[statement.query_id]

    def kill(self, sql: str, *, by_writer: bool) -> str | None:
        """Carry out `KILL QUERY WHERE query_id = '...'`; the statement that answers it, None where `sql` is another.

        A reader stops readers' statements (they are all one user), the writer any. What is not there gives no row.
        """
        if not (found := _KILL.fullmatch(sql)):
            return None
        statement = self._statements.get(found[1])
        if statement is None or (statement.by_writer and not by_writer):
            return "SELECT '' AS kill_status, '' AS query_id, '' AS user, '' AS query WHERE 0"
        self._engine.stop(statement)
        status = "waiting" if statement.handle_name else "finished"
        user = "writer" if statement.by_writer else "default"
        columns = {
            "kill_status": status,
            "query_id": statement.query_id,
            "user": user,
            "query": statement.sql,
        }
        return "SELECT " + ", ".join(f"{quote_text(value)} AS {name}" for name, value in columns.items())
