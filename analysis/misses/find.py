"""Finding one request by its id, or by the beginning of it, among all there are."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from clickhouse_connect.driver.client import Client

from analysis.report.reader import inventory
from cachemodel.errors import UsageError, UserError
from cachemodel.layers import SERVING_LAYERS
from cachemodel.printable import printable

MOST_NAMED = 8
MOST_TIMES = 50  # at which requests of one id came, the latest
_IN_FLIGHT_US = 60_000_000


@dataclass(frozen=True)
class Found:
    """A request. time: microseconds; layers: ms by name, of those that are known; until: when its first token came, or
    as long as it may have been in flight."""

    server: str
    model: str
    request_id: str
    time: int
    until: int
    layers: dict[str, float]


def find(client: Client, asked: str, server: str = "") -> Found:
    """The request with that id, or the only one whose id begins with it, else the only one whose id holds it.

    Raises UserError or UsageError saying what there is.
    """
    if not asked.strip():
        raise UsageError("say which request: hitmap explain REQUEST_ID, as in the response's id")
    rows = _exact(client, asked, server)
    for condition in ("startsWith(request_id, {id:String})", "position(request_id, {id:String}) > 0"):
        if rows:
            break
        names = client.query(
            f"SELECT DISTINCT server, request_id FROM requests WHERE {condition} {_of(server)} LIMIT {MOST_NAMED + 1}",
            parameters={"id": asked, "server": server},
        ).result_rows
        if len({name for _, name in names}) > 1:
            raise UsageError(f"several requests are called so: {_listed([n for _, n in names])}")
        if names:
            rows = _exact(client, str(names[0][1]), server)
    if not rows:
        raise UserError(
            f"no request {printable(asked)!r}{' of ' + server if server else ''}: {_latest(client)}"
        )
    if len(servers := sorted({row.server for row in rows})) > 1:
        raise UsageError(
            f"several servers have a request {rows[0].request_id}: say --server {' or '.join(servers)}"
        )
    return rows[-1]


def _exact(client: Client, request_id: str, server: str) -> list[Found]:
    """All requests with an id, in order of time: it is looked up by its hash, however many there are."""
    layers = ", ".join(layer.column for layer in SERVING_LAYERS)
    # a key stands in request_keys before its row does
    rows = client.query(
        f"""
        WITH
        (
            SELECT (min(time), max(time), groupUniqArray(toStartOfHour(time))) FROM
            (
                SELECT time FROM request_keys WHERE key = sipHash64({{id:String}})
                ORDER BY time DESC LIMIT {MOST_TIMES}
            )
        ) AS told
        SELECT server, model, toUnixTimestamp64Micro(time),
               ifNull(coalesce(ttft_us, client_ttft_us, e2e_us), {_IN_FLIGHT_US}),
               {layers}
        FROM requests
        WHERE toStartOfHour(time) IN (told.3) AND time >= toDateTime64(told.1, 6)
            AND time < toDateTime64(told.2, 6) + INTERVAL 1 SECOND AND request_id = {{id:String}} {_of(server)}
        ORDER BY time""",
        parameters={"id": request_id, "server": server},
    ).result_rows
    return [
        Found(
            str(row[0]),
            str(row[1]),
            request_id,
            int(row[2]),
            int(row[2]) + int(row[3]),
            {
                layer.name: value / 1000
                for layer, value in zip(SERVING_LAYERS, row[4:], strict=True)
                if value is not None
            },
        )
        for row in rows
    ]


def _of(server: str) -> str:
    return "AND server = {server:String}" if server else ""


def _latest(client: Client) -> str:
    """What there is, with the newest ids."""
    newest: datetime | None
    newest = client.query("SELECT max(time) FROM requests").result_rows[0][0]
    if not newest or newest.year < 1971:
        return inventory(client)
    rows = client.query(
        "SELECT request_id FROM requests WHERE time >= (SELECT max(time) FROM requests) - INTERVAL 1 HOUR"
        " ORDER BY time DESC LIMIT 3"
    ).result_rows
    return f"{inventory(client)}; the latest are {_listed([str(row[0]) for row in rows])}"


def _listed(names: list[str]) -> str:
    shown = [printable(name, lines=False) for name in names[:MOST_NAMED]]
    return ", ".join(shown) + (", and others" if len(names) > MOST_NAMED else "")
