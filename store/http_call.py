"""Takes a request of ClickHouse's HTTP interface apart: who asks, which statement, which data, which settings.

A statement stands in the URL parameter `query`, in the body, or starts in one and goes on in the other. Values of
`{name:Type}` come as `param_name`; every other parameter of the URL is a setting. A multipart form
gives parameters, too.

Source: ClickHouse's documentation of its HTTP interface.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from email.parser import BytesParser
from email.policy import HTTP

from starlette.requests import Request

from store.errors import EngineError
from store.statement_kind import without_texts

# Parameters that belong to the transport, not to the engine.
TRANSPORT = frozenset(
    {
        "buffer_size",
        "cancel_http_readonly_queries_on_client_close",
        "client_protocol_version",
        "compress",
        "database",
        "decompress",
        "default_format",
        "enable_http_compression",
        "http_headers_progress_interval_ms",
        "http_native_compression_disable_checksumming_on_decompress",
        "http_response_headers",
        "http_zlib_compression_level",
        "password",
        "query",
        "query_id",
        "quota_key",
        "readonly",
        "role",
        "send_progress_in_http_headers",
        "session_check",
        "session_id",
        "session_timeout",
        "stacktrace",
        "user",
        "wait_end_of_query",
    }
)

# An INSERT whose data stands apart: neither SELECT nor VALUES before its FORMAT.
_COMMENTS = rb"(?:\s|--[^\n]*\n|/\*(?:(?!\*/).)*\*/)*"
_INSERT_HEAD = re.compile(
    _COMMENTS + rb"(INSERT\s(?:(?!\b(?:SELECT|VALUES)\b).)*?)\bFORMAT\s+(\w+)[ \t]*(?:\r?\n|;|$)",
    re.IGNORECASE | re.DOTALL,
)
_INSERT_HEAD_BYTES = 65536
MAX_FORMAT_CLAUSE = 8192
_TRAILING_FORMAT = re.compile(r"\bFORMAT\s++(\w++)\s*+(?:SETTINGS\s[^;]*+)?$", re.IGNORECASE)


@dataclass(frozen=True)
class Call:
    """One request, taken apart.

    sql: the statement without a FORMAT of its result, which is `output_format`.
    insert_format: the format of `data`, None where the statement is all there is.
    """

    sql: str
    data: bytes
    insert_format: str | None
    database: str
    output_format: str
    settings: Mapping[str, str]
    params: Mapping[str, str]


def read_call(request: Request, body: bytes, default_database: str) -> Call:
    """The call that `request` with its decoded `body` makes; raises EngineError for what this interface does not do."""
    url = dict(request.query_params)
    headers = request.headers
    if headers.get("content-type", "").startswith("multipart/form-data"):
        url |= _form_fields(headers["content-type"], body)
        body = b""
    if url.get("session_check") == "1":
        raise EngineError(
            372, f"session {url.get('session_id', '')} not found: none is kept here", "SESSION_NOT_FOUND"
        )
    text, data, insert_format = _statement(url.get("query", ""), body)
    sql, format_name = _cut_format(text.strip().rstrip("; \t\r\n"))
    return Call(
        sql=sql,
        data=data,
        insert_format=insert_format,
        database=url.get("database") or headers.get("x-clickhouse-database") or default_database,
        output_format=(
            format_name or headers.get("x-clickhouse-format") or url.get("default_format") or "TabSeparated"
        ),
        settings={k: v for k, v in url.items() if k not in TRANSPORT and not k.startswith("param_")},
        params={k.removeprefix("param_"): v for k, v in url.items() if k.startswith("param_")},
    )


def read_credentials(request: Request) -> tuple[str, str]:
    """User and password, both empty where the request names none; raises EngineError for a malformed header."""
    authorization = request.headers.get("authorization", "")
    if authorization.lower().startswith("basic "):
        try:
            user, _, password = base64.b64decode(authorization[6:]).decode().partition(":")
        except ValueError:
            raise EngineError(516, "malformed Authorization header", "AUTHENTICATION_FAILED") from None
        return user, password
    user = request.headers.get("x-clickhouse-user") or request.query_params.get("user", "")
    return user, request.headers.get("x-clickhouse-key") or request.query_params.get("password", "")


def _form_fields(content_type: str, body: bytes) -> dict[str, str]:
    """The fields of a multipart form; raises EngineError for a file in it, which is an external table."""
    form = BytesParser(policy=HTTP).parsebytes(b"Content-Type: " + content_type.encode() + b"\r\n\r\n" + body)
    if not form.is_multipart():
        raise EngineError(1, "the multipart form has no parts that can be read", "UNSUPPORTED_METHOD")
    fields = {}
    for part in form.iter_parts():
        if part.get_filename() is not None:
            raise EngineError(
                48,
                "external tables are not supported by the embedded store; use a subquery",
                "NOT_IMPLEMENTED",
            )
        value = part.get_payload(decode=True)
        name = part.get_param("name", header="content-disposition")
        fields[str(name)] = value.decode(errors="replace") if isinstance(value, bytes) else ""
    return fields


def _cut_format(sql: str) -> tuple[str, str]:
    """A statement without the output format that it names at its end, and that format."""
    bare = without_texts(sql).rstrip()
    # only the end is looked at: the search is quadratic
    found = _TRAILING_FORMAT.search(bare, max(0, len(bare) - MAX_FORMAT_CLAUSE))
    return (f"{sql[: found.start()]} {sql[found.end(1) :]}", found[1]) if found else (sql, "")


def _statement(in_url: str, body: bytes) -> tuple[str, bytes, str | None]:
    """The statement, the data that follows an INSERT, and the data's format; body bytes are copied at most once."""
    if in_url and (found := _INSERT_HEAD.match(in_url.encode() + b"\n")):
        return found[1].decode().strip(), body, found[2].decode()
    if not in_url and (found := _INSERT_HEAD.match(body[:_INSERT_HEAD_BYTES])):
        return found[1].decode(errors="replace").strip(), body[found.end() :], found[2].decode()
    text = body.decode(errors="replace")
    return (f"{in_url}\n{text}" if in_url and text else in_url or text), b"", None
