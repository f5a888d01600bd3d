"""Offers of another protocol in an HTTP/1.1 head.

curl --http2 and Java's HttpClient offer HTTP/2 with every request; a server may ignore the offer (RFC 9110, 7.8).
"""

from __future__ import annotations

from collections.abc import Iterable

_OFFER = frozenset({b"upgrade", b"http2-settings"})


def without_offer(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers, names in lower case, less what belongs to an offer; what else `connection` says stays."""
    kept = []
    for name, value in headers:
        if name == b"connection":
            words = [word.strip() for word in value.split(b",")]
            value = b", ".join(word for word in words if word.lower() not in _OFFER)
        if name not in _OFFER and (value or name != b"connection"):
            kept.append((name, value))
    return kept
