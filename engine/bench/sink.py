"""A process that takes OTLP spans over gRPC and drops them; it ends with its parent, whose end closes its input."""

from __future__ import annotations

import sys
from concurrent import futures

import grpc

_EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


class _Drop(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """An answer without content: everything was taken."""
        if details.method != _EXPORT:
            return None
        return grpc.unary_unary_rpc_method_handler(lambda request, context: b"")


def main() -> None:
    """Say where it listens, then serve until the input ends."""
    server = grpc.server(futures.ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((_Drop(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    sys.stdout.write(f"127.0.0.1:{port}\n")
    sys.stdout.flush()
    sys.stdin.read()
    server.stop(None)


if __name__ == "__main__":
    main()
