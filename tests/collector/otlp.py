"""What the tests of the OTLP doors share: a plain HTTP client, and OTLP's JSON form made the slow way."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from collector.otlp.http import OtlpHttpReceiver
from collector.tally import Tally

PROTOBUF, JSON = "application/x-protobuf", "application/json"
_IDS = frozenset({"traceId", "spanId", "parentSpanId"})


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


@contextmanager
def http_door(sink: Any, tally: Tally | None = None, **options: Any) -> Iterator[OtlpHttpReceiver]:
    receiver = OtlpHttpReceiver(sink, tally or Tally(), "127.0.0.1:0", **options)
    receiver.start()
    try:
        yield receiver
    finally:
        receiver.stop(1)


def send(
    receiver: OtlpHttpReceiver,
    body: bytes,
    path: str = "/v1/traces",
    *,
    method: str = "POST",
    content_type: str | None = PROTOBUF,
    **headers: str,
) -> Answer:
    """One request on a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", receiver.port, timeout=30)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        named |= {"content-type": content_type} if content_type else {}
        connection.request(method, path, body, named)
        answer = connection.getresponse()
        return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
    finally:
        connection.close()


def is_served(receiver: OtlpHttpReceiver) -> bool:
    """Whether a connection gets through, now that others may have been closed a moment ago."""
    try:
        return send(receiver, b"").status == 200
    except ConnectionError:
        return False


def as_json(request: Message) -> bytes:
    """A request in OTLP's JSON form, by protobuf's own mapping and a walk that makes ids hex."""
    return json.dumps(_with_hex_ids(MessageToDict(request, use_integers_for_enums=True))).encode()


def _with_hex_ids(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: base64.b64decode(item).hex() if key in _IDS else _with_hex_ids(item)
            for key, item in value.items()
        }
    return [_with_hex_ids(item) for item in value] if isinstance(value, list) else value
