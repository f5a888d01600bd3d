"""What is known of servers, whatever was asked of them: their models, what canaries measured, their block sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clickhouse_connect.driver.client import Client

from cachemodel.alignment import Alignment

Sizes = Mapping[str, Sequence[tuple[int, int, int]]]


@dataclass(frozen=True)
class Standing:
    """By server. models: those that it was attached with. alignments: what the newest canary found, where it could tell
    for certain. sizes: of the blocks that its prompts were cut into, each (tokens, when the first and when the last of
    them came in microseconds)."""

    models: Mapping[str, set[str]]
    alignments: Mapping[str, Alignment]
    sizes: Sizes


# one statement: to ask costs more than these small tables do
_SQL = """
    SELECT server, argMax(models, time) AS models, toFloat64(0) AS unit, toFloat64(0) AS dropped,
           CAST([], 'Array(Tuple(Int64, Int64, Int64))') AS sizes
    FROM servers GROUP BY server
    UNION ALL
    SELECT server, [], argMaxIf(value, time, name = 'alignment.unit' AND low = high),
           argMaxIf(value, time, name = 'alignment.dropped_units' AND low = high), []
    FROM findings WHERE origin = 'canary' GROUP BY server
    UNION ALL
    SELECT server, [], 0, 0, groupArray((toInt64(block_size), begun, ended)) FROM
    (
        SELECT server, block_size, toUnixTimestamp64Micro(min(first)) AS begun,
               toUnixTimestamp64Micro(max(last)) AS ended
        FROM chain_sizes GROUP BY server, block_size
    )
    GROUP BY server"""


def standing(client: Client) -> Standing:
    """Of all servers that there are."""
    models: dict[str, set[str]] = {}
    alignments: dict[str, Alignment] = {}
    sizes: dict[str, list[tuple[int, int, int]]] = {}
    for server, names, unit, dropped, told in client.query(_SQL).result_rows:
        if known := {str(name) for name in names if name}:
            models[str(server)] = known
        if unit and unit >= 1:
            alignments[str(server)] = Alignment(int(unit), int(dropped or 0))
        if told:
            sizes[str(server)] = told
    return Standing(models, alignments, sizes)
