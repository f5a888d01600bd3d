"""What `hitmap misses` tells, as data: every reporter renders it, JSON carries it. Counts are tokens unless said.

Tokens of a prompt are split by *part*: hits by tier ("device", "host", "remote"; "cached" where the server does not
say which), then the causes of cachemodel.causes in the ladder's order, `evicted` by sub-cause ("evicted/capacity").
The parts of a line add up to its prompt tokens; "unknown" is one of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class MissLine:
    """Some requests together: a group, a stretch of time, or all of them.

    key: what they have in common; begin: ISO time, UTC, of a stretch. prompt: of the requests whose chain or usage is
    known. parts: tokens by part, those without any left out. recomputed: again after a preemption, beside the parts;
    None where nothing tells. requests: all; placed: those that were taken through the ladder. untold: of the unknown
    tokens, those of requests of which nothing tells what was served: they may be hits. example: id of a request of a
    group, the one in the middle by computed tokens.
    """

    key: str
    requests: int
    placed: int
    prompt: int
    parts: dict[str, int]
    recomputed: int | None = None
    begin: str = ""
    untold: int = 0
    example: str = ""


@dataclass(frozen=True, slots=True)
class CeilingLine:
    """What a server could have served of the prompts it got.

    unit, dropped_units: its alignment, None where it cannot be told; fitted_from: measured pairs it rests on, 0: taken
    from its block size. achieved: tokens served. attainable: with every prompt seen before held, its alignment kept.
    reachable: with what all replicas held at that moment, its alignment kept; None where no KV events tell.
    routing_loss: of it, what the cache that got the request did not hold (analysis/misses/ceilings.py).
    """

    server: str
    unit: int | None
    dropped_units: int | None
    fitted_from: int
    prompt: int
    achieved: int
    attainable: int
    reachable: int | None
    routing_loss: int | None = None


@dataclass(frozen=True, slots=True)
class EventsLine:
    """What KV events alone tell of a stretch of time: tokens of the blocks that were stored, by why they had to be.
    Hits leave no trace in them."""

    server: str
    begin: str
    end: str
    stored: int
    parts: dict[str, int]


@dataclass(frozen=True, slots=True)
class MissReport:
    """name: the selection; begin, end: ISO times, UTC. by: what lines are grouped by. sampled: one request in how many
    was read. selected: requests there are, read or not. derived: requests whose hits are an estimate from chains and
    events, their server telling none. history_begin: what was sent before it cannot be known; empty where no chain is;
    of several fleets the latest. histories: of each of them, by its models or else its servers. events_since: the same
    of what was stored before; empty where no KV events are. unknown_needs: what would tell the unknown tokens, most
    useful first. answer: the report in a sentence or two."""

    name: str
    by: str
    begin: str
    end: str
    sampled: int
    derived: int
    history_begin: str
    total: MissLine
    lines: list[MissLine]
    trend: list[MissLine]
    ceilings: list[CeilingLine]
    events_alone: list[EventsLine]
    unknown_needs: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    next_steps: list[str] = field(default_factory=list)
    answer: str = ""
    events_since: str = ""
    selected: int = 0
    histories: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TokenRun:
    """Tokens [start, end) of a prompt, all of one part. evidence: one sentence, such as who evicted them when.
    text: of the run, shortened, where capture kept it; empty otherwise."""

    start: int
    end: int
    part: str
    evidence: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """What `hitmap explain` tells of one request. times in ms by layer name, from `requests`. earlier: a sentence on
    the request with which it has most in common; empty where nothing tells."""

    request_id: str
    server: str
    model: str
    time: str
    prompt: int
    cached: int | None
    derived: bool
    told_by: str
    block_size: int
    alignment: str
    runs: list[TokenRun]
    layers: dict[str, float]
    recomputed: int | None = None
    notes: list[str] = field(default_factory=list)
    next_steps: list[str] = field(default_factory=list)
    earlier: str = ""
