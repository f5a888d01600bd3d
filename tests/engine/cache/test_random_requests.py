"""Random requests, storms, resizes, clears and a failing disk against a plain account of what was computed.

After every step: the books balance, every block a request may read holds that request's text, what the events told is
what can be found, and what is found was computed before.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from cachemodel.blocks import attainable_tokens, chain, vllm_root
from engine.cache.block import Match, Table
from tests.engine.cache.model import compute, index_of, make_cache, replay, verify

SIZE = 2
STREAMS = ([0, 1] * 7, [0, 1, 1, 0, 1, 0, 0] * 2, [1] * 14)
# A beginning that others have as well, and an end of its own.
TEXTS = st.builds(
    lambda stream, length, end: [*stream[:length], *end],
    st.sampled_from(STREAMS),
    st.integers(1, 14),
    st.lists(st.integers(0, 1), max_size=3),
)
SALTS = st.sampled_from(["", "", "", "salt"])
PICK = st.integers(0, 99)
SELDOM = st.integers(0, 5).map(lambda n: n == 0)


@dataclass
class Running:
    """A request as its scheduler sees it."""

    tokens: list[int]
    salt: str
    table: Table | None = None
    match: Match | None = None


@dataclass
class Account:
    """Texts whose KV was committed since the last clear, by salt, and the index as the events tell it."""

    committed: set[tuple[str, tuple[int, ...]]] = field(default_factory=set)
    told: dict[str, set[int]] = field(default_factory=lambda: {"GPU": set(), "CPU": set(), "DISK": set()})


class RandomRequests(RuleBasedStateMachine):
    @initialize(device=st.integers(4, 14), host=st.sampled_from([0, 3, 6]), disk=st.sampled_from([0, 3, 6]))
    def start(self, device: int, host: int, disk: int) -> None:
        self.cache = make_cache(block_size=SIZE, device_blocks=device, host_blocks=host, disk_blocks=disk)
        self.running: list[Running] = []
        self.account = Account()

    def teardown(self) -> None:
        if hasattr(self, "cache"):
            for request in self.running:
                self._end(request)
            self.cache.resize(99)
            self.cache.check()
            assert all(tier.used == 0 for tier in self.cache.stats().tiers.values())
            self.cache.close()

    @rule(tokens=TEXTS, salt=SALTS, cut=SELDOM)
    def serve(self, tokens: list[int], salt: str, cut: bool) -> None:
        """A request from its beginning to its end, unless there is no room; cut: the caller does not wait for it."""
        self.look_up(tokens, salt)
        request = self.running[-1]
        self.open(-1)
        while request.table is not None and request.table.loading and not cut:
            self.cache.load(request.table, 2)
            self._settle()
            verify(self.cache, request.table, request.tokens, salt)
        if request.table is not None and not cut:
            self._compute(request, request.tokens)
        self.end(-1)

    @rule(tokens=TEXTS, salt=SALTS)
    def look_up(self, tokens: list[int], salt: str) -> None:
        match = self.cache.match(tokens, salt)
        law = list(chain(tokens, SIZE, vllm_root("0"), salt=salt or None))
        assert match.block_hashes == [block.hash64 for block in law]
        found = match.tokens.device + match.tokens.host + match.tokens.remote
        assert found <= attainable_tokens(len(tokens), SIZE)
        known = set().union(*self.account.told.values())
        attainable = law[: attainable_tokens(len(tokens), SIZE) // SIZE]
        assert found == SIZE * next(
            (n for n, block in enumerate(attainable) if block.hash64 not in known), len(attainable)
        )
        if found:
            assert (salt, tuple(tokens[:found])) in self.account.committed
        self.running.append(Running(list(tokens), salt, match=match))

    @precondition(lambda self: self.running)
    @rule(pick=PICK)
    def open(self, pick: int) -> None:
        request = self._pick(pick)
        if request.match is None:
            return
        before = self.cache.stats()
        request.table = self.cache.open(request.match, len(request.tokens))
        if request.table is None:
            assert self.cache.stats() == before
        else:
            request.match = None

    @precondition(lambda self: self.running)
    @rule(pick=PICK, blocks=st.integers(0, 4), wait=st.booleans())
    def load(self, pick: int, blocks: int, wait: bool) -> None:
        table = self._pick(pick).table
        if table is not None:
            if wait:
                self.cache.load(table, 0)
                self._settle()
            ready, lost = table.ready, table.lost
            assert self.cache.load(table, blocks).total <= blocks
            assert table.ready >= ready
            assert table.lost >= lost

    @precondition(lambda self: self.running)
    @rule(pick=PICK, tokens=st.integers(1, 8))
    def prefill(self, pick: int, tokens: int) -> None:
        request = self._pick(pick)
        if request.table is not None and request.table.loading is None:
            self._compute(request, request.tokens[: request.table.ready + tokens])

    @precondition(lambda self: self.running)
    @rule(pick=PICK, token=st.integers(0, 1))
    def decode(self, pick: int, token: int) -> None:
        request = self._pick(pick)
        table = request.table
        if table is None or table.ready < len(request.tokens):
            return
        if self.cache.extend(table, len(request.tokens) + 1):
            request.tokens.append(token)
            self._compute(request, request.tokens)
        else:  # preempted
            self.cache.release(table)
            request.table, request.match = None, self.cache.match(request.tokens, request.salt)

    @precondition(lambda self: self.running)
    @rule(pick=PICK)
    def end(self, pick: int) -> None:
        request = self._pick(pick)
        self.running.remove(request)
        self._end(request)

    @rule(share=st.sampled_from([0.1, 0.5, 1.0]))
    def storm(self, share: float) -> None:
        self.cache.evict(share)

    @rule(blocks=st.sampled_from([0, 3, 6, 10, 14, 14, 14]))
    def resize(self, blocks: int) -> None:
        self.cache.resize(blocks)

    @rule(really=SELDOM)
    def clear(self, really: bool) -> None:
        if really:
            self.cache.clear()
            self.account.committed.clear()

    @rule(slot=st.integers(0, 5))
    def spoil_the_disk(self, slot: int) -> None:
        disk = self.cache.tiers.disk
        if disk is not None and not disk.off:
            disk.settle()
            os.pwrite(disk.fileno(), b"spoilt", slot * disk.block_bytes)

    @invariant()
    def everything_is_right(self) -> None:
        if not hasattr(self, "cache"):
            return
        self._settle()
        self.cache.check()
        for request in self.running:
            if request.table is not None:
                verify(self.cache, request.table, request.tokens, request.salt)
        replay(self.cache.drain_events(), self.account.told)
        assert self.account.told == index_of(self.cache)

    def _settle(self) -> None:
        """What comes from the disk, and when, must not depend on the machine."""
        if self.cache.tiers.disk:
            self.cache.tiers.disk.settle()

    def _pick(self, pick: int) -> Running:
        return self.running[pick if pick < 0 else pick % len(self.running)]

    def _compute(self, request: Running, tokens: list[int]) -> None:
        assert request.table is not None
        compute(self.cache, request.table, tokens, request.salt)
        self.account.committed |= {
            (request.salt, tuple(tokens[:n])) for n in range(SIZE, len(tokens) + 1, SIZE)
        }

    def _end(self, request: Running) -> None:
        if request.table is not None:
            self.cache.release(request.table)
        if request.match is not None:
            self.cache.drop(request.match)


TestRandomRequests = RandomRequests.TestCase
TestRandomRequests.settings = settings(max_examples=30, stateful_step_count=200, deadline=None)
