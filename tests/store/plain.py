"""HTTP without a ClickHouse client, as curl would speak it."""

from __future__ import annotations

import http.client
from typing import NamedTuple
from urllib.parse import unquote, urlencode, urlsplit


class Answer(NamedTuple):
    """code: ClickHouse's error code, 0 where all went well."""

    status: int
    code: int
    data: bytes
    headers: http.client.HTTPMessage

    @property
    def text(self) -> str:
        """The body as text."""
        return self.data.decode(errors="replace")


def post(
    dsn: str, body: bytes | str, headers: dict[str, str] | None = None, *, method: str = "POST", **params: str
) -> Answer:
    """POST `body` to the store at `dsn` as its user, in its database."""
    parts = urlsplit(dsn)
    query = urlencode({"database": parts.path.strip("/"), **params})
    credentials = {}
    if parts.username:
        credentials = {"X-ClickHouse-User": parts.username, "X-ClickHouse-Key": unquote(parts.password or "")}
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    try:
        data = body.encode() if isinstance(body, str) else body
        connection.request(method, f"/?{query}", data, credentials | (headers or {}))
        answer = connection.getresponse()
        code = int(answer.getheader("X-ClickHouse-Exception-Code", "0"))
        return Answer(answer.status, code, answer.read(), answer.headers)
    finally:
        connection.close()
