"""Recorded request logs as a replay takes them: prompts tokenised as the server did, and what it says it served."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Regex, Tokenizer
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split

from analysis.prefix_replay.model import Ragged, Requests, Served
from collector.chains.local import read_tokenizer
from collector.chains.prompt import Prompt

_LLAMA_CPP = (
    r"[\p{P}\$\+<=>\^~\|]+",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
    r"\p{N}+",
    "[0-9][0-9][0-9]",
)


@dataclass(frozen=True)
class Captured:
    """usage: (n,) tokens served as the response tells, -1 without. alone: (n,) whether no other request was under way
    from when it was sent until it was done."""

    requests: Requests
    names: list[str]
    phases: list[str]
    usage: np.ndarray
    alone: np.ndarray

    def off(self, served: Served) -> dict[int, tuple[str, int, int]]:
        """Row: (phase, tokens of the replay, of usage), of requests where they differ."""
        rows = np.flatnonzero((self.usage >= 0) & (served.served != self.usage))
        return {int(r): (self.phases[r], int(served.served[r]), int(self.usage[r])) for r in rows}

    def tokens(self, served: Served) -> tuple[int, int]:
        """Tokens served, of the replay and of usage, of requests that have usage."""
        told = self.usage >= 0
        return int(served.served[told].sum()), int(self.usage[told].sum())


def captured(log: Path, model: Path, *, exact: bool = True) -> Captured:
    """Read a request log. model: folder of the tokenizer and chat template. exact: see `_reply`."""
    tokenizer = read_tokenizer(model)
    salts: dict[str, int] = {"": 0}
    records = [json.loads(line) for line in log.read_text().splitlines()]
    records.sort(key=lambda record: record["sent_unix_ns"])
    prompts, replies, usage = [], [], []
    for record in records:
        body, told = record["body"], record.get("usage")
        ids = list(tokenizer.tokens(_prompt(record, messages=body["messages"])).ids)
        assert not told or told["prompt_tokens"] == len(ids)
        prompts.append(ids)
        replies.append(_reply(tokenizer, record, exact=exact))
        usage.append((told.get("prompt_tokens_details") or {}).get("cached_tokens", 0) if told else -1)
    sent = _seconds(records, "sent_unix_ns")
    done = _seconds(records, "done_unix_ns")
    until = np.maximum.accumulate(np.append(-np.inf, np.nan_to_num(done, nan=np.inf)))[:-1]
    alone = (sent >= until) & (np.append(sent[1:], np.inf) >= done)
    tokens, offsets = _ragged(prompts)
    return Captured(
        Requests(
            tokens,
            offsets,
            isolation=np.array(
                [salts.setdefault(r["body"].get("cache_salt", ""), len(salts)) for r in records], np.uint64
            ),
            sent=sent,
            first_token=_seconds(records, "first_token_unix_ns"),
            done=done,
            replies=Ragged(*_ragged(replies)),
        ),
        [record["client_request_id"] for record in records],
        [record["phase"] for record in records],
        np.array(usage),
        alone,
    )


def as_llama_cpp(model: Path, folder: Path) -> Path:
    """A copy of a model folder whose tokenizer cuts texts before its merges as llama.cpp does for the pre-tokenizer
    `default` of a GGUF file (src/llama-vocab.cpp): punctuation first, then words, then numbers by three digits."""
    for file in model.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    rules = Tokenizer.from_file(str(model / "tokenizer.json"))
    cuts = [Split(Regex(pattern), "isolated") for pattern in _LLAMA_CPP]
    rules.pre_tokenizer = Sequence([*cuts, ByteLevel(add_prefix_space=False, use_regex=False)])
    rules.save(str(folder / "tokenizer.json"))
    return folder


def _prompt(record: dict[str, Any], **what: Any) -> Prompt:
    return Prompt(
        time=record["sent_unix_ns"] / 1e9,
        seconds=0.0,
        server="",
        model="",
        request_id="",
        counted=None,
        **what,
    )


def _reply(tokenizer: Any, record: dict[str, Any], *, exact: bool) -> list[int]:
    """As many tokens as usage tells: those that the text of the answer comes to, then such as nobody has. A text does
    not say how its tokens were cut; `exact`: so none of them are its own where they are not as many as usage tells."""
    told = record.get("usage")
    count = told["completion_tokens"] if told else 0
    text = record.get("response_text") or ""
    ids = list(tokenizer.tokens(_prompt(record, text=text)).ids) if text else []
    ids = [] if exact and len(ids) != count else ids[:count]
    return [*ids, *range(1_000_000, 1_000_000 + count - len(ids))]


def _ragged(lists: list[list[int]]) -> tuple[Any, Any]:
    return (
        np.array([one for ids in lists for one in ids], np.uint32),
        np.append(0, np.cumsum([len(ids) for ids in lists])).astype(np.int64),
    )


def _seconds(records: list[dict[str, Any]], name: str) -> Any:
    return np.array([record.get(name) or np.nan for record in records], np.float64) / 1e9


def chosen(log: Captured, rows: list[int]) -> Captured:
    """Some requests, in this order: one that was sent before the one ahead of it is taken to be sent with it."""
    requests = log.requests

    def some(ragged: Ragged) -> Ragged:
        lists = [ragged.values[ragged.offsets[row] : ragged.offsets[row + 1]] for row in rows]
        return Ragged(np.concatenate(lists), np.append(0, np.cumsum([len(one) for one in lists])))

    prompts = some(Ragged(requests.tokens, requests.offsets))
    assert requests.sent is not None
    assert requests.replies is not None
    columns = {name: getattr(requests, name)[rows] for name in ("isolation", "first_token", "done")}
    sent = np.maximum.accumulate(requests.sent[rows])
    of_rows = Requests(prompts.values, prompts.offsets, sent=sent, replies=some(requests.replies), **columns)
    return Captured(
        of_rows, [log.names[r] for r in rows], [log.phases[r] for r in rows], log.usage[rows], log.alone[rows]
    )
