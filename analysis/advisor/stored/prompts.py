"""Prompts of a store, as the advisor takes them: texts where capture kept them, and what is known beside them.

What is kept of a prompt is a text a message (docs/chains.md): its request is put together again of roles and contents,
tool definitions and texts without messages. Options of the request, the blocks of a message, calls apart from its text,
images and cache markers are not kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from clickhouse_connect.driver.client import Client

from analysis.advisor.stored.chains import Parting, partings
from analysis.advisor.stored.hidden import hidden
from analysis.advisor.stored.rows import MOST, Rows, read_rows
from analysis.misses.choice import selected
from analysis.report.reader import label_names
from cachemodel.prompts.blocks import Parts
from cachemodel.prompts.chat import preamble
from cachemodel.prompts.model import Kind, Part, Prompt
from cachemodel.prompts.record import about

CAPTURE = (
    "no text of these prompts is in the store: slots can be named where the collector reads a request log with"
    " --capture redacted or full (hitmap attach URL --log FILE --capture redacted); of what came before nothing is kept"
)
REDACTED = (
    "texts are redacted: addresses of mail, ids, keys, names and numbers of six digits and more read the same in all"
    " prompts, so that no slot is found where nothing else differs; times, short numbers and the order of things stay"
)
NO_SESSIONS = (
    "no label says whose session a request is, so that values of a session are not told from others:"
    " hitmap attach URL --log FILE --label-field session_id keeps one"
)
_RESULT_ROLES = ("tool", "function")
_TOOLS, _TEXT = "tools", "prompt"


@dataclass(frozen=True)
class Stored:
    """What a store tells of the prompts of a selection.

    prompts: those with texts, in order of time. left_out: what is not among them or not known of them, a sentence each.
    name: of the selection. requests: it has. capture: `full`, `redacted` where some texts are, empty where there are
    none. partings: where chains of hashes part, which needs no text, costliest first. dialect, block_size: of the most
    requests, empty and None where nothing tells.
    """

    name: str
    requests: int
    prompts: list[Prompt]
    left_out: list[str] = field(default_factory=list)
    capture: str = ""
    partings: list[Parting] = field(default_factory=list)
    dialect: str = ""
    block_size: int | None = None


def read_prompts(client: Client, text: str, *, most: int = MOST, now: datetime | None = None) -> Stored:
    """The newest `most` prompts of the requests that `text` asks for, as `hitmap misses` takes them, and where the
    chains of these requests part.

    Raises UsageError for what cannot be asked, UserError where no request matches, saying what the store has.
    """
    selection = selected(client, text, now or datetime.now(UTC), label_names(client))
    rows = read_rows(client, selection, most)
    prompts = _prompts(rows)
    return Stored(
        name=selection.name,
        requests=rows.requests,
        prompts=prompts,
        left_out=list(_left_out(rows, prompts)),
        capture="" if not prompts else "full" if rows.full.all() else "redacted",
        partings=partings(client, rows.asked),
        dialect=rows.dialect,
        block_size=rows.block_size or None,
    )


def _prompts(rows: Rows) -> list[Prompt]:
    made = _Made(rows.segments.texts)
    labels: dict[str, tuple[str, str]] = {}
    told = []
    for at in range(rows.n):
        own = rows.labels[at]
        if own not in labels:
            labels[own] = _whose(json.loads(own))
        session, user = labels[own]
        parts, body = made.request(rows.segments.of(at), str(rows.model[at]))
        told.append(
            Prompt(
                request_id=str(rows.request_id[at]),
                parts=parts,
                session=session,
                user=user,
                time=int(rows.sent[at]) / 1e6,
                server=str(rows.server[at]),
                model=str(rows.model[at]),
                isolation=f"{int(rows.isolation[at]):016x}" if rows.isolation[at] else "",
                reads_off=str(rows.reads_off[at]),
                prompt_tokens=_known(rows.prompt_tokens[at]),
                cached_tokens=_known(rows.cached_tokens[at]),
                body=body,
            )
        )
    return told


def _whose(labels: Mapping[str, Any]) -> tuple[str, str]:
    """Session and user by the names under which logs have them."""
    told = about(labels, labels, {}, "")
    return told["session"], told["user"]


def _known(count: Any) -> int | None:
    return int(count) if count >= 0 else None


class _Made:
    """Requests of segments. What many have (a message at its place) is made once: prompts of a conversation hold those
    before them."""

    def __init__(self, texts: Mapping[int, tuple[str, str]]) -> None:
        self._texts = texts
        self._parts: dict[tuple[int, int], Part] = {}
        self._messages: dict[int, dict[str, str]] = {}
        self._tools: dict[int, tuple[Any, tuple[Part, ...]]] = {}

    def request(self, segments: Sequence[int], model: str) -> tuple[tuple[Part, ...], dict[str, Any]]:
        """Parts in the order in which they are rendered, as `cachemodel.prompts` has them, and the body."""
        ahead: list[Part] = []
        behind: list[Part] = []
        messages: list[dict[str, str]] = []
        body: dict[str, Any] = {"model": model}
        for segment in segments:
            role, text = self._texts[segment]
            if role == _TOOLS:
                body["tools"], own = self._definitions(segment, text)
                ahead += own
            elif role == _TEXT:
                body["prompt"] = text
                behind.append(Part("prompt", "prompt", Kind.TEXT, text))
            else:
                behind.append(self._part(segment, len(messages)))
                messages.append(self._messages.setdefault(segment, {"role": role, "content": text}))
        if messages:
            body["messages"] = messages
        return (*ahead, *behind), body

    def _part(self, segment: int, place: int) -> Part:
        if (segment, place) not in self._parts:
            role, text = self._texts[segment]
            kind = Kind.RESULT if role in _RESULT_ROLES else Kind.TEXT
            self._parts[segment, place] = Part(f"messages[{place}].content", role, kind, text, place)
        return self._parts[segment, place]

    def _definitions(self, segment: int, text: str) -> tuple[Any, tuple[Part, ...]]:
        """The tools and their parts; a text as a whole that redaction left no JSON."""
        if segment not in self._tools:
            try:
                tools = json.loads(text)
            except ValueError:
                tools = text
            out = Parts()
            preamble(out, {"tools": tools})
            self._tools[segment] = tools, tuple(out.parts)
        return self._tools[segment]


def _left_out(rows: Rows, prompts: Sequence[Prompt]) -> Iterator[str]:
    if older := rows.requests - rows.asked.count:
        yield f"{older:,} older requests were not looked at: the newest {rows.asked.count:,} were"
    if not prompts:
        yield CAPTURE
        return
    if without := rows.asked.count - rows.captured:
        yield f"{without:,} requests: no text of their prompts is in the store"
    if rows.torn:
        yield f"{rows.torn:,} requests: a text of theirs is no longer in the store"
    if more := rows.captured - rows.n - rows.torn:
        yield f"{more:,} older requests with texts were not read: the newest {rows.n:,} were"
    if redacted := int((~rows.full).sum()):
        yield REDACTED if redacted == rows.n else f"of {redacted:,} of {rows.n:,} prompts {REDACTED}"
        yield from hidden(rows)
    if not any(prompt.session or prompt.user for prompt in prompts):
        yield NO_SESSIONS
    if unread := sum(isinstance((prompt.body or {}).get("tools"), str) for prompt in prompts):
        yield f"{unread:,} requests: their tool definitions are no JSON once redacted, and are taken as a text"
    if len(set(rows.server.tolist())) > 1:
        yield "the prompts of several servers are replayed as if one cache had all: choose one with server=NAME"
