"""The recorded vLLM servers as the ladder takes them: prompts tokenised, spans and KV events read as they came."""

from __future__ import annotations

import base64
import json
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import tokenizers
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from analysis.misses.model import NOT_TOLD, Action, Chains, Events
from cachemodel.content import ContentHasher
from cachemodel.kv_events import AllBlocksCleared, BlockRemoved, BlockStored
from cachemodel.kv_events.zmq_batch import decode_batch
from collector.chains.memory import ChainMemory
from collector.chains.pieces import ends

BLOCK = 32
HASHER = ContentHasher(b"recorded servers, read again")
_US = 1_000_000


@dataclass(frozen=True)
class Recorded:
    """names, phases: (n,) of the requests, in order of arrival; usage: tokens cached, NOT_TOLD without. chains: hold
    the usage; `untold` is the same without it."""

    names: list[str]
    phases: list[str]
    usage: np.ndarray  # type: ignore[type-arg]
    chains: Chains
    untold: Chains
    events: Events


@dataclass
class _Asked:
    name: str
    phase: str
    ids: list[int]
    salt: str
    cached: int
    arrived: int
    began: int
    first: int


def recorded(run: Path) -> Recorded:
    """Read a recording. began: as its spans tell, arrival plus all of the TTFT but prefill."""
    asked = sorted(_asked(run), key=lambda one: one.arrived)
    memory, n = ChainMemory(), len(asked)
    blocks = [list(HASHER.chain(one.ids, BLOCK)) for one in asked]
    splits = [memory.take(chain, one.ids, BLOCK) for chain, one in zip(blocks, asked, strict=True)]
    cuts = [[0, *ends(one.ids)] for one in asked]
    firsts = [
        bisect_right(cut, split.depth * BLOCK + split.tokens) - 1
        for cut, split in zip(cuts, splits, strict=True)
    ]
    spans = [
        [*zip(cut[first:], cut[first + 1 :], strict=False)] for cut, first in zip(cuts, firsts, strict=True)
    ]

    def column(values: list[int]) -> np.ndarray:  # type: ignore[type-arg]
        return np.array(values, np.int64)

    def build(cached: list[int]) -> Chains:
        return Chains(
            servers=("tiny",),
            server=np.zeros(n, np.int64),
            holder=np.zeros(n, np.int64),
            arrived=column([one.arrived for one in asked]),
            began=column([one.began for one in asked]),
            first_token=column([one.first for one in asked]),
            isolation=np.array([_isolation(0, one.salt) for one in asked], np.uint64),
            prompt=column([len(one.ids) for one in asked]),
            cached=column(cached),
            recomputed=np.full(n, NOT_TOLD),
            block_size=np.full(n, BLOCK),
            reads_off=np.zeros(n, np.bool_),
            known=np.ones(n, np.bool_),
            offsets=np.cumsum([0, *map(len, blocks)]),
            blocks=np.array([content for chain in blocks for content in chain], np.uint64),
            split_depth=column([split.depth for split in splits]),
            split_tokens=column([split.tokens for split in splits]),
            pieces_from=column([cut[first] for cut, first in zip(cuts, firsts, strict=True)]),
            piece_offsets=np.cumsum([0, *map(len, spans)]),
            pieces=np.array(
                [HASHER.piece(one.ids[a:b]) for one, span in zip(asked, spans, strict=True) for a, b in span],
                np.uint64,
            ),
            piece_tokens=column([b - a for span in spans for a, b in span]),
        )

    usage = [one.cached for one in asked]
    return Recorded(
        names=[one.name for one in asked],
        phases=[one.phase for one in asked],
        usage=column(usage),
        chains=build(usage),
        untold=build([NOT_TOLD] * n),
        events=_events(run),
    )


def _asked(run: Path) -> Iterator[_Asked]:
    model = run.parent / "model"
    tokenizer = tokenizers.Tokenizer.from_file(str(model / "tokenizer.json"))
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, autoescape=False)
    template = environment.from_string((model / "chat_template.jinja").read_text())
    spans = dict(_spans(run))
    for line in (run / "requests.jsonl").read_text().splitlines():
        record = json.loads(line)
        text = template.render(messages=record["body"]["messages"], add_generation_prompt=True)
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        usage = record.get("usage")
        assert not usage or usage["prompt_tokens"] == len(ids)
        cached = usage["prompt_tokens_details"]["cached_tokens"] if usage else NOT_TOLD
        request = record.get("response_id") or "chatcmpl-" + record["client_request_id"]
        start, latency = spans[request]
        ttft, prefill = latency["time_to_first_token"], latency["time_in_model_prefill"]
        yield _Asked(
            name=record["client_request_id"],
            phase=record["phase"],
            ids=ids,
            salt=record["body"].get("cache_salt", ""),
            cached=cached,
            arrived=start,
            began=start + round((ttft - prefill) * _US),
            first=start + round(ttft * _US),
        )


def _spans(run: Path) -> Iterator[tuple[str, tuple[int, dict[str, float]]]]:
    for body in sorted((run / "otlp").glob("*.bin")):
        exported = ExportTraceServiceRequest.FromString(body.read_bytes())
        for span in (s for r in exported.resource_spans for scope in r.scope_spans for s in scope.spans):
            told = {one.key: one.value for one in span.attributes}
            if "gen_ai.request.id" in told:
                latency = {
                    key.removeprefix("gen_ai.latency."): value.double_value
                    for key, value in told.items()
                    if key.startswith("gen_ai.latency.")
                }
                yield told["gen_ai.request.id"].string_value, (span.start_time_unix_nano // 1000, latency)


def _events(run: Path) -> Events:
    rows: list[tuple[int, int, int, int]] = []
    known: dict[int, tuple[int, int]] = {}
    for line in (run / "kv_events.jsonl").read_text().splitlines():
        batch = decode_batch(base64.b64decode(json.loads(line)["frames_b64"][2]))
        time = round(batch.ts * _US)
        for event in batch.events:
            if isinstance(event, BlockStored):
                rows += [(time, Action.STORED, *block) for block in _stored(event, known)]
            elif isinstance(event, BlockRemoved):
                rows += [(time, Action.REMOVED, *known[block]) for block in event.block_hashes]
            elif isinstance(event, AllBlocksCleared):
                rows.append((time, Action.CLEARED, 0, 0))
    columns: list[Any] = [list(column) for column in zip(*rows, strict=True)]
    return Events(
        holders=(("tiny", 0),),
        time=np.array(columns[0], np.int64),
        holder=np.zeros(len(rows), np.int64),
        tier=np.zeros(len(rows), np.int64),
        action=np.array(columns[1], np.int64),
        content=np.array(columns[2], np.uint64),
        isolation=np.array(columns[3], np.uint64),
        joined=np.zeros(1, np.int64),
    )


def _stored(event: BlockStored, known: dict[int, tuple[int, int]]) -> Iterator[tuple[int, int]]:
    content, isolation = known[event.parent_block_hash] if event.parent_block_hash is not None else (0, 0)
    size = event.block_size or BLOCK
    for at, block in enumerate(event.block_hashes):
        keys = (event.extra_keys or [None] * len(event.block_hashes))[at]
        content = HASHER.block(content, event.token_ids[at * size : (at + 1) * size])
        isolation = HASHER.isolation(isolation, map(str, keys or ()))
        known[block] = (content, isolation)
        yield content, isolation


def _isolation(before: int, salt: str) -> int:
    return HASHER.isolation(before, [salt])
