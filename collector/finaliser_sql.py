"""The statements of the finaliser.

Parameters: `run` is the run's id, `batch` an ingest batch of spans, `batches` some of usage; `lo` and `hi` are the
first and last second in which rows of the requests in question may stand in `requests`, as a probe gives them.
"""

from __future__ import annotations

from collector.dialects import SPAN_DIALECTS, SpanDialect
from collector.request_log import CANARY_MARK

LOG = "log"  # the dialect of a row that no span backs
_BY_SERVER = ", ".join(f"'{dialect.name}'" for dialect in SPAN_DIALECTS if dialect.by_server)
_COLUMNS = """
    time, server, model, dialect, request_id, span_id,
    ttft_us, e2e_us, queue_us, response_us, prefix_us, host_us, remote_us, prefill_us, decode_us, frontend_us, other_us,
    prompt_tokens, cached_tokens, device_tokens, host_tokens, remote_tokens, created_tokens, completion_tokens,
    recomputed_tokens, preemptions, client_ttft_us, client_e2e_us, finish_reason, labels, observed"""
_STAGED = "FROM requests_staged WHERE stage = {run:UInt64}"
# What a canary sends is no traffic: a row of its requests would stand among those of users.
_NO_CANARY = f"position(request_id, '{CANARY_MARK}') = 0"
# The same by who asked, for spans of clients and gateways, which know a request by the server's id.
_USERS = (
    "user.id",
    "enduser.id",
    "llm.user",
    "gen_ai.request.user",
    "langfuse.user.id",
    "llm.invocation_parameters",
)
_NO_CANARY_USER = " AND ".join(f"position(SpanAttributes['{name}'], '{CANARY_MARK}') = 0" for name in _USERS)
_KEYS_FOUND = "(count(), toUnixTimestamp(min(time)), toUnixTimestamp(max(time)))"
# A batch is too small to share out; old data played in can touch any number of days.
_SINGLE = "SETTINGS max_threads = 1, max_insert_threads = 1, max_partitions_per_insert_block = 0"


def _claims(dialect: SpanDialect) -> str:
    """Whether a span is the dialect's: it claims it and none before it does."""
    before = SPAN_DIALECTS[: SPAN_DIALECTS.index(dialect)]
    return " AND ".join([f"({dialect.claim})", *(f"NOT ({other.claim})" for other in before)])


# How many spans of a batch each dialect may read, and by what names servers go: (kind, alias, server).
SURVEY = f"""
SELECT
    [{", ".join(f"countIf({_claims(dialect)})" for dialect in SPAN_DIALECTS)}],
    (SELECT groupArray((kind, alias, server)) FROM server_aliases FINAL)
FROM otel_traces
WHERE IngestBatch = {{batch:String}}
"""


def stage_spans(dialect: SpanDialect) -> str:
    """Stage the rows of a dialect's spans. An instance's alias goes before its service's.

    Where no instance has an alias the condition is constant and the resource is not read.
    """
    identified = "if(request_id != '', request_id, lower(leftPad(hex(span_id), 16, '0'))) AS id"
    columns = ", ".join(identified if column == "request_id" else column for column in dialect.columns)
    return f"""
    INSERT INTO requests_staged (stage, key, dialect, {", ".join(dialect.columns)})
    WITH
        (seconds -> if(seconds BETWEEN 0 AND 1e6, toInt64(round(seconds * 1e6)), NULL)) AS micros,
        (count -> if(count BETWEEN 0 AND 4294967295, toUInt32(count), NULL)) AS tokens,
        -- what is no count (text, NaN, 1e400, -1) is not known, and not 0
        (told -> mapFilter((_, count) -> count >= 0 AND isFinite(count),
            mapApply((name, count) -> (name, ifNull(toFloat64OrNull(count), -1)), mapFilter((name, _) ->
                startsWith(name, 'hitmap.thread.') OR startsWith(name, 'hitmap.pmu.'), told)))) AS counted,
        {{instances:Array(String)}} AS instances,
        {{services:Array(String)}} AS services,
        ResourceAttributes['service.instance.id'] AS instance,
        transform(instance, instances, {{instance_servers:Array(String)}}, '') AS by_instance,
        transform(ServiceName, services, {{service_servers:Array(String)}}, toString(ServiceName)) AS by_service,
        spans AS
        (
            SELECT
                toDateTime64(Timestamp, 6) AS time,
                Duration AS duration,
                if(notEmpty(instances) AND by_instance != '', by_instance, by_service) AS server,
                reinterpretAsUInt64(reverse(unhex(SpanId))) AS span_id,
                reinterpretAsUInt64(reverse(unhex(ParentSpanId))) AS parent,
                ScopeName AS scope,
                SpanAttributes AS a
            FROM otel_traces
            PREWHERE IngestBatch = {{batch:String}} AND {_claims(dialect)}
            WHERE {"true" if dialect.by_server else _NO_CANARY_USER}
        )
    SELECT {{run:UInt64}}, sipHash64(id), '{dialect.name}', {columns}
    FROM ({dialect.sql})
    WHERE {_NO_CANARY}
    {_SINGLE}"""


# How many rows are staged, whether each is of another request, where their requests may stand, how much usage there is.
PROBE_STAGED = f"""
SELECT
    count(),
    uniqExact(key) = count(),
    (SELECT {_KEYS_FOUND} FROM request_keys WHERE key IN (SELECT key {_STAGED})),
    (SELECT count() FROM request_usage WHERE key IN (SELECT key {_STAGED}))
{_STAGED}
"""

ADD_KEYS = f"INSERT INTO request_keys SELECT key, toDateTime(time) {_STAGED} {_SINGLE}"

PUBLISH_STAGED = (
    f"INSERT INTO requests ({_COLUMNS}, run) SELECT {_COLUMNS}, {{run:UInt64}} {_STAGED} {_SINGLE}"
)


_TOKENS = (
    *("prompt_tokens", "cached_tokens", "device_tokens", "host_tokens", "remote_tokens", "created_tokens"),
    "completion_tokens",
)
_CLIENT_TIMES = ("client_ttft_us", "client_e2e_us")
_LAYERS = ("queue_us", "prefill_us", "decode_us")
_TEXTS = ("model", "finish_reason")
# The layers are the server's to tell: its own span's stand, a client's span gives way to the server's word in the
# response. All three together, since a layer may be part of another one (SGLang's span counts queueing as prefill).
_USAGE_TELLS_LAYERS = f"""
    (coalesce({", ".join(f"u.{layer}" for layer in _LAYERS)}) IS NOT NULL AND r.dialect NOT IN ({_BY_SERVER}))"""


# A mark that a span sets stands beside the labels of a log; which of the latter stood before does not matter.
_TOLD_BY_SPANS = "mapFilter((name, told) -> name = 'fault', r.labels)"


def _newest(column: str, told: str = "") -> str:
    """The newest value told of a column of usage (argMax passes over NULL)."""
    value = f"t.{column}, (received, time)"
    return f"argMaxIf({value}, {told}) AS {column}" if told else f"argMax({value}) AS {column}"


def _with_usage(rows: str) -> str:
    """Publish rows with the usage of their request.

    Tokens: what the response says is what was billed and counted. Times to the first token and to the end: a span's own
    stand, since it was there; usage fills in where it has none. The rest is derived again from what stands.
    """
    counts = [f"coalesce(u.{column}, r.{column}) AS {column}" for column in (*_TOKENS, *_CLIENT_TIMES)]
    layers = [f"if({_USAGE_TELLS_LAYERS}, u.{layer}, r.{layer}) AS {layer}" for layer in _LAYERS]
    newest = [_newest(column) for column in (*_TOKENS, *_CLIENT_TIMES, *_LAYERS, "ttft_us", "e2e_us")]
    newest += [_newest(column, f"t.{column} != ''") for column in _TEXTS]
    return f"""
    INSERT INTO requests ({_COLUMNS}, run)
    WITH
        if(r.span_id = 0, coalesce(u.ttft_us, r.ttft_us), coalesce(r.ttft_us, u.ttft_us)) AS ttft,
        if(r.span_id = 0, coalesce(u.e2e_us, r.e2e_us), coalesce(r.e2e_us, u.e2e_us)) AS e2e,
        ttft - u.queue_us - u.prefill_us AS frontend
    SELECT
        r.* REPLACE
        (
            if(r.model != '', r.model, u.model) AS model,
            if(u.finish_reason != '', u.finish_reason, r.finish_reason) AS finish_reason,
            if(notEmpty(u.labels), mapUpdate({_TOLD_BY_SPANS}, u.labels), r.labels) AS labels,
            {", ".join(counts)},
            ttft AS ttft_us,
            e2e AS e2e_us,
            {", ".join(layers)},
            if({_USAGE_TELLS_LAYERS}, frontend, r.frontend_us) AS frontend_us,
            if({_USAGE_TELLS_LAYERS}, e2e - u.queue_us - u.prefill_us - u.decode_us - frontend, r.other_us) AS other_us
        ),
        {{run:UInt64}}
    FROM (SELECT {_COLUMNS} {rows}) AS r
    LEFT ANY JOIN
    (
        SELECT server, request_id, {_newest("labels", "notEmpty(t.labels)")}, {", ".join(newest)}
        FROM request_usage AS t
        WHERE key IN (SELECT key {_STAGED})
        GROUP BY server, request_id
    ) AS u ON u.server = r.server AND u.request_id = r.request_id
    {_SINGLE}"""


PUBLISH_STAGED_WITH_USAGE = _with_usage(_STAGED)

# Of rows of one identity the latest in time stands, the newly read before the one that stood (run 0 sorts first). Of
# the spans that a client, a library and a gateway made of one call the innermost stands: the one within which no other
# starts.
PUBLISH_STANDING = _with_usage(f"""
    FROM
    (
        SELECT
            *,
            leadInFrame(toNullable(time)) OVER (
                PARTITION BY request_id, by_client ORDER BY time, e2e_us DESC, span_id
                ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS next_at,
            by_client AND ifNull(next_at <= time + toIntervalMicrosecond(ifNull(e2e_us, 0)), false) AS holds_another
        FROM
        (
            SELECT
                *,
                dialect NOT IN ({_BY_SERVER}) AND span_id != 0 AS by_client,
                row_number() OVER (PARTITION BY server, request_id, span_id ORDER BY time DESC, run) AS version,
                max(span_id != 0) OVER (PARTITION BY server, request_id) AS has_span,
                max(dialect IN ({_BY_SERVER})) OVER (PARTITION BY request_id) AS told_by_server
            {_STAGED}
        )
        WHERE version = 1
    )
    WHERE multiIf(dialect IN ({_BY_SERVER}), true, span_id = 0, NOT has_span, NOT told_by_server AND NOT holds_another)
""")

# The days of the rows to delete, with the range of each; a delete confined to a day leaves the parts of others alone.
REPLACED_DAYS = f"""
SELECT toString(toDate(time)) AS day, toString(min(time)), toString(max(time)) {_STAGED} AND run != 0 GROUP BY day
"""

DELETE_REPLACED = f"""
DELETE FROM requests IN PARTITION {{day:String}}
WHERE time BETWEEN {{lo:String}} AND {{hi:String}}
    AND (request_id, span_id, run) IN (SELECT request_id, span_id, run {_STAGED} AND run != 0)
"""

DROP_STAGE = "ALTER TABLE requests_staged DROP PARTITION {run:UInt64}"
LEFTOVER_STAGES = "SELECT DISTINCT stage FROM requests_staged WHERE stage < {run:UInt64}"

# Which rows of `request_usage` a statement is about.
USAGE_OF_BATCHES = "FROM request_usage WHERE ingest_batch IN {batches:Array(String)}"
# What a process before this one left: the last hour in which anything came, as far as it has waited long enough.
USAGE_LEFT = """FROM request_usage
    WHERE received > (SELECT max(received) FROM request_usage) - INTERVAL 1 HOUR
        AND received < now64(6) - toIntervalMillisecond({grace_ms:UInt64})"""


def _known(keys: str, ids: str) -> str:
    """Rows that stand for some requests: the hours and the range let the primary key do most of the work.

    The bounds are DateTime64 as the column is: with a DateTime, `<` drops parts that hold rows of the second before it
    (ClickHouse 26.9 rounds the bound for the index).
    """
    return f"""
    FROM requests
    WHERE toStartOfHour(time) IN (SELECT toStartOfHour(time) FROM request_keys WHERE key IN ({keys}))
        AND time >= toDateTime64({{lo:UInt32}}, 6) AND time < toDateTime64({{hi:UInt32}} + 1, 6)
        AND request_id IN ({ids})"""


def _stage_known(keys: str, ids: str) -> str:
    return f"""
    INSERT INTO requests_staged (stage, key, {_COLUMNS}, run)
    SELECT {{run:UInt64}}, sipHash64(request_id), {_COLUMNS}, run {_known(keys, ids)}
    {_SINGLE}"""


STAGE_KNOWN_OF_STAGED = _stage_known(f"SELECT key {_STAGED}", f"SELECT request_id {_STAGED}")


def stage_known_of(usage: str) -> str:
    """Stage the rows that stand for the requests of some usage."""
    return _stage_known(f"SELECT key {usage}", f"SELECT request_id {usage}")


def probe_usage(usage: str) -> str:
    """Where the requests of some usage may stand."""
    return f"SELECT {_KEYS_FOUND} FROM request_keys WHERE key IN (SELECT key {usage})"


def stage_logged(usage: str) -> str:
    """Stage a row for each request of some usage that has none on its server."""
    known = _known(f"SELECT key {usage}", f"SELECT request_id {usage}")
    return f"""
    INSERT INTO requests_staged (stage, key, dialect, time, server, request_id)
    SELECT {{run:UInt64}}, any(key), '{LOG}', argMax(time, received), server, request_id
    {usage} AND {_NO_CANARY} AND (server, request_id) NOT IN (SELECT server, request_id {known})
    GROUP BY server, request_id"""
