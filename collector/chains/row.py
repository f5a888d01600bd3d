"""A prompt's tokens as a row of `request_chains`: keyed hashes, no text and no token ids."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from cachemodel.content import NO_ISOLATION, ContentHasher
from collector.chains import pieces
from collector.chains.memory import ChainMemory, Split
from collector.chains.prompt import Prompt
from collector.chains.template import template
from collector.sink import Entry


@dataclass(frozen=True, slots=True)
class ChainMaker:
    """Makes rows of one server. block_size: tokens. memory: of what came before, on other servers as well."""

    hasher: ContentHasher
    memory: ChainMemory
    block_size: int

    def entry(self, prompt: Prompt, ids: Sequence[int], told_by: str, adapter: str) -> Entry:
        """The row; the prompt is remembered with it. adapter: name of the one that was used, empty for none."""
        blocks, split = self.seen(ids)
        cuts = [0, *pieces.ends(ids)]
        first = bisect_right(cuts, split.depth * self.block_size + split.tokens) - 1
        spans = list(zip(cuts[first:], cuts[first + 1 :], strict=False))
        row = {
            "time": prompt.time,
            "server": prompt.server,
            "model": prompt.model,
            "request_id": prompt.request_id,
            "told_by": told_by,
            "prompt_tokens": len(ids),
            "block_size": self.block_size,
            "isolation": self.hasher.isolation(NO_ISOLATION, [prompt.salt, adapter]),
            "template": template(prompt, self.hasher),
            "reads_off": prompt.reads_off,
            "blocks": blocks,
            "split_depth": split.depth,
            "split_tokens": split.tokens,
            "pieces_from": cuts[first],
            "pieces": [self.hasher.piece(ids[begin:end]) for begin, end in spans],
            "piece_tokens": [end - begin for begin, end in spans],
        }
        return Entry("chains", msgspec.json.encode(row) + b"\n", 1)

    def seen(self, ids: Sequence[int]) -> tuple[list[int], Split]:
        """The contents of a prompt's blocks, and where it parts from those before; it is remembered."""
        blocks = list(self.hasher.chain(ids, self.block_size))
        return blocks, self.memory.take(blocks, ids, self.block_size)
