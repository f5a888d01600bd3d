"""A server whose every property is known, and time that passes only when somebody says so."""

from __future__ import annotations

import itertools
from collections import OrderedDict, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from cachemodel.alignment import Alignment
from collector.canary import Budget, Finding, Options, Report, run
from collector.canary.wire import Answer

Key = tuple[str, tuple[Any, ...]]
PLENTY = Budget(requests=100_000, tokens=100_000_000, seconds=1e6, rate=1000)


class FakeClock:
    """Time that passes by waiting."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.seconds += seconds


@dataclass
class Cache:
    """Prompts of one replica, the most recently used last, with when that was; and the same by their first token."""

    held: OrderedDict[Key, float] = field(default_factory=OrderedDict)
    begins: dict[Any, set[Key]] = field(default_factory=lambda: defaultdict(set))

    def use(self, key: Key, now: float) -> None:
        self.held[key] = now
        self.held.move_to_end(key)
        self.begins[key[1][0]].add(key)

    def since(self, key: Key) -> int:
        """Tokens of prompts used after it."""
        after = itertools.takewhile(lambda other: other != key, reversed(self.held))
        return sum(len(tokens) for _, tokens in after)


@dataclass
class FakeServer:
    """A Transport.

    law: what it serves of what it holds. ms_per_token, fixed_ms: of a computed prompt; noise_ms: standard deviation.
    tell: "tiers", "cached" or nothing of where tokens came from. tokenizes: whether it takes token ids. added: tokens
    that it puts around a text. salt: "isolates", "ignored" or "refused". device_tokens, host_tokens: what they hold
    before prompts go to the next tier; None: all. load: of a tier, (ms a token, ms). replicas, routing: "random",
    "turn" or "sticky". lifetime_s: of an entry. least: tokens of a prompt below which nothing is reused. busy: statuses
    to answer with before anything else.
    """

    clock: FakeClock = field(default_factory=FakeClock)
    law: Alignment = field(default_factory=lambda: Alignment(16))
    ms_per_token: float = 0.1
    fixed_ms: float = 12.0
    noise_ms: float = 0.0
    tell: str = "tiers"
    tokenizes: bool = True
    chat_only: bool = False
    added: int = 0
    salt: str = "isolates"
    device_tokens: int | None = None
    host_tokens: int | None = None
    remote: bool = False
    load: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    replicas: int = 1
    routing: str = "random"
    lifetime_s: float | None = None
    least: int = 0
    context: int | None = None
    refuses: tuple[str, ...] = ()
    busy: list[Answer] = field(default_factory=list)
    seed: int = 0
    sent: list[tuple[str, Mapping[str, Any], Mapping[str, str]]] = field(default_factory=list)
    sent_at: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.caches = [Cache() for _ in range(self.replicas)]
        self.turn = 0

    @property
    def generated(self) -> list[tuple[Mapping[str, Any], Mapping[str, str]]]:
        return [(body, headers) for path, body, headers in self.sent if "completions" in path]

    def send(
        self,
        path: str,
        body: Mapping[str, Any] | None,
        headers: Mapping[str, str],
        timeout_s: float,
        *,
        fresh: bool = False,
    ) -> Answer:
        self.sent.append((path, dict(body or {}), dict(headers)))
        self.sent_at.append(self.clock.now())
        if path == "/v1/models":
            entry = {"id": "fake", "owned_by": "nobody", "max_model_len": self.context}
            return Answer(200, 0.001, body={"data": [entry]})
        if path == "/tokenize":
            if self.tokenizes:
                return Answer(200, 0.001, body={"tokens": list(range(1000, 1400))})
            return Answer(404, error="HTTP 404: not found")
        assert body is not None
        if self.busy:
            return self.busy.pop(0)
        if self.chat_only and path != "/v1/chat/completions":
            return Answer(404, error="HTTP 404: not found")
        for name in (*self.refuses, *(["cache_salt"] if self.salt == "refused" else [])):
            if name in body:
                return Answer(400, error=f"HTTP 400: Unknown parameter: {name}")
        return self._generate(body)

    def _generate(self, body: Mapping[str, Any]) -> Answer:
        content = body["messages"][0]["content"] if "messages" in body else body["prompt"]
        tokens = tuple(content.split()) if isinstance(content, str) else tuple(content)
        tokens = tokens + ("added",) * (self.added if isinstance(content, str) else 0)
        if self.context and len(tokens) >= self.context:
            return Answer(400, error=f"HTTP 400: This model's maximum context length is {self.context}")
        salt = str(body.get("cache_salt", "")) if self.salt == "isolates" else ""
        cached, tier = self._look(self._replica(tokens), (salt, tokens))
        ms = self.fixed_ms + self.ms_per_token * (len(tokens) - cached)
        if cached and tier in self.load:
            per_token, fixed = self.load[tier]
            ms += fixed + per_token * cached
        ms = max(0.01, ms + self.random.gauss(0, self.noise_ms))
        self.clock.sleep(ms / 1e3)
        told = {"prompt_tokens": len(tokens), "completion_tokens": 1}
        if self.tell in ("cached", "tiers"):
            told["cached_tokens"] = cached
        if self.tell == "tiers":
            told |= {f"{name}_tokens": cached * (tier == name) for name in ("device", "host", "remote")}
        return Answer(200, ms / 1e3, True, told)

    def _replica(self, tokens: tuple[Any, ...]) -> Cache:
        if self.routing == "sticky":
            return self.caches[hash(tokens[:8]) % self.replicas]
        self.turn += 1
        index = self.turn if self.routing == "turn" else self.random.randrange(self.replicas)
        return self.caches[index % self.replicas]

    def _look(self, cache: Cache, key: Key) -> tuple[int, str]:
        """Tokens served and the tier they come from; the prompt is held afterwards."""
        now, (salt, tokens) = self.clock.now(), key
        held, tier = 0, ""
        for other in cache.begins[tokens[0]]:
            if other[0] != salt or (
                self.lifetime_s is not None and now - cache.held[other] > self.lifetime_s
            ):
                continue
            differs = next(
                (i for i, (a, b) in enumerate(zip(other[1], tokens, strict=False)) if a != b), None
            )
            length = min(len(other[1]), len(tokens)) if differs is None else differs
            if length > held and (found := self._tier(cache.since(other))):
                held, tier = length, found
        cache.use(key, now)
        return (self.law.served(len(tokens), held), tier) if len(tokens) >= self.least else (0, "")

    def _tier(self, since: int) -> str:
        """Where a prompt is after so many further tokens; empty where it is nowhere."""
        if self.device_tokens is None or since < self.device_tokens:
            return "device"
        if self.host_tokens is not None and since < self.device_tokens + self.host_tokens:
            return "host"
        return "remote" if self.remote else ""


def measured(server: FakeServer, *measures: str, budget: Budget = PLENTY, **options: Any) -> Report:
    """A run against it, its prompts drawn anew from the server's seed."""
    asked = Options(**options)
    return run(server, "fake", measures, asked, budget, clock=server.clock, random=Random(server.seed))


def finding(report: Report, name: str, subject: str = "") -> Finding:
    """The one of that name."""
    (found,) = [f for f in report.findings if f.name == name and f.subject == subject]
    return found
