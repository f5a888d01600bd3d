"""Times in which a server was at work and nobody knows for whom: requests that have not come yet, or canaries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

import numpy as np
from clickhouse_connect.driver.client import Client

from analysis.misses.bins import Bins, iso
from analysis.misses.columns import Columns, at
from analysis.misses.counters import Grown, looked_up
from analysis.misses.events_alone import Window
from analysis.misses.report_model import EventsLine
from analysis.misses.tables import shown_time

_BEFORE_US = 3_600_000_000  # so long a request may have been in flight when the time begins
_SLACK_US = 5_000_000  # what clocks differ, and what is stored after an answer has ended
_UNTOLD_US = 60_000_000  # how long a request may have taken that does not tell it
_CANARY_US = 600_000_000  # what a canary takes, or more
_FEW = 0.01  # of what a server stored or looked up: less is not worth a word


def beside_requests(client: Client, window: Window, cut: Bins, lines: Sequence[EventsLine]) -> list[str]:
    """Sentences on what servers did and none of the requests tells of, whatever these were selected by. lines: what KV
    events alone tell, by server and stretch of `cut`; where they tell nothing the server's own counters may."""
    canaries = _canaries(client, window)
    told = [
        f"hitmap canary ran on {server} at {', '.join(map(_shown, times))} UTC: its prompts are among what KV events"
        " and the server's own counters tell, cold as a rule, and not among these requests"
        for server, times in canaries.items()
    ]
    busy = _busy(client, window, cut, canaries)
    silent = [server for server in window.servers if server not in {line.server for line in lines}]
    stored = [(line.server, _us(line.begin), _us(line.end), line.stored) for line in lines]
    counted = looked_up(client, silent, window.begin, window.end)
    for did, those in (("stored", stored), ("looked up", counted)):
        told += [
            f"from {_shown(begin)} to {_shown(end)} UTC {server} {did} {tokens:,} tokens, and no request of that time"
            " is known: either a collector has not read them yet (ask again), or they are not told (hitmap sources)"
            for server, begin, end, tokens in _holes(those, busy, cut)
        ]
    return told


def _holes(those: Sequence[Grown], busy: Mapping[str, set[int]], cut: Bins) -> Iterator[Grown]:
    """Stretches in which no request was in flight, neighbours as one; those with next to nothing left out. those: by
    server and time."""
    total, found = Counter[str](), list[Grown]()
    for server, begin, end, tokens in those:
        total[server] += tokens
        stretches = cut.of(np.array([begin, end - 1]))
        if not busy.get(server, set()).isdisjoint(range(int(stretches[0]), int(stretches[1]) + 1)):
            continue
        if found and found[-1][0] == server and found[-1][2] == begin:
            found[-1] = server, found[-1][1], end, found[-1][3] + tokens
        else:
            found.append((server, begin, end, tokens))
    yield from (hole for hole in found if hole[3] >= _FEW * total[hole[0]])


def _us(time: str) -> int:
    return int(datetime.fromisoformat(time).timestamp()) * 1_000_000


def _shown(us: int) -> str:
    return shown_time(iso(us // 1_000_000 * 1_000_000))


def _busy(
    client: Client, window: Window, cut: Bins, canaries: Mapping[str, Sequence[int]]
) -> dict[str, set[int]]:
    """By server the stretches in which a request was in flight, or a canary may have been."""
    told = Columns(
        client,
        f"""
        SELECT toString(server) AS name,
               intDiv(toUnixTimestamp64Micro(time) - {_SLACK_US} - {{first:Int64}}, {{step:Int64}}) AS begun,
               intDiv(toUnixTimestamp64Micro(time) + ifNull(toInt64(e2e_us), {_UNTOLD_US}) + {_SLACK_US}
                      - {{first:Int64}}, {{step:Int64}}) AS ended
        FROM requests
        WHERE server IN {{servers:Array(String)}} AND time >= {at("since")} AND time <= {at("upto")}
        GROUP BY name, begun, ended""",
        {
            "servers": list(window.servers), "first": cut.first, "step": cut.step,
            "since": window.begin - _BEFORE_US, "upto": window.end + _SLACK_US,
        },
    )  # fmt: skip
    spans = list(
        zip(
            told.texts("name").tolist(), told.ints("begun").tolist(), told.ints("ended").tolist(), strict=True
        )
    )
    for server, times in canaries.items():
        ran = np.array(times)
        spans += zip(
            [server] * len(times), cut.of(ran).tolist(), cut.of(ran + _CANARY_US).tolist(), strict=True
        )
    last = int(cut.of(np.array(window.end)))
    busy: dict[str, set[int]] = {}
    for server, begun, ended in spans:
        busy.setdefault(str(server), set()).update(range(max(0, begun), min(last, ended) + 1))
    return busy


def _canaries(client: Client, window: Window) -> dict[str, list[int]]:
    """When canaries began on some servers, microseconds."""
    rows = client.query(
        f"""
        SELECT server, toUnixTimestamp64Micro(time) AS us FROM findings
        WHERE origin = 'canary' AND server IN {{servers:Array(String)}}
            AND time >= {at("since")} AND time <= {at("end")}
        GROUP BY server, us ORDER BY server, us""",
        parameters={"servers": list(window.servers), "since": window.begin - _CANARY_US, "end": window.end},
    ).result_rows
    found: dict[str, list[int]] = {}
    for server, us in rows:
        found.setdefault(str(server), []).append(int(us))
    return found
