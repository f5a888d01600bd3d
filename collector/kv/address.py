"""Addresses of KV-event publishers, as servers are configured with them. Pure."""

from __future__ import annotations


def publisher_connects(endpoint: str, *, bind: bool | None = None, any_ipv4_binds: bool = False) -> bool:
    """vLLM's rule: the publisher binds wildcard, IPv6, ipc and inproc endpoints and connects to all others.

    bind: what the server's own configuration says (SGLang), None for the rule; any_ipv4_binds: 0.0.0.0 is a wildcard
    too (SGLang; vLLM connects to it).
    """
    if bind is not None:
        return not bind
    wildcards = ("*", "::", "0.0.0.0") if any_ipv4_binds else ("*", "::")  # noqa: S104 - read, not listened on
    return not (any(w in endpoint for w in wildcards) or endpoint.startswith(("ipc://", "inproc://")))


def of_rank(endpoint: str, rank: int) -> str:
    """The endpoint of a data-parallel rank: the port grows by the rank."""
    host, colon, port = endpoint.rpartition(":")
    is_number = port.isascii() and port.isdigit() and len(port) <= 5
    return f"{host}{colon}{int(port) + rank}" if rank and is_number else endpoint
