"""What servers say of themselves that their requests do not: limits of their scheduler, room for KV, unseen load."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from clickhouse_connect.driver.client import Client

from analysis.attribution.model import Side
from analysis.misses.columns import at
from analysis.twin.model import Told
from cachemodel.layers import Tier

_MICRO = 1e6
_NEAR_US = 60_000_000  # a sample that is farther from the window tells of another time
_WAITS_BETWEEN_PASSES = (
    "vllm",
)  # dialects that look for new requests between two passes, and tell it as frontend
_GAUGES = (
    "kv_cache.config",
    "kv_cache.blocks",
    "kv_cache.tokens_per_block",
    "kv_cache.page_tokens",
    "kv_cache.capacity_tokens",
    "requests.max",
)
_Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Room:
    """Tokens that the tiers of a server have room for, None where it does not say."""

    device: int | None = None
    host: int | None = None
    remote: int | None = None


@dataclass(frozen=True, slots=True)
class ToldSide:
    """What is known of the servers of a side, by name."""

    servers: Mapping[str, Told]
    rooms: Mapping[str, Room]


def told(client: Client, side: Side) -> ToldSide:
    """What the servers told in the window of a side: the median of what they said, or the nearest within a minute."""
    window = {"begin": round(side.begin * _MICRO), "end": round(side.end * _MICRO)}
    parameters: dict[str, object] = {"servers": list(side.servers), **window, "near": _NEAR_US}
    gauges = _gauges(client, parameters)
    requests = _requests(client, parameters)
    rooms = {server: _room(gauges.get(server, [])) for server in side.servers}
    servers = {}
    for server in side.servers:
        said = gauges.get(server, [])
        config = _config(said)
        stored, dialect = requests.get(server, (None, ""))
        servers[server] = Told(
            max_num_seqs=_number(config.get("max_num_seqs")) or _first(said, "requests.max"),
            max_num_batched_tokens=_number(config.get("max_num_batched_tokens")),
            kv_tokens=rooms[server].device,
            requests=stored,
            hidden_wait=dialect in _WAITS_BETWEEN_PASSES,
        )
    return ToldSide(servers, rooms)


@dataclass(frozen=True, slots=True)
class _Said:
    metric: str
    labels: _Labels
    value: float


def _gauges(client: Client, parameters: dict[str, object]) -> dict[str, list[_Said]]:
    """What each server's gauges said, those with most samples in the window first."""
    rows = client.query(
        f"""
        WITH chosen AS
        (
            SELECT fingerprint, any(server) AS whose, any(metric) AS name, any(labels) AS told FROM series
            WHERE server IN {{servers:Array(String)}} AND metric IN {{metrics:Array(String)}} GROUP BY fingerprint
        )
        SELECT whose, name, told, countIf(inside) AS within,
               if(within > 0, quantileExactIf(0.5)(value, inside), argMin(value, apart)) AS said
        FROM
        (
            SELECT fingerprint, value, time >= {at("begin")} AND time <= {at("end")} AS inside,
                   least(abs(toUnixTimestamp64Micro(time) - {{begin:Int64}}),
                         abs(toUnixTimestamp64Micro(time) - {{end:Int64}})) AS apart
            FROM samples
            WHERE fingerprint IN (SELECT fingerprint FROM chosen)
                AND time >= fromUnixTimestamp64Micro({{begin:Int64}} - {{near:Int64}}, 'UTC')
                AND time <= fromUnixTimestamp64Micro({{end:Int64}} + {{near:Int64}}, 'UTC')
        ) AS sampled
        INNER JOIN chosen USING (fingerprint)
        GROUP BY whose, name, told
        ORDER BY within DESC, min(apart)
        """,
        parameters={**parameters, "metrics": list(_GAUGES)},
    ).result_rows
    said: dict[str, list[_Said]] = {}
    for server, metric, labels, _, value in rows:
        said.setdefault(str(server), []).append(_Said(str(metric), labels, float(value)))
    return said


def _requests(client: Client, parameters: dict[str, object]) -> dict[str, tuple[int, str]]:
    """By server: requests that arrived in the window, those that only its counters know of among them, and its dialect.

    The unseen ones are what its counters grew by more than requests are stored that ended between the same scrapes.
    """
    rows = client.query(
        f"""
        WITH chosen AS
        (
            SELECT fingerprint, any(server) AS whose FROM series
            WHERE server IN {{servers:Array(String)}} AND metric = 'requests.finished' GROUP BY fingerprint
        ),
        scrapes AS
        (
            SELECT whose, time, sum(delta) AS grown
            FROM samples INNER JOIN chosen USING (fingerprint)
            WHERE fingerprint IN (SELECT fingerprint FROM chosen)
                AND time >= fromUnixTimestamp64Micro({{begin:Int64}} - {{near:Int64}}, 'UTC')
                AND time <= fromUnixTimestamp64Micro({{end:Int64}} + {{near:Int64}}, 'UTC')
            GROUP BY whose, time
        ),
        spans AS
        (
            SELECT whose, maxOrNullIf(time, time <= {at("begin")}) AS from,
                   minOrNullIf(time, time >= {at("end")}) AS upto
            FROM scrapes GROUP BY whose
        ),
        counted AS
        (
            SELECT whose, any(from) AS since, any(upto) AS until, sumIf(grown, time > from AND time <= upto) AS grown
            FROM scrapes INNER JOIN spans USING (whose)
            WHERE from IS NOT NULL AND upto IS NOT NULL GROUP BY whose
        )
        SELECT toString(server), countIf(time >= {at("begin")} AND time <= {at("end")}), anyLast(toString(dialect)),
               any(c.grown),
               countIf(c.since IS NOT NULL AND ended > c.since AND ended <= c.until)
        FROM
        (
            SELECT server, dialect, time,
                   time + toIntervalMicrosecond(ifNull(coalesce(e2e_us, client_e2e_us, ttft_us), 0)) AS ended
            FROM requests
            WHERE server IN {{servers:Array(String)}}
                AND time >= fromUnixTimestamp64Micro({{begin:Int64}} - 10 * {{near:Int64}}, 'UTC')
                AND time <= fromUnixTimestamp64Micro({{end:Int64}} + {{near:Int64}}, 'UTC')
        ) AS stored
        LEFT JOIN counted AS c ON c.whose = stored.server
        GROUP BY server
        """,
        parameters=parameters,
    ).result_rows
    return {
        str(server): (int(stored + max(0.0, (grown or 0.0) - ended)), str(dialect))
        for server, stored, dialect, grown, ended in rows
    }


def _config(said: Iterable[_Said]) -> _Labels:
    return next((one.labels for one in said if one.metric == "kv_cache.config"), {})


def _room(said: list[_Said]) -> Room:
    """In the words of vLLM (cache_config_info), SGLang, TensorRT-LLM and hitmap's engine."""
    config = _config(said)
    block = _number(config.get("block_size")) or _first(said, "kv_cache.tokens_per_block")
    by_tier = {
        one.labels.get("tier", Tier.DEVICE): one.value for one in said if one.metric == "kv_cache.blocks"
    }

    def of(tier: Tier) -> int | None:
        blocks = by_tier.get(tier)
        return None if blocks is None or not block else int(blocks * block)

    device = (
        _first(said, "kv_cache.capacity_tokens")
        or of(Tier.DEVICE)
        or _number(config.get("kv_cache_size_tokens"))
        or (_number(config.get("num_gpu_blocks")) or 0) * (block or 0)
        or None
    )
    return Room(device, of(Tier.HOST), of(Tier.REMOTE))


def _first(said: Iterable[_Said], metric: str) -> int | None:
    return next((int(one.value) for one in said if one.metric == metric and one.value > 0), None)


def _number(text: str | None) -> int | None:
    """A positive whole number; None for `None`, `inf` and the like."""
    return int(text) if text and text.isascii() and text.isdigit() and int(text) else None
