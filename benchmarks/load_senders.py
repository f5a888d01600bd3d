"""OTLP senders for benchmarks.load, in a process of their own: many connections, each with one request under way.

    python -m benchmarks.load_senders     the plan as JSON on standard input, a line; what was acknowledged on its end

Connection `c` sends its requests 0, 1, 2 ... one after the other and each again until it is acknowledged, as exporters
do. Row `i` of request `n` carries all three numbers, so that the store can be asked for every single one. By `c`: every
second goes over gRPC, the others over HTTP (a quarter of these in JSON, half of the rest in gzip); of ten, eight send
spans, one log records, one metrics.
"""

from __future__ import annotations

import gzip
import http.client
import json
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

ROWS = 20  # a request
PATIENCE_S = 60.0  # after the end, for what was refused until then
SERVICE = "opentelemetry.proto.collector.{}.v1.{}Service/Export"
METHODS = {
    "traces": "/" + SERVICE.format("trace", "Trace"),
    "metrics": "/" + SERVICE.format("metrics", "Metrics"),
    "logs": "/" + SERVICE.format("logs", "Logs"),
}
# "again later" by the OTLP specification, as the two doors say it
GRPC_LATER, HTTP_LATER = "RESOURCE_EXHAUSTED with RetryInfo", "HTTP 503 with Retry-After"
RETRYABLE = frozenset({GRPC_LATER, HTTP_LATER})
Post = Callable[[bytes], str]  # what became of a request: "" for acknowledged, else why not


def signal_of(connection: int) -> str:
    """What a connection sends."""
    return {8: "metrics", 9: "logs"}.get(connection % 10, "traces")


def span_id(connection: int, request: int, row: int) -> bytes:
    """Eight bytes that say where a span comes from."""
    return connection.to_bytes(2) + request.to_bytes(4) + row.to_bytes(2)


def spans(connection: int, request: int) -> dict[str, Any]:
    """A request as the arguments of its message."""
    now = time.time_ns()
    made = []
    for row in range(ROWS):
        identity = span_id(connection, request, row)
        attributes = [
            {"key": "gen_ai.request.id", "value": {"string_value": f"chatcmpl-{identity.hex()}"}},
            {"key": "gen_ai.usage.prompt_tokens", "value": {"int_value": 512}},
            {"key": "gen_ai.latency.e2e", "value": {"double_value": 0.5}},
        ]
        made.append(
            {
                "trace_id": identity * 2,
                "span_id": identity,
                "name": "llm_request",
                "kind": 2,
                "start_time_unix_nano": now - 5 * 10**8,
                "end_time_unix_nano": now,
                "attributes": attributes,
            }
        )
    scope = {"scope": {"name": "vllm.llm_engine"}, "spans": made}
    return {"resource_spans": [{"resource": _resource(connection), "scope_spans": [scope]}]}


def records(connection: int, request: int) -> dict[str, Any]:
    """The same for log records."""
    now = time.time_ns()
    made = [
        {
            "time_unix_nano": now,
            "body": {"string_value": f"{connection}-{request}-{row}"},
            "event_name": "load",
        }
        for row in range(ROWS)
    ]
    return {"resource_logs": [{"resource": _resource(connection), "scope_logs": [{"log_records": made}]}]}


def points(connection: int, request: int) -> dict[str, Any]:
    """The same for metrics."""
    now = time.time_ns()
    made = [{"time_unix_nano": now, "as_int": request * ROWS + row} for row in range(ROWS)]
    metric = {"name": "load", "gauge": {"data_points": made}}
    return {
        "resource_metrics": [{"resource": _resource(connection), "scope_metrics": [{"metrics": [metric]}]}]
    }


def _resource(connection: int) -> dict[str, Any]:
    return {"attributes": [{"key": "service.name", "value": {"string_value": f"load-{connection}"}}]}


MAKE = {
    "traces": (spans, ExportTraceServiceRequest),
    "logs": (records, ExportLogsServiceRequest),
    "metrics": (points, ExportMetricsServiceRequest),
}


class Connection:
    """One connection and how it fared."""

    def __init__(self, number: int, grpc_at: str, http_at: str) -> None:
        self.number, self.signal = number, signal_of(number)
        self.acknowledged = 0
        self.refused: Counter[str] = Counter()
        self.post = self._over_grpc(grpc_at) if number % 2 else self._over_http(http_at)
        self.as_json = number % 8 == 0

    def run(self, every_s: float, until: float) -> None:
        """Send until the time is over, and the last request until it is acknowledged or patience ends."""
        make, message = MAKE[self.signal]
        rnd = random.Random(self.number)
        time.sleep(rnd.random() * every_s)
        while time.monotonic() < until:
            fields = make(self.number, self.acknowledged)
            body = to_json(fields) if self.as_json else message(**fields).SerializeToString()
            while refused := self.post(body):
                self.refused[refused] += 1
                if time.monotonic() > until + PATIENCE_S:
                    return
                time.sleep(0.2 + rnd.random())
            self.acknowledged += 1
            time.sleep(every_s * (0.5 + rnd.random()))

    def _over_grpc(self, address: str) -> Post:
        # without a pool of its own every channel of the process would share one connection
        channel = grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
        export = channel.unary_unary(METHODS[self.signal])

        def post(body: bytes) -> str:
            try:
                export(body, timeout=30)
            except grpc.RpcError as error:
                return GRPC_LATER if _says_later(error) else str(error.code().name)
            return ""

        return post

    def _over_http(self, address: str) -> Post:
        host, _, port = address.partition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=30)
        compressed = self.number % 4 == 2

        def post(body: bytes) -> str:
            headers = {"content-type": "application/json" if self.as_json else "application/x-protobuf"}
            if compressed:
                headers["content-encoding"] = "gzip"
            try:
                connection.request(
                    "POST", f"/v1/{self.signal}", gzip.compress(body) if compressed else body, headers
                )
                answer = connection.getresponse()
                answer.read()
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                return type(error).__name__
            if answer.status == 503 and answer.getheader("retry-after"):
                return HTTP_LATER
            return "" if answer.status == 200 else f"HTTP {answer.status}"

        return post


def _says_later(error: Any) -> bool:
    """Whether a refusal has the RetryInfo without which RESOURCE_EXHAUSTED is for good."""
    status = rpc_status.from_call(error)
    return (
        error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        and status is not None
        and any(detail.Is(error_details_pb2.RetryInfo.DESCRIPTOR) for detail in status.details)
    )


def to_json(fields: Any) -> bytes:
    """OTLP's JSON form of the arguments of a message."""
    return json.dumps(_camel(fields)).encode()


def _camel(value: Any) -> Any:
    if isinstance(value, dict):
        return {_camel_case(key): _camel(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_camel(item) for item in value]
    return value.hex() if isinstance(value, bytes) else value


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.title, others))


def main() -> None:
    plan = json.loads(sys.stdin.readline())
    until = time.monotonic() + plan["seconds"]
    connections = [Connection(number, plan["grpc"], plan["http"]) for number in range(plan["connections"])]
    threads = [
        threading.Thread(target=c.run, args=(plan["every_s"], until), daemon=True) for c in connections
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    refused = sum((c.refused for c in connections), Counter[str]())
    print(json.dumps({"acknowledged": [c.acknowledged for c in connections], "refused": refused}))


if __name__ == "__main__":
    main()
