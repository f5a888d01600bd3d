"""What `hitmap canary` reads from the store and keeps in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from cachemodel.errors import UserError
from collector.canary import Finding, Report
from collector.canary.finding import ORIGIN
from collector.canary.finding import store as insert
from hitmap.commands._store_option import open_client, store_said

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

_MAY_WRITE = "INSERT INTO findings SELECT * FROM findings WHERE false"
_KNOWN = "SELECT server, facts FROM servers WHERE url = {url:String} ORDER BY time DESC LIMIT 1"
# of each measurement the newest run that told something of it, else the newest one
_NEWEST = """
    SELECT server, run, time, name, subject, value, low, high, unit, samples, inputs, detail FROM findings
    WHERE origin = {origin:String} AND (empty({names:Array(String)}) OR has({names:Array(String)}, server))
          AND (server, splitByChar('.', name)[1], run) IN
    (
        SELECT server, measurement, argMax(run, (told, time)) FROM
        (
            SELECT server, splitByChar('.', name)[1] AS measurement, run, min(time) AS time,
                   max(value IS NOT NULL OR low IS NOT NULL) AS told
            FROM findings WHERE origin = {origin:String} GROUP BY server, measurement, run
        )
        GROUP BY server, measurement
    )
    ORDER BY server, time, run, name, subject"""


@dataclass(frozen=True, slots=True)
class Kept:
    """What one run found of a server. time: when it began, UTC."""

    server: str
    run: str
    time: datetime
    findings: list[Finding]


def check_writable(client: Client) -> None:
    """Raises UserError where findings could not be stored, before anything is spent on them."""
    from clickhouse_connect.driver.exceptions import ClickHouseError

    try:
        client.command(_MAY_WRITE)
    except ClickHouseError as error:
        raise UserError(
            f"this store takes no findings ({store_said(error)}): give the DSN of a user who may write, or --no-store."
            " Nothing was sent"
        ) from None


def keep(client: Client, store: str | None, name: str, report: Report) -> str:
    """Store the findings; why that could not be, empty where it was. A store that went is looked for once more: the
    embedded one starts again."""
    from clickhouse_connect.driver.exceptions import ClickHouseError, OperationalError

    try:
        try:
            insert(client, report.time, report.run, name, report.findings)
        except OperationalError:
            with open_client(store) as again:
                insert(again, report.time, report.run, name, report.findings)
    except ClickHouseError as error:
        return store_said(error)
    except (UserError, OSError) as error:
        return str(error)
    return ""


def known_as(client: Client, url: str) -> tuple[str, Mapping[str, str]]:
    """The name under which a server was attached, and what it said of its cache."""
    rows = client.query(_KNOWN, parameters={"url": url}).result_rows
    return (str(rows[0][0]), dict(rows[0][1])) if rows else ("", {})


def device_tokens_of(facts: Mapping[str, str]) -> int | None:
    """How much KV the device holds, where the server said so in its own words."""

    def number(name: str) -> int:
        text = facts.get(name, "")
        return int(text) if text.isdecimal() else 0

    blocks = number("num_gpu_blocks") or number("device_blocks")
    return (
        number("kv_cache_size_tokens")
        or number("max_total_num_tokens")
        or blocks * number("block_size")
        or None
    )


def newest(client: Client, names: list[str]) -> list[Kept]:
    """What canaries found of the servers of these names, of all where there are none: of each measurement the newest
    run that told something of it."""
    rows = client.query(_NEWEST, parameters={"origin": ORIGIN, "names": names}).named_results()
    by_run = groupby(rows, itemgetter("server", "run", "time"))
    return [
        Kept(server, run, time, [_finding(row) for row in found]) for (server, run, time), found in by_run
    ]


def _finding(row: Mapping[str, Any]) -> Finding:
    told = {column.name: row[column.name] for column in fields(Finding)}
    return Finding(**told | {"inputs": json.loads(row["inputs"])})
