"""The address of a server as people type it, the same wherever one is given."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from cachemodel.errors import UsageError

_PARTS = re.compile(r"(\w+://)?(?:.*@)?([^?#]*).*", re.DOTALL)


def server_url(typed: str) -> str:
    """What paths are appended to: with http:// where no scheme was typed, without a trailing /v1 or /metrics.

    Raises UsageError where it is no address, and where it holds what no address needs: a user, a password or a query
    would be shown and stored wherever the server's address is. The message does not repeat them.
    """
    url = typed if "://" in typed else f"http://{typed}"
    url = url.rstrip("/").removesuffix("/metrics").removesuffix("/v1").rstrip("/")
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        more = "@" in parts.netloc or bool(parts.query or parts.fragment)
    except ValueError:
        usable = more = False
    shown = _PARTS.sub(r"\1\2", typed, count=1)
    if not usable:
        raise UsageError(f"{shown} is not the address of a server: give one such as http://127.0.0.1:8000")
    if more:
        raise UsageError(
            f"the address of {shown} holds a user, a password or a query, which would be shown and stored with it:"
            " leave it out, and give a key as --api-key"
        )
    return url


def bearer_key(typed: str) -> str:
    """An API key as a header carries it, without the blanks around it.

    Raises UsageError, which does not show it, where no header can carry it.
    """
    key = typed.strip()
    if not (key.isascii() and key.isprintable()):
        raise UsageError(
            "the API key holds a line break, a curly quote or another character that no key has: copy it again"
        )
    return key
