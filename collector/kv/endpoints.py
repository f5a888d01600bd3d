"""Where the KV events of a server are taken from: what a person says, else what the server says. Pure.

To listen somewhere opens a port, and for ipc replaces a file: that is done where a person says so, never because a
server does. Of a server's word only tcp addresses to connect to are taken. By vLLM's rule (see `publisher_connects`) a
server at a concrete address connects, so that nobody would listen: that is told, with what to pass. A server that says
itself that it listens there, as hitmap's engine does, is connected to.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from collector.detection import Capability, Detection, KvSource
from collector.kv.address import of_rank, publisher_connects
from collector.kv.subscriber import KvEndpoint

if TYPE_CHECKING:
    from collector.attach import AttachOptions

MOST_RANKS = 64
"""Of a server's list: each takes a thread and sockets. A person may name more (--kv-events, --kv-ranks)."""
KV_EVENTS = "KV-cache events"  # the signal, in every dialect
_WILDCARDS = ("*", "0.0.0.0", "[::]")  # noqa: S104 - read in the server's address, not listened on
_TCP = re.compile(r"tcp://(\*|[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):([0-9]{1,5})")
_MAX_RANK = 0xFFFF


def kv_endpoints(detection: Detection, options: AttachOptions) -> list[KvEndpoint]:
    """Where the server's KV events are to be had: as told by the options, else by the server; may be nowhere."""
    host = urlsplit(detection.url).hostname or "127.0.0.1"
    if not options.kv_events:
        found = (_as_told(source, host, options) for source in detection.kv_sources)
        return [endpoint for endpoint in found if endpoint]
    bind = _binds(detection, options)
    ranks = ((rank, of_rank(options.kv_events, rank)) for rank in range(options.kv_ranks))
    return [
        KvEndpoint(
            options.server,
            events if bind else _reachable(events, host),
            _reachable(of_rank(options.replay, rank), host),
            bind,
            rank=rank,
            window=options.window,
        )
        for rank, events in ranks
    ]


def not_followed(detection: Detection, options: AttachOptions) -> str:
    """What to do about publishers that the server tells of and that are not followed; empty where there are none."""
    left = [] if options.kv_events else [s for s in detection.kv_sources if not _as_told(s, "", options)]
    return f"{_why(left[0])}: pass {_what_to_pass(left)}" if left else ""


def within_bounds(detection: Detection) -> Detection:
    """The detection with no more publishers than are followed, and with what is left out told to a person."""
    by_rank: dict[int, KvSource] = {}
    for source in detection.kv_sources:
        if 0 <= source.rank <= _MAX_RANK:
            by_rank.setdefault(source.rank, source)
    sources = tuple(by_rank[rank] for rank in sorted(by_rank)[:MOST_RANKS])
    notes = detection.notes
    if left_out := len(by_rank) - len(sources):
        notes += (
            f"KV events of {left_out} of {len(by_rank)} ranks are left out:"
            f" {MOST_RANKS} are followed unless --kv-events and --kv-ranks say more",
        )
    left = [source for source in sources if _is_listened_for(source) or not _is_tcp(source.events)]
    signals = tuple(_with_hint(row, left) if left else row for row in detection.capabilities)
    return replace(detection, kv_sources=sources, notes=notes, capabilities=signals)


def _binds(detection: Detection, options: AttachOptions) -> bool:
    """Whether hitmap listens at the address that a person gave: as told by the options, else by vLLM's rule, but never
    where the server says that it listens at that port itself."""
    if options.kv_bind is not None:
        return options.kv_bind
    port = _port(options.kv_events)
    told = [source for source in detection.kv_sources if port and port == _port(source.events)]
    return publisher_connects(options.kv_events) and all(_is_listened_for(source) for source in told)


def _as_told(source: KvSource, host: str, options: AttachOptions) -> KvEndpoint | None:
    """Where to connect to follow a publisher as the server tells of it; None where it cannot or must not be."""
    bind = _is_listened_for(source) if options.kv_bind is None else options.kv_bind
    if bind or not _is_tcp(source.events):
        return None
    replay = _reachable(source.replay, host) if _is_tcp(source.replay) else ""
    return KvEndpoint(
        options.server,
        _reachable(source.events, host),
        replay,
        False,
        source.topic,
        source.rank,
        window=options.window,
    )


def _is_listened_for(source: KvSource) -> bool:
    """Whether the publisher connects to who listens at its address."""
    return publisher_connects(source.events) if source.connects is None else source.connects


def _is_tcp(address: str) -> bool:
    return 0 < _port(address) <= 0xFFFF


def _port(address: str) -> int:
    """Of a tcp address; 0 for any other."""
    match = _TCP.fullmatch(address)
    return int(match[2]) if match else 0


def _why(source: KvSource) -> str:
    if _is_tcp(source.events):
        return f"the server connects to who listens at {source.events}, and hitmap listens only where it is told to"
    return "the server names an address that hitmap does not take from a server"


def _what_to_pass(sources: Iterable[KvSource]) -> str:
    """The options that say the same as a person. An address that is none could be anything: it is not repeated."""
    first = next(iter(sources)).events
    return f"--kv-events {first if _is_tcp(first) else 'ENDPOINT'} --kv-bind"


def _with_hint(row: Capability, left: Iterable[KvSource]) -> Capability:
    """The row of the KV events with what has to be passed before hitmap gets them."""
    if row.signal != KV_EVENTS:
        return row
    flag = f"hitmap attach {_what_to_pass(left)}"
    evidence = f"{row.evidence}; it connects to who listens there, which hitmap does only if told"
    return replace(row, evidence=evidence, flag=f"{row.flag}; {flag}" if row.flag else flag)


def _reachable(address: str, host: str) -> str:
    """An address that a server listens on, as one that can be connected to."""
    scheme, separator, rest = address.partition("://")
    name, colon, port = rest.rpartition(":")
    if scheme != "tcp" or name not in _WILDCARDS:
        return address
    return f"{scheme}{separator}{f'[{host}]' if ':' in host else host}{colon}{port}"
