"""How servers keep and find prefixes: one rule for each kind of cache, with the defaults that their documents state."""

from __future__ import annotations

from dataclasses import dataclass

from cachemodel.alignment import Alignment
from cachemodel.errors import UserError


@dataclass(frozen=True, kw_only=True)
class BlockRule:
    """Hashed blocks of a fixed size in one pool, as vLLM keeps them.

    capacity: blocks of the pool, None for no limit; vLLM keeps one for itself (`num_gpu_blocks` less 1). Blocks of
    requests that run stay; of the rest those go first that were let go first, the end of a sequence before its
    beginning, and with unknown_first those before all that are not known by any content. alignment: by default one
    block, none dropped, one token computed. chunk: prompt tokens computed in one step (`max_num_batched_tokens`), None
    for all. max_num_seqs: requests that run at once, None for all. planned: blocks can be found as soon as a step is
    planned, also by requests that are planned behind it in the same step; otherwise when they are computed. copies: a
    block that is computed although another has its content stays beside it; otherwise the other one is used.

    The queue is that of vllm/v1/core/block_pool.py; that blocks are known when they are planned, and the rest, is
    confirmed on a recording of vLLM 0.32. Blocks of 16 are its default. `ENGINE` is this project's own engine.
    """

    block_size: int = 16
    alignment: Alignment | None = None
    capacity: int | None = None
    chunk: int | None = None
    max_num_seqs: int | None = None
    planned: bool = True
    copies: bool = True
    unknown_first: bool = False

    def __post_init__(self) -> None:
        _positive(
            block_size=self.block_size,
            capacity=self.capacity,
            chunk=self.chunk,
            max_num_seqs=self.max_num_seqs,
        )
        if self.law.unit % self.block_size:
            raise UserError(
                f"a unit of {self.law.unit} tokens is no multiple of blocks of {self.block_size}: give whole blocks"
            )

    @property
    def law(self) -> Alignment:
        """The alignment in force."""
        return self.alignment or Alignment(self.block_size)


@dataclass(frozen=True, kw_only=True)
class RadixRule:
    """A radix tree over pages of tokens, as SGLang keeps it.

    page_size: 1 by default. capacity: tokens of the pool (`max_total_num_tokens`), None for no limit. chunk: prompt
    tokens computed in one step (`chunked_prefill_size`), max_running_requests: at once, None for all. A prompt is
    found when its chunk is computed, an answer when it is done; at least one token is computed. Whole leaves are
    evicted, the one let go longest ago first.

    As python/sglang/srt/mem_cache/radix_cache.py has it (`match_prefix`, `cache_unfinished_req`, `cache_finished_req`,
    `evict`); no recording of it is at hand. Its hierarchical cache, eviction policies other than LRU and the room that
    its scheduler keeps for answers are left out.
    """

    page_size: int = 1
    capacity: int | None = None
    chunk: int | None = None
    max_running_requests: int | None = None

    def __post_init__(self) -> None:
        _positive(
            page_size=self.page_size,
            capacity=self.capacity,
            chunk=self.chunk,
            max_running_requests=self.max_running_requests,
        )


@dataclass(frozen=True, kw_only=True)
class SlotRule:
    """Slots that keep the last sequence they worked on, as llama.cpp's server has them.

    slots: `--parallel`. similarity: `--slot-prompt-similarity`; a prompt gets the idle slot that has most of it where
    that is more than this share of the prompt, else the one released longest ago. cache_reuse: `--cache-reuse`, the
    shortest chunk that is shifted, 0 for none. host_tokens: what the prompt cache in host memory has room for
    (`--cache-ram` by the bytes of a token), None for no limit, 0 for none. saves_idle: idle slots are put aside there
    whenever a request begins. At least one token is computed.

    The options and their defaults are in the README of llama.cpp's server (tools/server); how slots are chosen and
    prompts put aside is in the log of b11434, on recordings of which it is confirmed. Checkpoints of sliding-window and
    recurrent models are left out.
    """

    slots: int = 4
    similarity: float = 0.1
    cache_reuse: int = 0
    host_tokens: int | None = None
    saves_idle: bool = True

    def __post_init__(self) -> None:
        _positive(slots=self.slots)
        if not 0 <= self.similarity <= 1:
            raise UserError(f"similarity is {self.similarity}: give a share between 0 and 1")
        if self.cache_reuse < 0 or (self.host_tokens or 0) < 0:
            raise UserError("cache_reuse and host_tokens are numbers of tokens: give 0 to switch them off")


@dataclass(frozen=True, kw_only=True)
class ProviderRule:
    """The prompt cache of a hosted API. Its size is not known; nothing is evicted before its lifetime is over.

    minimum: tokens of the shortest entry. granularity: tokens between two entries that are written automatically.
    explicit: entries only where the sender sets a breakpoint, of which the first `breakpoints` count; each is looked up
    together with the ends of the `look_back` content blocks before it. lifetime: seconds, None for no end; refreshed:
    it begins again with each use. An entry is there from the first token of the request that wrote it.

    The defaults are OpenAI's: prompts of 1,024 tokens or more, hits in steps of 128, five to ten minutes without use
    (platform.openai.com, "Prompt caching"). `ANTHROPIC` has Anthropic's: up to four breakpoints, 20 blocks looked at
    before each, five minutes that each use refreshes, 1,024 tokens (docs.anthropic.com, "Prompt caching"; by model up
    to 4,096). No recording of either is at hand.
    """

    minimum: int = 1024
    granularity: int = 128
    explicit: bool = False
    breakpoints: int = 4
    look_back: int = 20
    lifetime: float | None = 300.0
    refreshed: bool = True

    def __post_init__(self) -> None:
        _positive(granularity=self.granularity, breakpoints=self.breakpoints, lifetime=self.lifetime)
        if self.minimum < 0 or self.look_back < 0:
            raise UserError("minimum and look_back are counts: give 0 for none")


def _positive(**numbers: float | None) -> None:
    for name, number in numbers.items():
        if number is not None and not number > 0:
            raise UserError(
                f"{name} is {number}: give a number above 0, or None where there is no such limit"
            )


ENGINE = BlockRule(planned=False, copies=False, unknown_first=True)

ANTHROPIC = ProviderRule(explicit=True)

Rule = BlockRule | RadixRule | SlotRule | ProviderRule


def unlimited(rule: Rule) -> bool:
    """Whether it keeps whatever it was sent, for as long as it lives: room for all is an upper bound of hits."""
    if isinstance(rule, SlotRule):
        return rule.host_tokens is None
    return isinstance(rule, ProviderRule) or rule.capacity is None
