"""One client for both homes of the store: a DSN in, a stock clickhouse-connect client out."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

import clickhouse_connect
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

from cachemodel.errors import UsageError, UserError

EXAMPLE = "http://user:password@host:8123/database"


def connect(dsn: str, *, timeout_s: float = 300.0) -> Client:
    """A client of the store at `dsn`; raises UserError saying which part of the DSN is wrong."""
    parts = urlsplit(dsn)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"{_shown(dsn)!r} is no store: a DSN looks like {EXAMPLE}")
    try:
        port = parts.port or (8443 if parts.scheme == "https" else 8123)
    except ValueError:
        raise UsageError(f"{_shown(dsn)!r} has no valid port: a DSN looks like {EXAMPLE}") from None
    try:
        return clickhouse_connect.get_client(
            host=parts.hostname,
            port=port,
            interface=parts.scheme,
            username=unquote(parts.username or "default"),
            password=unquote(parts.password or ""),
            database=parts.path.strip("/") or "default",
            autogenerate_session_id=False,
            compress=False,
            send_receive_timeout=timeout_s,
            query_limit=0,
        )
    except ClickHouseError as error:
        raise UserError(_reason(error, dsn)) from None


def _reason(error: ClickHouseError, dsn: str) -> str:
    text, shown = str(error), _shown(dsn)
    if "516" in text or "AUTHENTICATION" in text:
        return f"the store at {shown} refuses the user or password"
    if "UNKNOWN_DATABASE" in text or "Code: 81" in text:
        return f"the store at {shown} has no such database; create it there, or name another"
    if "refused" in text or "resolve" in text or "timed out" in text or "Max retries" in text:
        return f"no store answers at {shown}; is it running, and is the address right?"
    return f"the store at {shown} cannot be used: {text.splitlines()[0][:300]}"


def _shown(dsn: str) -> str:
    """The DSN without its password."""
    head, at, tail = dsn.rpartition("@")
    return f"{head.rpartition(':')[0]}:***{at}{tail}" if at and head.count(":") > 1 else dsn
