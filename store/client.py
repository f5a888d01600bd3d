"""One client for both homes of the store: a DSN in, a stock clickhouse-connect client out."""

from __future__ import annotations

import logging
from urllib.parse import unquote, urlsplit

import clickhouse_connect
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import Error
from clickhouse_connect.driver.httputil import get_pool_manager

from cachemodel.errors import UsageError, UserError
from store.right_results import RIGHT_RESULTS

EXAMPLE = "http://user:password@host:8123/database"
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
AUTHENTICATION_FAILED, UNKNOWN_DATABASE = 516, 81

# What it logs it raises, too; without a handler it would print on the terminal of a person who is told by us.
logging.getLogger("clickhouse_connect").addHandler(logging.NullHandler())


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
        client = clickhouse_connect.get_client(
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
            # a pool of its own keeps the environment's http_proxy out
            pool_mgr=get_pool_manager() if parts.hostname in LOOPBACK else None,
        )
    except Error as error:
        raise UserError(_reason(error, dsn)) from None
    for name, value in RIGHT_RESULTS.items():
        known = client.server_settings.get(name)
        if known and known.value != value and not known.readonly:
            client.set_client_setting(name, value)
    return client


def _reason(error: Error, dsn: str) -> str:
    shown = _shown(dsn)
    if error.code == AUTHENTICATION_FAILED:
        return f"the store at {shown} refuses the user or password"
    if error.code == UNKNOWN_DATABASE:
        return f"the store at {shown} has no such database; create it there, or name another"
    if error.code is None:  # no answer of ClickHouse's
        return f"no store answers at {shown}; is it running, and is the address right?"
    return f"the store at {shown} cannot be used: {str(error).splitlines()[0][:300]}"


def _shown(dsn: str) -> str:
    """The DSN without its password."""
    head, at, tail = dsn.rpartition("@")
    return f"{head.rpartition(':')[0]}:***{at}{tail}" if at and head.count(":") > 1 else dsn
