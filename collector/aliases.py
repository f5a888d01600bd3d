"""Other names of a server: what its spans call it, mapped to the name that its rows carry."""

from __future__ import annotations

import msgspec

from collector.sink import Entry
from collector.source import now_us

SERVICE, INSTANCE = "service.name", "service.instance.id"
"""Attributes of a resource that can name a server. The instance goes before the service, which several may share."""


def alias(kind: str, name: str, server: str) -> Entry:
    """Say that telemetry whose resource has `name` as its `kind` is of `server`.

    With the time of now: a name that moves back to a server it had before is news, not a duplicate.
    """
    row = {"kind": kind, "alias": name, "server": server, "updated": now_us() / 1e6}
    return Entry("aliases", msgspec.json.encode(row) + b"\n", 1)
