"""vLLM-shaped spans with unique values, and a sender that is a process of its own.

    python -m benchmarks.spans ENDPOINT REQUESTS SEED

makes its requests first, prints "ready", waits for a line on its standard input, sends them all and prints how many
spans were acknowledged. A refusal to be tried again later is tried again, as an exporter would.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

SPANS_A_REQUEST = 512
IN_FLIGHT = 8
METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
LATENCIES = ("time_to_first_token", "e2e", "time_in_queue", "time_in_model_prefill", "time_in_model_decode")
COUNTS = (
    "gen_ai.usage.prompt_tokens",
    "gen_ai.usage.completion_tokens",
    "gen_ai.request.max_tokens",
    "gen_ai.request.n",
)


def export_request(seed: int, spans: int = SPANS_A_REQUEST, end_ns: int | None = None) -> bytes:
    """One ExportTraceServiceRequest: ten attributes a span, about 500 bytes, times in the second before `end_ns`."""
    rnd = random.Random(seed)
    end_ns = end_ns or time.time_ns()
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    for key, text in (
        ("service.name", "vllm"),
        ("service.instance.id", "bench"),
        ("telemetry.sdk.language", "python"),
    ):
        resource.resource.attributes.add(key=key).value.string_value = text
    scope = resource.scope_spans.add()
    scope.scope.name = "vllm.llm_engine"
    for i in range(spans):
        took = rnd.randrange(10**8, 10**9)
        span = scope.spans.add(
            trace_id=rnd.randbytes(16),
            span_id=rnd.randbytes(8),
            parent_span_id=rnd.randbytes(8),
            name="llm_request",
            kind=2,
            start_time_unix_nano=end_ns - took - i * 1000,
            end_time_unix_nano=end_ns - i * 1000,
        )
        left = took / 1e9
        for name in LATENCIES:
            span.attributes.add(key=f"gen_ai.latency.{name}").value.double_value = left
            left *= rnd.random()
        for key in COUNTS:
            span.attributes.add(key=key).value.int_value = rnd.randrange(1, 5000)
        span.attributes.add(
            key="gen_ai.request.id"
        ).value.string_value = f"chatcmpl-{rnd.getrandbits(128):032x}"
    data: bytes = request.SerializeToString()
    return data


def send(endpoint: str, requests: list[bytes]) -> Iterator[int]:
    """Send requests with a few in flight; yields the index of each as it is acknowledged. Ends when the peer does."""
    with grpc.insecure_channel(endpoint) as channel:
        export = channel.unary_unary(METHOD)
        waiting = list(range(len(requests) - 1, -1, -1))
        flying: list[tuple[int, grpc.Future]] = []
        while waiting or flying:
            while waiting and len(flying) < IN_FLIGHT:
                at = waiting.pop()
                flying.append((at, export.future(requests[at], timeout=30)))
            at, answer = flying.pop(0)
            try:
                answer.result()
                yield at
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                    return
                waiting.append(at)
                time.sleep(0.1)


def main() -> None:
    endpoint, requests, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    bodies = [export_request(seed + i) for i in range(requests)]
    print("ready", flush=True)
    sys.stdin.readline()
    print(sum(SPANS_A_REQUEST for _ in send(endpoint, bodies)), flush=True)


if __name__ == "__main__":
    main()
