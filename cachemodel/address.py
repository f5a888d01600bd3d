"""The address of a server as people type it, the same wherever one is given."""

from __future__ import annotations

from urllib.parse import urlsplit

from cachemodel.errors import UsageError


def server_url(typed: str) -> str:
    """What paths are appended to: with http:// where no scheme was typed, without a trailing /v1 or /metrics.

    Raises UsageError where it is no address.
    """
    url = typed if "://" in typed else f"http://{typed}"
    url = url.rstrip("/").removesuffix("/metrics").removesuffix("/v1").rstrip("/")
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise UsageError(f"{typed} is not the address of a server: give one such as http://127.0.0.1:8000")
    return url
