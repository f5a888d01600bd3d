"""The kinds of intake: what a payload is, which table takes it, and in which tables its rows can be counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources

from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

# Old data may be played in: a batch is allowed to touch as many days as the receiver lets through.
COMMON_SETTINGS = {
    "max_partitions_per_insert_block": "1000",
    "date_time_input_format": "best_effort",
    "input_format_skip_unknown_fields": "0",  # a field without a column is a mistake of ours, not to be dropped
    "input_format_null_as_default": "0",  # missing is NULL or refused, never 0
}


@dataclass(frozen=True)
class Kind:
    """How the payloads of one kind reach the store.

    intake: the table an INSERT names. targets: the tables that hold the rows afterwards. batch_column: their column
    with the batch id. format, settings: of the INSERT. replacing: the targets keep one row a key, so that inserting
    twice does no harm and counting rows tells nothing. at_once: rows of other kinds are read by it, so that it does not
    wait for more of its own. finalised: `requests` is built from it. repairs: statements
    that complete what views derive from a target, harmless when nothing is missing; {batch:String} is the batch id.
    message: protobuf class of the payload, None where it is no protobuf.
    """

    name: str
    intake: str
    targets: tuple[str, ...]
    batch_column: str = "ingest_batch"
    format: str = "JSONEachRow"
    settings: Mapping[str, str] = field(default_factory=lambda: COMMON_SETTINGS)
    replacing: bool = False
    at_once: bool = False
    finalised: bool = False
    repairs: tuple[str, ...] = ()
    message: type[Message] | None = None

    def rewritten(self, payload: bytes) -> bytes | None:
        """The payload without what no OTLP field is, in the shortest form; None where that is not possible.

        The protobuf library reads some forms that ClickHouse does not, such as groups and unknown fields of odd types.
        """
        if self.message is None:
            return None
        try:
            request = self.message.FromString(payload)
        except DecodeError:
            return None
        request.DiscardUnknownFields()
        data: bytes = request.SerializeToString()
        return data


def _protobuf(message: str) -> dict[str, str]:
    """Settings that make ClickHouse read one OTLP message, any number of requests merged into one."""
    schema = resources.files("collector.otlp").joinpath("otlp.proto").read_text()
    return COMMON_SETTINGS | {
        "format_schema_source": "string",
        "format_schema": "\n".join(line for line in schema.splitlines() if not line.startswith("//")),
        "format_schema_message_name": message,
        "input_format_protobuf_oneof_presence": "1",
        "max_threads": "1",  # one row, one block: more threads only wait for each other
    }


# What every merge does need not be done at the insert as well: filters over names and attributes, one row a trace in
# the view. A search for an attribute reads parts that were never merged without a filter: the last few minutes.
_LATER = {
    "exclude_materialize_skip_indexes_on_insert": (
        "idx_lower_span_name, idx_res_attr_key, idx_res_attr_value, idx_span_attr_key, idx_span_attr_value"
    ),
    "optimize_on_insert": "0",
}
_TRACE_RANGES = """
    INSERT INTO otel_traces_trace_id_ts
    SELECT TraceId, Timestamp, Timestamp FROM otel_traces WHERE IngestBatch = {batch:String} AND TraceId != ''
"""
_CHAIN_VIEWS = (
    """
    INSERT INTO chain_blocks
    SELECT arrayJoin(blocks) AS content, server, isolation, min(time) FROM request_chains
    WHERE ingest_batch = {batch:String} GROUP BY content, server, isolation
""",
    """
    INSERT INTO chain_pieces
    SELECT arrayJoin(pieces) AS piece, server, min(time) FROM request_chains
    WHERE ingest_batch = {batch:String} GROUP BY piece, server
""",
    """
    INSERT INTO chain_sizes
    SELECT server, block_size, min(time), max(time) FROM request_chains
    WHERE ingest_batch = {batch:String} GROUP BY server, block_size
""",
)
_METRIC_TABLES = tuple(f"otel_metrics_{t}" for t in ("gauge", "sum", "histogram", "exp_histogram", "summary"))

KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(
            name="traces",
            intake="otlp_traces",
            targets=("otel_traces",),
            batch_column="IngestBatch",
            format="ProtobufSingle",
            settings=_protobuf("ExportTraceServiceRequest") | _LATER,
            message=ExportTraceServiceRequest,
            finalised=True,
            repairs=(_TRACE_RANGES,),
        ),
        Kind(
            name="logs",
            intake="otlp_logs",
            targets=("otel_logs",),
            batch_column="IngestBatch",
            format="ProtobufSingle",
            settings=_protobuf("ExportLogsServiceRequest"),
            message=ExportLogsServiceRequest,
        ),
        Kind(
            name="metrics",
            intake="otlp_metrics",
            targets=_METRIC_TABLES,
            batch_column="IngestBatch",
            format="ProtobufSingle",
            settings=_protobuf("ExportMetricsServiceRequest"),
            message=ExportMetricsServiceRequest,
        ),
        Kind("kv_events", "kv_events", ("kv_events",)),
        Kind("samples", "samples", ("samples",)),
        Kind("series", "series", ("series",), replacing=True),
        Kind("usage", "request_usage", ("request_usage",), finalised=True),
        Kind("chains", "request_chains", ("request_chains",), repairs=_CHAIN_VIEWS),
        Kind("prompts", "prompts", ("prompts",)),
        Kind("segments", "segments", ("segments",), replacing=True),
        Kind("servers", "servers", ("servers",)),
        Kind("aliases", "server_aliases", ("server_aliases",), replacing=True, at_once=True),
    )
}
