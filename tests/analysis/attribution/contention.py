"""Traffic of one server whose requests delay each other, and its own counterfactuals: what a change really caused.

Written apart from the twin (analysis/twin) and unlike its law, so that neither is tested by itself: every pass is gone
through with plain objects, and takes a time that bends, jitters and hiccups. A coalition's truth is this server, run
again with only its changes and the same draws.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from analysis.attribution.model import Side
from analysis.attribution.shapley import shapley
from analysis.quantiles import Floats, hd_quantile
from analysis.twin.model import Told
from cachemodel.layers import SERVING_LAYERS

SEATS, BUDGET, BLOCK = 48, 1024, 16
START = 1_800_000_000.0
LATER = START + 86400
SOURCES = ("device", "host", "evicted", "changed", "cold")
JITTER, HICCUP, HICCUP_MS = 0.06, 1 / 3000, 25.0


@dataclass(frozen=True)
class World:
    """rate: requests a second. hits: share of the requests whose prefix is found, or of each the chance (n,); lost:
    what the telemetry calls the cause where it is not, and it would have been at 0.8. decode, prefill: factors on what
    a pass takes beside, or for, prompt tokens; tier: ms a token loaded from the host. pool: tokens."""

    rate: float = 9.0
    hits: float | Floats = 0.8
    decode: float = 1.0
    prefill: float = 1.0
    tier: float = 0.004
    pool: int = 120_000
    lost: str = "changed"


CAUSES = {
    "workload": "rate",
    "changed": "hits",
    "prefill speed": "prefill",
    "decode speed": "decode",
    "tier speed": "tier",
    "capacity": "pool",
}
"""The field of World behind each root cause."""
AS_WAS = World()
_QUIET, _CROWDED = replace(AS_WAS, rate=6.0), replace(AS_WAS, rate=12.0, pool=72_000)
CASES = {
    "changed": (AS_WAS, replace(AS_WAS, hits=0.5)),
    "decode speed": (AS_WAS, replace(AS_WAS, decode=1.5)),
    "prefill speed": (AS_WAS, replace(AS_WAS, prefill=1.6)),
    "tier speed": (AS_WAS, replace(AS_WAS, tier=0.06)),
    "capacity": (_CROWDED, replace(_CROWDED, pool=_CROWDED.pool // 2)),
    "workload": (_QUIET, replace(_QUIET, rate=2 * _QUIET.rate)),
}
"""Before and after one change, by the cause that has it."""


@dataclass(frozen=True, eq=False)
class Draws:
    """The random numbers of n requests, of which a world makes traffic; passes: the seed of the server's own noise.
    Those of one seed are one object, so that nothing is served twice."""

    gap: Floats
    prompt: Floats
    completion: Floats
    hit: Floats
    host: Floats
    before: Floats
    after: Floats
    passes: int

    @classmethod
    @lru_cache(maxsize=64)
    def of(cls, n: int, seed: int) -> Draws:
        rng = np.random.default_rng(seed)
        return cls(
            gap=rng.exponential(1.0, n),
            prompt=np.clip(np.exp(rng.normal(7.1, 0.6, n)), 80, 6000).round(),
            completion=np.clip(rng.geometric(1 / 90, n), 2, 600).astype(float),
            hit=rng.random(n),
            host=rng.random(n),
            before=rng.lognormal(0.8, 0.4, n),
            after=rng.exponential(1.0, n),
            passes=seed + 1,
        )


def side(world: World, draws: Draws, name: str = "a", begin: float = START) -> Side:
    """What a telemetry of that traffic tells, by end-to-end time; ttft and e2e stand beside. begin: seconds; two sides
    of one time would be arms of one server."""
    serve = _side if isinstance(world.hits, float) else _side.__wrapped__
    whole = serve(world, draws)
    return replace(
        whole, name=name, arrival=begin + whole.arrival, begin=begin, end=begin + float(whole.arrival[-1])
    )


@lru_cache(maxsize=64)
def _side(world: World, draws: Draws) -> Side:
    """From second 0 on."""
    n = len(draws.gap)
    requests, missed = _requests(world, draws)
    _Server(world, np.random.default_rng(draws.passes)).serve(requests)
    spent = {
        layer: np.array([r.spent.get(layer, 0.0) for r in requests])
        for layer in ("queue", "host", "prefill", "decode")
    }
    arrival = np.cumsum(draws.gap) / world.rate
    waited = draws.before + 0.002 * draws.prompt
    times = {**spent, "frontend": waited, "other": draws.after, "prefix": np.zeros(n)}
    unknown = np.full(n, np.nan)
    e2e = sum(times.values(), np.zeros(n))
    tokens = {name: np.zeros(n) for name in SOURCES}
    tokens["host"] = np.array([r.host for r in requests], float)
    tokens["device"] = np.array([r.found - r.host for r in requests], float)
    tokens[world.lost] = missed
    tokens["cold"] = draws.prompt - sum(tokens.values(), np.zeros(n))
    first = np.array([r.first - r.ready for r in requests])
    return Side(
        name="",
        arrival=arrival,
        totals=e2e,
        layers=tuple(layer.name for layer in SERVING_LAYERS),
        times=np.stack([times.get(layer.name, unknown) for layer in SERVING_LAYERS]),
        prompt=draws.prompt,
        completion=draws.completion,
        sources=SOURCES,
        tokens=np.stack([tokens[source] for source in SOURCES]),
        template=np.zeros(n, np.int64),
        server=np.zeros(n, np.int64),
        servers=("contended",),
        begin=0.0,
        end=float(arrival[-1]),
        beside={"ttft": waited + first, "e2e": e2e},
    )


def told(world: World) -> Told:
    """What the server says of itself."""
    return Told(max_num_seqs=SEATS, max_num_batched_tokens=BUDGET, kv_tokens=world.pool)


def truth(a: World, b: World, draws: list[Draws], q: float, metric: str = "ttft") -> dict[str, float]:
    """The Shapley value of every cause that differs, ms: the mean over the draws, the same in all coalitions."""
    causes = [cause for cause, f in CAUSES.items() if getattr(a, f) != getattr(b, f)]
    values = [
        [hd_quantile(np.asarray(side(_mixed(a, b, causes, bits), d).time(metric)), q) for d in draws]
        for bits in range(1 << len(causes))
    ]
    return dict(zip(causes, shapley(np.array(values).T).mean(axis=0).tolist(), strict=True))


def arms(a: float, b: float, draws: Draws, of_b: NDArray[np.bool_]) -> tuple[Side, Side]:
    """Two arms on one server at one time, whose shares of hits are a and b; of_b: which requests are B's (n,)."""
    whole = side(replace(AS_WAS, hits=np.where(of_b, b, a)), draws)
    return replace(whole.subset(~of_b), name="a"), replace(whole.subset(of_b), name="b")


def truth_of_arms(
    a: float, b: float, draws: list[Draws], of_b: NDArray[np.bool_], q: float, metric: str = "ttft"
) -> dict[str, float]:
    """The same of two arms: which requests are judged, what these find, and what the other arm's find."""

    def value(judged_b: bool, found_b: bool, beside_a: bool, draw: Draws) -> float:
        found, beside = (b if found_b else a), (a if beside_a else b)
        both = arms(beside, found, draw, of_b) if judged_b else arms(found, beside, draw, of_b)
        return float(hd_quantile(np.asarray(both[judged_b].time(metric)), q))

    values = [[value(bool(s & 1), bool(s & 2), bool(s & 4), draw) for draw in draws] for s in range(8)]
    names = ("workload", "changed", "other arm")
    return dict(zip(names, shapley(np.array(values).T).mean(axis=0).tolist(), strict=True))


def _mixed(a: World, b: World, causes: list[str], bits: int) -> World:
    taken = {CAUSES[cause] for i, cause in enumerate(causes) if bits >> i & 1}
    return World(**{f.name: getattr(b if f.name in taken else a, f.name) for f in fields(World)})


def _requests(world: World, draws: Draws) -> tuple[list[_Request], Floats]:
    """And the tokens that a server with 0.8 hits would have found, and this one did not."""
    ready = np.cumsum(draws.gap) / world.rate * 1e3 + draws.before + 0.002 * draws.prompt
    prefix = np.floor(0.85 * (draws.prompt - 1) / BLOCK) * BLOCK
    found = np.where(draws.hit < world.hits, prefix, 0.0)
    missed = np.where((draws.hit < AS_WAS.hits) & (draws.hit >= world.hits), prefix, 0.0)
    host = np.where(draws.host < 0.3, np.floor(found * 0.6 / BLOCK) * BLOCK, 0.0)
    rows = zip(ready.tolist(), draws.prompt, draws.completion, found, host, strict=True)
    return [_Request(number, at, *map(int, row)) for number, (at, *row) in enumerate(rows)], missed


@dataclass
class _Request:
    """number: of arrival. ready: when it is in the queue, ms. found: prompt tokens with KV; host: of them, to load.
    left: tokens to compute before it makes the next one. since: when its layer began."""

    number: int
    ready: float
    prompt: int
    wanted: int
    found: int
    host: int
    loaded: bool = False
    left: int = -1
    made: int = 0
    since: float = 0.0
    layer: str = "queue"
    first: float = 0.0
    spent: dict[str, float] = field(default_factory=dict)

    @property
    def kv(self) -> int:
        """Tokens that it has, or has asked for, room for."""
        return self.prompt + self.made

    def enter(self, layer: str, now: float) -> None:
        self.spent[self.layer] = self.spent.get(self.layer, 0.0) + now - self.since
        self.layer, self.since = layer, now


class _Server:
    """queue: first come first; running: in order of arrival; loading: from the host, before the next pass."""

    def __init__(self, world: World, rng: np.random.Generator) -> None:
        self.world, self.rng, self.now = world, rng, 0.0
        self.seats, self.budget = SEATS, BUDGET
        self.queue: list[_Request] = []
        self.running: list[_Request] = []
        self.loading: list[_Request] = []

    def serve(self, requests: list[_Request]) -> None:
        """Until all have ended."""
        coming = sorted(requests, key=lambda request: -request.ready)
        while coming or self.queue or self.running or self.loading:
            if not (self.queue or self.running or self.loading):
                self.now = max(self.now, coming[-1].ready)
            while coming and coming[-1].ready <= self.now:
                self.queue.append(coming.pop())
                self.queue[-1].since = self.queue[-1].ready
            self._load()
            moved = self._make_room()
            chunks = self._chunks(admit=not moved)
            decoding = [request for request in self.running if request.left == 0]
            if decoding or chunks:
                self.now += self._takes(decoding, chunks)
                self._hand_out(decoding, chunks)

    def _load(self) -> None:
        for request in self.loading:
            self.now += self._load_ms(request.host)
            request.loaded = True
            request.enter("queue", self.now)
        self.running = sorted(self.running + self.loading, key=lambda request: request.ready)
        self.loading = []

    def _load_ms(self, tokens: int) -> float:
        return (0.8 + self.world.tier * tokens) * float(self.rng.lognormal(0, JITTER))

    def _make_room(self) -> bool:
        """The last to arrive makes way where those that decode have no room for another token."""
        moved = False
        while len(self.running) > 1:
            decoding = sum(request.left == 0 for request in self.running)
            if not decoding or sum(request.kv for request in self.running) + decoding <= self.world.pool:
                break
            last = self.running.pop()
            last.enter("queue", self.now)
            self.queue.insert(0, last)
            moved = True
        return moved

    def _chunks(self, admit: bool) -> list[tuple[_Request, int]]:
        """What this pass computes of prompts."""
        budget = self.budget - sum(request.left == 0 for request in self.running)
        chunks: list[tuple[_Request, int]] = []

        def take(request: _Request) -> None:
            tokens = min(request.left, budget - sum(tokens for _, tokens in chunks))
            if tokens > 0:
                chunks.append((request, tokens))
                if request.layer != "prefill":
                    request.enter("prefill", self.now)

        for request in self.running:
            if request.left:
                take(request)
        while admit and self.queue and sum(tokens for _, tokens in chunks) < budget:
            request, held = self.queue[0], [*self.running, *self.loading]
            if len(held) >= self.seats or (held and sum(r.kv for r in held) + request.kv > self.world.pool):
                break
            del self.queue[0]
            request.left = request.prompt - request.found + request.made
            if request.host and not request.loaded:
                request.enter("host", self.now)
                self.loading.append(request)
            else:
                self.running.append(request)
                take(request)
        return chunks

    def _takes(self, decoding: list[_Request], chunks: list[tuple[_Request, int]]) -> float:
        """A pass, ms: mildly concave in its prompt tokens, convex in its batch."""
        world = self.world
        prompt = sum(tokens for _, tokens in chunks)
        behind = sum(tokens * (r.kv - r.left + tokens / 2) for r, tokens in chunks) / 1000
        context = sum(request.kv for request in decoding) / 1000
        filling = world.prefill * (0.075 * prompt**0.96 + 0.0012 * behind)
        batch = world.decode * (6.0 + 0.14 * len(decoding) ** 1.1 + 0.012 * context)
        hiccup = HICCUP_MS if self.rng.random() < HICCUP else 0.0
        return (filling + batch) * float(self.rng.lognormal(0, JITTER)) + hiccup

    def _hand_out(self, decoding: list[_Request], chunks: list[tuple[_Request, int]]) -> None:
        for request, tokens in chunks:
            request.left -= tokens
        for request in decoding + [request for request, _ in chunks if request.left == 0]:
            request.made += 1
            if request.made == 1:
                request.first = self.now
            if request.made >= request.wanted:
                request.enter("ended", self.now)
                self.running.remove(request)
            elif request.layer != "decode":
                request.enter("decode", self.now)
