"""Prompts from KV events: what servers tell of the blocks that they stored, put together to the prompts they are of.

A block's hash names all that stands before it, so that a hash, once told, keeps its place in its chain through removal,
clearing and restart. What one prompt added to its chain is a *run*:

* blocks without a parent, or below a block that has others below it, begin a run: another prompt, whose beginning is
  that of the parent's chain;
* blocks below the last block of a run extend it: the next chunk of a long prefill, the reply, or the next turn;
* a run ends when its last block leaves the device or the cache is cleared. What is stored again afterwards was computed
  again: a prompt of its own;
* blocks whose parent was never told are orphans. They are placed if the parent is told later, and counted otherwise:
  where in their prompt they stand is not known.

A cache salt and an adapter are the prompt's `isolation`. An image's key comes with the block that the image begins in:
a stand-in takes the place of that block's first token, so that the same text behind another image is not the same.

What events cannot tell: a prompt that was cached as a whole leaves none. The last tokens of a prompt, fewer than a
block, are never stored. One that only goes on where another ended is told with it as one. A reply looks like prompt.
A request that was preempted and computed again looks like two. Sessions, users and counts of tokens are not there.

Sources: vllm/v1/core/block_pool.py and vllm/v1/core/kv_cache_utils.py (extra keys: the adapter's name on each block,
(identifier, offset) of images on theirs, the salt on the first), the recording in tests/data/vllm-0.32.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cachemodel.kv_events import AllBlocksCleared, BlockRemoved, BlockStored, KVEventBatch, UnknownEvent
from cachemodel.kv_events.media import tier_of
from cachemodel.layers import Tier
from cachemodel.prompts.kv_keys import adapter, ids_of, keys_of_chain, mark_images
from cachemodel.prompts.model import Kind, Part, Prompt

MOST_TOKENS = (
    16 << 20
)  # of all prompts together, the last ones: chains share their beginnings, prompts do not
MAX_ISOLATION = 4096  # characters

NO_TOKENS = "told without their tokens"
NOT_FILLED = "their tokens do not fill them"
NO_IDS = "their tokens are no ids"
OTHER_TIER = "copies in another tier"
OTHER_GROUP = "of another group of layers, which tells the same prompts again"
COLLISION = "hash told before of other tokens"
ORPHAN = "hang on blocks that were stored before the recording began, so their place is unknown"
TOO_MANY = f"of prompts before the last {MOST_TOKENS:,} tokens"
UNKNOWN_EVENT = "at least, in events of a type that is not known"

_ENDS = 40  # bits of a place that say how many tokens of the run end there


@dataclass(slots=True)
class _Run:
    """What one prompt added. parent: the number of the run that it hangs on, kept: tokens of that one before it; parent
    is None at the beginning of a chain, and where `lost` is the hash of a block that nothing was told of. size: tokens
    of a block. keys: that isolate it and all behind it."""

    name: str
    time: float | None
    size: int
    parent: int | None = None
    kept: int = 0
    lost: int | None = None
    tokens: array[int] = field(default_factory=lambda: array("I"))
    keys: tuple[str, ...] = ()
    blocks: int = 0


class Chains:
    """Takes batches in the order in which each server sent them; `prompts` are those told by all.

    left_out: blocks that told nothing, by reason; first: the name of the batch in which each reason came up first.
    block_sizes: how many blocks had so many tokens.
    """

    def __init__(self, server: str = "") -> None:
        self.left_out: Counter[str] = Counter()
        self.first: dict[str, str] = {}
        self.block_sizes: Counter[int] = Counter()
        self._server = server
        self._runs: list[_Run] = []
        # Hash of a block: number of its run << _ENDS | tokens of the run up to its end.
        self._at: dict[int, int] = {}
        # By rank: hash of the last block of each run that may still be extended, and the run's number.
        self._tips: dict[object, dict[int, int]] = defaultdict(dict)
        self._group: dict[object, int | None] = {}

    def add(self, batch: KVEventBatch, name: str, source: object = "") -> None:
        """name: of the message, by which its prompts go. source: who tells it, beside the rank."""
        rank = (source, batch.rank)
        time = batch.ts if math.isfinite(batch.ts) and 0 < batch.ts < 1e11 else None
        named = 0
        for event in batch.events:
            if isinstance(event, BlockStored):
                own = name if not named else f"{name}#{named + 1}"
                named += self._stored(event, own, time, rank)
            elif isinstance(event, BlockRemoved):
                if _on_device(event.medium):
                    for one in event.block_hashes:
                        self._tips[rank].pop(one, None)
            elif isinstance(event, AllBlocksCleared):
                self._tips.pop(rank, None)
            elif isinstance(event, UnknownEvent):
                self._leave_out(UNKNOWN_EVENT, 1, name)

    def prompts(self) -> list[Prompt]:
        """In order of time, each with its tokens as its one part. To be asked once, at the end: it counts what is left
        out."""
        self._find_parents()
        told: list[Prompt] = []
        held, placed, numbers = 0, self._placed(), dict[int, int]()
        for number in range(len(self._runs) - 1, -1, -1):
            run = self._runs[number]
            if not placed[number]:
                self._leave_out(ORPHAN, run.blocks, run.name)
            elif held >= MOST_TOKENS:
                self._leave_out(TOO_MANY, run.blocks, run.name)
            else:
                ids = [numbers.setdefault(one, one) for tokens in self._chain(number) for one in tokens]
                told.append(self._prompt(run, ids))
                held += len(ids)
        told.reverse()
        return sorted(told, key=lambda one: one.time or 0.0)

    # -- what events tell

    def _stored(self, event: BlockStored, name: str, time: float | None, rank: object) -> bool:
        """Whether a run began."""
        if not event.block_hashes:
            return False
        tokens = self._tokens(event, rank)
        if isinstance(tokens, str):
            self._leave_out(tokens, len(event.block_hashes), name)
            return False
        size = len(tokens) // len(event.block_hashes)
        number = self._open(event.parent_block_hash, size, rank)
        begins = number is None
        if number is None:
            number = self._begin(event, size, name, time)
        run = self._runs[number]
        mark_images(
            tokens, size, event.extra_keys, run.keys, at_root=begins and event.parent_block_hash is None
        )
        self._check(event.block_hashes, tokens, size, name)
        ends = range(len(run.tokens) + size, len(run.tokens) + len(tokens) + 1, size)
        self._at.update(zip(event.block_hashes, (number << _ENDS | end for end in ends), strict=True))
        run.tokens.frombytes(tokens.tobytes())
        run.blocks += len(event.block_hashes)
        self.block_sizes[size] += len(event.block_hashes)
        self._tips[rank][event.block_hashes[-1]] = number
        return begins

    def _tokens(self, event: BlockStored, rank: object) -> NDArray[np.uint32] | str:
        """The ids of an event's blocks, or why they tell nothing of a prompt."""
        if not _on_device(event.medium):
            return OTHER_TIER
        if not event.token_ids:
            return NO_TOKENS
        if self._group.setdefault(rank, event.group_idx) != event.group_idx:
            return OTHER_GROUP
        tokens = ids_of(event.token_ids)
        if tokens is None:
            return NO_IDS
        size, more = divmod(len(tokens), len(event.block_hashes))
        return NOT_FILLED if more or event.block_size not in (None, size) else tokens

    def _open(self, parent: int | None, size: int, rank: object) -> int | None:
        """The run that blocks below `parent` extend, which is then no longer its last block."""
        if parent is None or (number := self._tips[rank].get(parent)) is None:
            return None
        if self._runs[number].size != size:
            return None
        del self._tips[rank][parent]
        return number

    def _begin(self, event: BlockStored, size: int, name: str, time: float | None) -> int:
        run = _Run(name, time, size)
        parent = event.parent_block_hash
        if parent is None:
            run.keys = keys_of_chain(event)
        elif (place := self._at.get(parent)) is None:
            run.lost, run.keys = parent, adapter(event)
        else:
            run.parent, run.kept = place >> _ENDS, place & ((1 << _ENDS) - 1)
            run.keys = self._runs[run.parent].keys
        self._runs.append(run)
        return len(self._runs) - 1

    def _check(self, hashes: Sequence[int], tokens: NDArray[np.uint32], size: int, name: str) -> None:
        """Count blocks whose hash was told of other tokens: what is told last holds for what follows."""
        for at, one in enumerate(hashes):
            if (place := self._at.get(one)) is None:
                continue
            known, end = self._runs[place >> _ENDS], place & ((1 << _ENDS) - 1)
            own = tokens[at * size : (at + 1) * size].tobytes()
            if known.tokens[max(0, end - known.size) : end].tobytes() != own:
                self._leave_out(COLLISION, 1, name)

    def _leave_out(self, why: str, count: int, name: str) -> None:
        self.left_out[why] += count
        self.first.setdefault(why, name)

    # -- what they come to

    def _find_parents(self) -> None:
        """Hang orphans on blocks that were told after them."""
        for run in self._runs:
            if run.lost is not None and (place := self._at.get(run.lost)) is not None:
                run.parent, run.kept = place >> _ENDS, place & ((1 << _ENDS) - 1)
                run.keys, run.lost = (*self._runs[run.parent].keys, *run.keys), None

    def _placed(self) -> list[bool]:
        """Of each run, whether its chain is known from the first block on. One that hangs on itself is not."""
        placed: list[bool | None] = [None] * len(self._runs)
        for number in range(len(self._runs)):
            path: list[int] = []
            at: int | None = number
            while at is not None and placed[at] is None:
                placed[at] = False  # unless it is shown; one that is met again hangs on itself
                path.append(at)
                at = self._runs[at].parent
            known = bool(placed[at]) if at is not None else not path or self._runs[path[-1]].lost is None
            for one in path:  # none where it is placed already
                placed[one] = known
        return [bool(one) for one in placed]

    def _chain(self, number: int) -> list[array[int]]:
        """The tokens of a run and of those before it, from the first on."""
        told: list[array[int]] = []
        at: int | None = number
        upto = len(self._runs[number].tokens)
        while at is not None:
            run = self._runs[at]
            told.append(run.tokens[:upto] if upto < len(run.tokens) else run.tokens)
            at, upto = run.parent, run.kept
        return told[::-1]

    def _prompt(self, run: _Run, ids: list[int]) -> Prompt:
        part = Part("prompt", "prompt", Kind.TOKENS, " ".join(map(str, ids)), -1, tuple(ids))
        return Prompt(
            request_id=run.name,
            parts=(part,),
            time=run.time,
            server=self._server,
            isolation=", ".join(dict.fromkeys(run.keys))[:MAX_ISOLATION],
            body={"prompt": ids},
        )


def _on_device(medium: str | None) -> bool:
    return tier_of(medium) in (None, Tier.DEVICE)
