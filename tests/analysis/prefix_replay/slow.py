"""The rules again, as plainly as can be: lists of tokens, looked through from end to end."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

from analysis.prefix_replay.model import Ragged, Requests
from analysis.prefix_replay.rules import BlockRule, ProviderRule, RadixRule, SlotRule
from tests.analysis.prefix_replay.worlds import lists

Prefix = tuple[int, ...]  # isolation, and tokens


@dataclass
class Asked:
    """A request. kept: its prompt and its reply but for the last token."""

    prompt: list[int]
    kept: list[int]
    isolation: int
    reads: bool
    sent: float
    first: float
    done: float
    marks: list[int]
    parts: list[int] | None
    served: int = 0
    held: int = 0


def asked(requests: Requests) -> list[Asked]:
    n = requests.n
    prompts = lists(Ragged(requests.tokens, requests.offsets), n)
    replies, marks = lists(requests.replies, n), lists(requests.breakpoints, n)
    parts = None if requests.parts is None else lists(requests.parts, n)
    nothing = [math.nan] * n
    sent, first, done = (
        nothing if column is None else column.tolist()
        for column in (requests.sent, requests.first_token, requests.done)
    )
    known = [at for at in sent if not math.isnan(at)]
    last = known[0] if known else 0.0
    out = []
    for row in range(n):
        told = not math.isnan(sent[row])
        last = sent[row] if told else last
        begin = max(last, first[row]) if told and not math.isnan(first[row]) else last
        end = max(begin, done[row]) if told and not math.isnan(done[row]) else begin
        out.append(
            Asked(
                prompts[row],
                prompts[row] + replies[row][:-1],
                0 if requests.isolation is None else int(requests.isolation[row]),
                requests.reads_off is None or not requests.reads_off[row],
                last,
                begin,
                end,
                marks[row],
                None if parts is None else parts[row],
            )
        )
    return out


def happenings(all_asked: list[Asked], chunk: int | None, step: int, planned: bool) -> list[tuple[Any, ...]]:
    """(row, what, room, known) in order; with "compute" both count from what was served on."""
    out: list[tuple[float, int, int, Any]] = []
    ahead = -math.inf  # when the last chunk of all so far was begun
    longest = max((len(one.prompt) for one in all_asked), default=0)
    for row, one in enumerate(all_asked):
        size, prompt, kept = chunk or longest, len(one.prompt), len(one.kept)
        chunks = max(1, -(-prompt // chunk)) if chunk else 1
        begun = min(max(one.sent, ahead), one.first)
        ahead = max(ahead, one.first - (one.first - begun) / chunks)
        mine: list[tuple[float, Any]] = [(begun, ("look", 0, 0))]
        for at in range(chunks):
            when = begun + (one.first - begun) * (at / chunks)
            mine.append((when, ("compute", (at + 1) * size, (at + planned) * size)))
        if not planned:
            mine.append((one.first, ("grow", prompt, prompt)))
        full = -(-prompt // step) * step
        while full < kept:
            when = one.first + (one.done - one.first) * ((full - prompt) / max(1, kept - prompt))
            mine.append((when, ("grow", min(full + step, kept), full)))
            full += step
        mine.append((one.done, ("leave", kept, kept)))
        out += [(when, row, at, what) for at, (when, what) in enumerate(mine)]
    return [(row, *what) for _, row, _, what in sorted(out, key=lambda one: one[:3])]


class Server(ABC):
    """First come, first served; what happens to a request while it waits is made up for when it begins."""

    def __init__(self, requests: Requests, chunk: int | None, step: int, planned: bool) -> None:
        self.asked = asked(requests)
        self.happenings = happenings(self.asked, chunk, step, planned)
        self.running: set[int] = set()
        self.over: set[int] = set()

    @abstractmethod
    def look(self, row: int) -> int:
        """Fill in what is held and served; how much that is."""

    @abstractmethod
    def begins(self, row: int) -> bool:
        """Take what it is served and, with that, room for its prompt, if there is any."""

    @abstractmethod
    def take(self, row: int, room: int) -> None:
        """Room for so many tokens in all."""

    @abstractmethod
    def know(self, row: int, known: int) -> None:
        """So many tokens can be found."""

    @abstractmethod
    def leave(self, row: int) -> None:
        """It holds nothing any more."""

    def run(self) -> tuple[list[int], list[int]]:
        line: list[int] = []
        missed: dict[int, tuple[str, int, int]] = {}
        for now, (row, *what) in enumerate(self.happenings):
            self.now = now
            if what[0] == "look":
                line.append(row)
            elif row in self.running:
                self._happens(row, *what)
            elif what[0] == "leave":
                self.look(row)
                self.over.add(row)
            else:
                missed[row] = tuple(what)
            while line and (line[0] in self.over or self.begins(line[0])):
                first = line.pop(0)
                if first not in self.over:
                    self.running.add(first)
                    if first in missed:
                        self._happens(first, *missed[first])
        return [one.served for one in self.asked], [one.held for one in self.asked]

    def _happens(self, row: int, what: str, room: int, known: int) -> None:
        one = self.asked[row]
        if what == "compute":
            room, known = (min(len(one.prompt), one.served + more) for more in (room, known))
        self.take(row, room)
        self.know(row, known)
        if what == "leave":
            self.leave(row)
            self.running.discard(row)
            self.over.add(row)


@dataclass(eq=False)
class Block:
    content: Prefix | None = None
    users: int = 0


class Blocks(Server):
    """queue: of blocks nobody holds, the next to be taken first. known: blocks by content, in the order they came."""

    def __init__(self, requests: Requests, rule: BlockRule) -> None:
        super().__init__(requests, rule.chunk, rule.block_size, rule.planned)
        self.rule, self.size = rule, rule.block_size
        room = sum(-(-len(one.kept) // self.size) for one in self.asked)
        self.queue = [Block() for _ in range(rule.capacity or room)]
        self.known: dict[Prefix, list[Block]] = {}
        self.mine: list[list[Block | None]] = [[] for _ in self.asked]
        self.seen = [0] * len(self.asked)

    def name(self, row: int, place: int) -> Prefix:
        one = self.asked[row]
        return (one.isolation, *one.kept[: (place + 1) * self.size])

    def look(self, row: int) -> int:
        one, found = self.asked[row], 0
        while found < len(one.prompt) // self.size and self.known.get(self.name(row, found)):
            found += 1
        one.held = found * self.size
        one.served = self.rule.law.served(len(one.prompt), one.held) if one.reads else 0
        return one.served // self.size

    def begins(self, row: int) -> bool:
        if len(self.running) == self.rule.max_num_seqs:
            return False
        found = self.look(row)
        blocks = [self.known[self.name(row, place)][0] for place in range(found)]
        wanted = -(-len(self.asked[row].prompt) // self.size) - found
        if wanted + sum(block.users == 0 for block in blocks) > len(self.queue) and self.running:
            return False
        for block in blocks:
            self.hold(row, block)
        self.seen[row] = found
        return True

    def hold(self, row: int, block: Block) -> None:
        if block.users == 0:
            self.queue.remove(block)
        block.users += 1
        self.mine[row].append(block)

    def take(self, row: int, room: int) -> None:
        while len(self.mine[row]) * self.size < room:
            if not self.queue:
                self.mine[row].append(None)
                continue
            block = self.queue[0]
            if block.content is not None:
                self.known[block.content].remove(block)
                block.content = None
            self.hold(row, block)

    def know(self, row: int, known: int) -> None:
        while (self.seen[row] + 1) * self.size <= known:
            place = self.seen[row]
            self.seen[row] += 1
            block, name = self.mine[row][place], self.name(row, place)
            if block is None:
                continue
            same = self.known.setdefault(name, [])
            if same and not self.rule.copies:
                block.users = 0
                self.queue.insert(0, block)
                if same[0].users == 0:
                    self.queue.remove(same[0])
                same[0].users += 1
                self.mine[row][place] = same[0]
            else:
                same.append(block)
                block.content = name

    def leave(self, row: int) -> None:
        for block in reversed(self.mine[row]):
            if block is None:
                continue
            block.users -= 1
            if block.users == 0:
                front = self.rule.unknown_first and block.content is None
                self.queue.insert(0 if front else len(self.queue), block)


@dataclass(eq=False)
class Node:
    """A run of tokens behind its parent's. users: requests that hold it."""

    parent: Node | None
    run: list[int]
    children: list[Node] = field(default_factory=list)
    users: int = 0
    stamp: int = 0


class Radix(Server):
    def __init__(self, requests: Requests, rule: RadixRule) -> None:
        super().__init__(requests, rule.chunk, rule.page_size, False)
        self.page, self.capacity, self.most = (
            rule.page_size,
            rule.capacity or math.inf,
            rule.max_running_requests,
        )
        self.roots: dict[int, Node] = {}
        self.node: dict[int, Node] = {}
        self.inside = [0] * len(self.asked)
        self.own = [0] * len(self.asked)
        self.let_go = 0

    def nodes(self) -> list[Node]:
        found: list[Node] = []
        ahead = [child for root in self.roots.values() for child in root.children]
        while ahead:
            found.append(ahead.pop())
            ahead += found[-1].children
        return found

    def walk(self, row: int, tokens: list[int], cut: bool) -> tuple[Node, int]:
        """The last node that has a beginning of these whole pages, and how many of them it has."""
        root = Node(None, [])
        node, at = self.roots.setdefault(self.asked[row].isolation, root), 0
        while at < len(tokens):
            rest = tokens[at:]
            child = next((one for one in node.children if one.run[: self.page] == rest[: self.page]), None)
            if child is None:
                break
            pages = 0
            while pages * self.page < min(len(child.run), len(rest)) and (
                child.run[pages * self.page : (pages + 1) * self.page]
                == rest[pages * self.page : (pages + 1) * self.page]
            ):
                pages += 1
            same = pages * self.page
            at += same
            if same < len(child.run):
                if cut:
                    upper = Node(node, child.run[:same], [child], child.users, child.stamp)
                    node.children[node.children.index(child)] = upper
                    child.parent, child.run = upper, child.run[same:]
                    node = upper
                break
            node = child
        return node, at

    def whole(self, tokens: int) -> int:
        return max(0, tokens // self.page * self.page)

    def look(self, row: int) -> int:
        one = self.asked[row]
        one.held = self.walk(row, one.prompt[: self.whole(len(one.prompt))], False)[1]
        one.served = min(one.held, self.whole(len(one.prompt) - 1)) if one.reads else 0
        return one.served

    def begins(self, row: int) -> bool:
        one = self.asked[row]
        if len(self.running) == self.most:
            return False
        self.look(row)
        wanted = -(-len(one.prompt) // self.page) * self.page - one.served
        if not self.fits(wanted):
            return False  # and what it would hold is not touched
        node, _ = self.walk(row, one.prompt[: one.served], True)
        self.hold(node, 1)
        if not self.fits(wanted):
            self.hold(node, -1)
            return False
        self.node[row], self.inside[row] = node, one.served
        self.evict(wanted)
        self.own[row] = wanted
        return True

    def fits(self, wanted: int) -> bool:
        idle = sum(len(each.run) for each in self.nodes() if not each.users)
        return not self.running or wanted <= self.free() + idle

    def hold(self, node: Node | None, more: int) -> None:
        self.let_go += more < 0
        while node is not None:
            node.users += more
            if more < 0:
                node.stamp = self.let_go
            node = node.parent

    def free(self) -> float:
        return self.capacity - sum(len(one.run) for one in self.nodes()) - sum(self.own)

    def evict(self, wanted: int) -> None:
        while wanted > 0 and self.free() < wanted:
            leaves = [one for one in self.nodes() if not one.users and not one.children]
            if not leaves:
                break
            leaf = min(leaves, key=lambda one: one.stamp)
            assert leaf.parent
            leaf.parent.children.remove(leaf)

    def take(self, row: int, room: int) -> None:
        more = max(0, -(-room // self.page) * self.page - self.inside[row] - self.own[row])
        self.evict(more)
        self.own[row] += more

    def know(self, row: int, known: int) -> None:
        known = self.whole(known)
        if known <= self.inside[row]:
            return
        tokens = self.asked[row].kept[:known]
        node, at = self.walk(row, tokens, True)
        if at < known:
            node.children.append(Node(node, tokens[at:], stamp=self.let_go))
            node = node.children[-1]
        self.hold(node, 1)
        self.hold(self.node[row], -1)
        self.node[row] = node
        self.own[row] -= known - self.inside[row]
        self.inside[row] = known

    def leave(self, row: int) -> None:
        self.hold(self.node[row], -1)
        self.own[row] = 0


def slots(requests: Requests, rule: SlotRule) -> tuple[list[int], list[int]]:
    """llama.cpp: each slot is [what it has, when it is free, who had it last]."""
    state: list[list[Any]] = [[(None, []), -math.inf, -1] for _ in range(rule.slots)]
    aside: list[Any] = []
    all_asked, now = asked(requests), -math.inf

    def common(a: Any, b: Any) -> int:
        if a[0] != b[0]:
            return 0
        pairs = [x == y for x, y in zip(a[1], b[1], strict=False)]
        return [*pairs, False].index(False)

    def put_aside(one: Any) -> None:
        if not one[1] or rule.host_tokens == 0 or any(common(other, one) == len(one[1]) for other in aside):
            return
        aside[:] = [other for other in aside if common(other, one) < len(other[1])] + [one]
        while rule.host_tokens and sum(len(o[1]) for o in aside) > rule.host_tokens and len(aside) > 1:
            aside.pop(0)

    for row, one in enumerate(all_asked):
        now = max(now, one.sent, min(slot[1] for slot in state))
        prompt = (one.isolation, one.prompt)
        idle = [slot for slot in state if slot[1] <= now]
        likes = [common(slot[0], prompt) for slot in idle]
        enough = [same for same in likes if same > rule.similarity * len(one.prompt) > 0]
        if enough:
            slot = idle[likes.index(max(enough))]
            losing = max(enough) < 0.5 * len(slot[0][1])
        else:
            oldest = min((slot[1], slot[2]) for slot in idle)
            slot = [slot for slot in idle if (slot[1], slot[2]) == oldest][-1]
            losing = True
        if losing:
            put_aside(slot[0])
            best = slot[0]
            for other in aside:
                share, same = common(other, prompt) / len(other[1]), common(other, prompt)
                has = common(best, prompt) / len(best[1]) if best[1] else -1
                if share >= 0.25 and share > has and same > common(best, prompt):
                    best = other
            if best is not slot[0]:
                aside[:] = [other for other in aside if other is not best]
                slot[0] = best
        if rule.saves_idle:
            for other in idle:
                if other is not slot:
                    put_aside(other[0])
        one.held = common(slot[0], prompt)
        if one.reads and one.prompt:
            same, at = one.held, one.held
            while (
                rule.cache_reuse
                and slot[0][0] == one.isolation
                and at < len(slot[0][1])
                and same < len(one.prompt)
            ):
                run = common((0, slot[0][1][at:]), (0, one.prompt[same:]))
                same, at = (same + run, at + run) if run >= rule.cache_reuse else (same, at + 1)
            one.served = min(same, len(one.prompt) - 1)
        slot[:] = [(one.isolation, one.kept), max(now, one.done), row]
    return [one.served for one in all_asked], [one.held for one in all_asked]


def provider(requests: Requests, rule: ProviderRule) -> tuple[list[int], list[int]]:
    """entries: [from when, until when] by what they are of."""
    entries: dict[Prefix, list[float]] = {}
    lifetime = math.inf if rule.lifetime is None else rule.lifetime
    all_asked = asked(requests)
    for one in all_asked:
        length = len(one.prompt)
        if rule.explicit:
            marks = [at for at in one.marks[: rule.breakpoints] if rule.minimum <= at <= length]
            looked = set(marks)
            for mark in marks:
                before = sorted(part for part in one.parts or [] if part < mark)
                looked |= {
                    part for part in before[max(0, len(before) - rule.look_back) :] if part >= rule.minimum
                }
        else:
            marks = [at for at in range(rule.granularity, length + 1, rule.granularity) if at >= rule.minimum]
            looked = set(marks)
        names = {at: (one.isolation, *one.prompt[:at]) for at in looked}

        def there(at: int, now: float = one.sent, names: dict[int, Prefix] = names) -> bool:
            return names[at] in entries and entries[names[at]][0] <= now <= entries[names[at]][1]

        one.held = max((at for at in looked if there(at)), default=0)
        one.served = one.held if one.reads else 0
        used = set(marks) | ({one.served} if one.served else set())
        for at in used:
            entry = entries.get(names[at])
            if entry and there(at):
                if rule.refreshed:
                    entry[1] = one.sent + lifetime
            elif at in marks and entry and entry[0] > one.sent:  # another one is writing it
                entry[0] = min(entry[0], one.first)
                entry[1] = max(entry[1], entry[0] + lifetime)
            elif at in marks:
                entries[names[at]] = [one.first, one.first + lifetime]
    return [one.served for one in all_asked], [one.held for one in all_asked]
