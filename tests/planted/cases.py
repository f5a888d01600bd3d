"""The cases: each cause alone, and in pairs. A function a case or a few that share their making.

Replicas: `a` and `b` are alike, with a host tier; `narrow` has room for 1,024 tokens and nothing below; `unit` reuses
512 tokens together; `drop` reuses 256 together and computes the last 256 again; in `brief` blocks live for 1.2 seconds;
`lossy` is narrow, and its events get lost.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from engine.config import EngineConfig
from tests.collector.support import wait_until
from tests.engine.serving.live import settings
from tests.planted.book import Book
from tests.planted.fleet import Replica

Replicas = Mapping[str, Replica]
LENGTHS = (1024, *(530 + 151 * number for number in range(9)))
"""Of prompts that are asked twice where an alignment is planted: enough to find it by."""
_HALT = "layer=prefill,delay_ms=60000"


def configs() -> dict[str, EngineConfig]:
    """Of each replica."""
    wide = {"max_model_len": 8192, "max_num_batched_tokens": 8192, "device_blocks": 1024, "host_blocks": 1024}
    narrow = wide | {"max_model_len": 1024, "device_blocks": 64, "host_blocks": 0}
    return {
        "a": settings(**wide),
        "b": settings(**wide),
        "narrow": settings(**narrow),
        "unit": settings(**wide | {"cache_unit": 512}),
        "drop": settings(**wide | {"cache_unit": 256, "drop_last_unit": True}),
        "brief": settings(**wide | {"cache_ttl": 1.2}),
        "lossy": settings(**narrow),
    }


def plant_all(on: Replicas, book: Book) -> None:
    """All cases; those that empty a cache last."""
    forgotten = soon_forgotten(on, book)
    cold_and_hits(on, book)
    units(on, book)
    failed_loads(on, book)
    in_flight(on, book)
    by_option(on, book)
    elsewhere(on, book)
    isolated(on, book)
    changed(on, book)
    capacity(on, book)
    preempted(on, book)
    expiry(on, book, *forgotten)
    gap(on, book)
    cleared(on, book)
    restarted(on, book)


def cold_and_hits(on: Replicas, book: Book) -> None:
    a, words = on["a"], book.words
    book.plant("cold", a, words(400), {"cold": 400})
    first = words(410)
    book.prime(a, first)
    book.plant("whole prompt again", a, first, {"hit": 400, "unaligned": 10})
    for length in (100, 230, 350, 530):
        again = words(length)
        book.prime(a, again)
        hit = (length - 1) // 16 * 16
        book.plant("whole prompt again", a, again, {"hit": hit, "unaligned": length - hit})
    parted = {"hit": 400, "unaligned": 4, "cold": 200}
    book.plant("hit + unaligned + cold", a, first[:404] + words(200), parted)


def units(on: Replicas, book: Book) -> None:
    unit, drop, words = on["unit"], on["drop"], book.words
    for length in LENGTHS:
        first = words(length)
        book.prime(unit, first)
        hit = (length - 1) // 512 * 512
        book.plant("unaligned: unit", unit, first, {"hit": hit, "unaligned": length - hit})
    first = words(1000)
    book.prime(unit, first)
    book.plant(
        "unaligned: unit + cold", unit, first + words(300), {"hit": 512, "unaligned": 488, "cold": 300}
    )
    for length in LENGTHS:
        first = words(length)
        book.prime(drop, first)
        hit = ((length - 1) // 256 - 1) * 256
        book.plant("unaligned: dropped", drop, first, {"hit": hit, "unaligned": length - hit})
    first = words(1024)
    book.prime(drop, first)
    parted = {"hit": 768, "unaligned": 256, "cold": 300}
    book.plant("unaligned: dropped + cold", drop, first + words(300), parted)
    first, more = words(992), words(512)
    book.prime(unit, first)
    book.plant(
        "elsewhere + cold",
        *(on["a"], first + more),
        {"elsewhere": 992, "cold": 512},
    )
    parted = {"hit": 512, "unaligned": 480, "elsewhere": 512}
    book.plant("unaligned: unit + elsewhere", unit, first + more, parted)


def failed_loads(on: Replicas, book: Book) -> None:
    a, words = on["a"], book.words
    first, second, third = words(401), words(400), words(641)
    for prompt in (first, second, third):
        book.prime(a, prompt)
    a.push_down()
    with a.fault("layer=host,fail=1"):
        book.plant("not_loaded: failed load", a, first, {"not_loaded": 400, "unaligned": 1})
        book.plant("not_loaded + cold", a, second + words(300), {"not_loaded": 400, "cold": 300})
    book.plant("hit from the host", a, third[:321], {"hit": 320, "unaligned": 1})
    with a.fault("layer=host,fail=1"):
        parted = {"hit": 320, "not_loaded": 320, "unaligned": 1}
        book.plant("hit + not_loaded", a, third, parted)


def in_flight(on: Replicas, book: Book) -> None:
    a, words = on["a"], book.words
    first = words(401)
    truths = ({"cold": 401}, {"not_loaded": 400, "unaligned": 1})
    with a.fault(_HALT):
        blocker = a.send_soon(words(33))
        twins = [a.send_soon(first) for _ in truths]
    blocker.result()
    for twin, truth in zip(twins, truths, strict=True):
        case = "cold" if "cold" in truth else "not_loaded: in flight"
        book.note(case, a, twin.result(), 401, truth)


def by_option(on: Replicas, book: Book) -> None:
    a, b, words = on["a"], on["b"], book.words
    first = words(401)
    book.prime(a, first)
    truth = {"not_loaded": 400, "unaligned": 1}
    book.plant("not_loaded: by option", a, first, truth, skip_reading_prefix_cache=True)
    second = words(640)
    book.prime(b, second[:320])
    book.plant("elsewhere + cold", a, second, {"elsewhere": 320, "cold": 320})
    truth = {"not_loaded": 320, "elsewhere": 320}
    book.plant("not_loaded + elsewhere", b, second, truth, skip_reading_prefix_cache=True)


def elsewhere(on: Replicas, book: Book) -> None:
    a, b, words = on["a"], on["b"], book.words
    first, second, third = words(400), words(400), words(640)
    for prompt in (first, second):
        book.prime(a, prompt)
    book.plant("elsewhere", b, first, {"elsewhere": 400})
    book.plant("elsewhere + cold", b, second + words(300), {"elsewhere": 400, "cold": 300})
    book.prime(b, third[:320])
    book.plant("elsewhere + cold", a, third, {"elsewhere": 320, "cold": 320})
    book.plant("hit + elsewhere", b, third, {"hit": 320, "elsewhere": 320})


def isolated(on: Replicas, book: Book) -> None:
    a, b, words = on["a"], on["b"], book.words
    first, second, third = words(400), words(400), words(640)
    for prompt in (first, second):
        book.prime(a, prompt, cache_salt="tenant-1")
    book.plant("isolated", a, first, {"isolated": 400}, cache_salt="tenant-2")
    book.plant("isolated + cold", a, second + words(300), {"isolated": 400, "cold": 300})
    book.prime(a, third[:320])
    parted = {"isolated": 320, "cold": 320}
    book.plant("isolated + cold", a, third, parted, cache_salt="tenant-1")
    book.plant("elsewhere + isolated", b, third, {"elsewhere": 320, "isolated": 320})


def changed(on: Replicas, book: Book) -> None:
    a, words = on["a"], book.words
    body = words(2400)
    book.prime(a, words(8) + body)
    book.plant("changed: first tokens", a, words(8) + body, {"cold": 8, "changed": 2400})
    parted = {"cold": 308, "changed": 2400}
    book.plant("changed + cold", a, words(8) + body + words(300), parted)
    system, tools = words(400), [words(1000) for _ in range(3)]
    book.prime(a, [*system, *tools[0], *tools[1], *tools[2]])
    parted = {"hit": 400, "changed": 3000}
    book.plant("changed: order", a, [*system, *tools[2], *tools[0], *tools[1]], parted)


def capacity(on: Replicas, book: Book) -> None:
    narrow, words = on["narrow"], book.words
    first = words(400)
    book.prime(narrow, first)
    _fill(narrow, book)
    book.plant("evicted: capacity", narrow, first, {"evicted/capacity": 400})
    book.plant("evicted + cold", narrow, *_evicted(narrow, book, 400, words(300), {"cold": 300}))
    whole = words(640)
    book.prime(narrow, whole)
    _fill(narrow, book)
    book.plant("evicted: capacity", narrow, whole[:320], {"evicted/capacity": 320})
    book.plant("hit + evicted", narrow, whole, {"hit": 320, "evicted/capacity": 320})
    body = words(600)
    book.prime(narrow, words(16) + body)
    rest = words(16) + body
    book.plant("evicted + changed", narrow, *_evicted(narrow, book, 320, rest, {"cold": 16, "changed": 600}))


def _evicted(
    narrow: Replica, book: Book, tokens: int, rest: list[int], of_rest: Mapping[str, int]
) -> tuple[list[int], dict[str, int]]:
    """A prompt that begins with what was evicted, and its truth."""
    first = book.words(tokens)
    book.prime(narrow, first)
    _fill(narrow, book)
    return first + rest, {"evicted/capacity": tokens, **of_rest}


def _fill(narrow: Replica, book: Book) -> None:
    """Other prompts take all the room there is."""
    for _ in range(2):
        book.prime(narrow, book.words(512))
    _let_pass()


def _let_pass() -> None:
    """Who came before is done, also as far as events tell: they may be told 0.1 seconds after a first token."""
    time.sleep(0.15)


def preempted(on: Replicas, book: Book) -> None:
    narrow, words = on["narrow"], book.words
    with narrow.fault(_HALT):
        blocker = narrow.send_soon(words(33))
        asked = [narrow.send_soon(words(200), 220) for _ in range(3)]
    blocker.result()
    for request in asked:
        book.note("preempted", narrow, request.result(), 200, {"cold": 200})


def soon_forgotten(on: Replicas, book: Book) -> list[list[int]]:
    """Prompts for `expiry`, sent long enough before that nothing else happens when they go."""
    prompts = [book.words(400), book.words(400)]
    for prompt in prompts:
        book.prime(on["brief"], prompt)
    return prompts


def expiry(on: Replicas, book: Book, first: list[int], second: list[int]) -> None:
    brief, words = on["brief"], book.words
    wait_until(brief.is_empty)
    time.sleep(1.1)  # who removes and stores within a second might have made room
    book.plant("evicted: expiry", brief, first, {"evicted/expiry": 400})
    book.plant("evicted + cold", brief, second + words(300), {"evicted/expiry": 400, "cold": 300})


def gap(on: Replicas, book: Book) -> None:
    lossy, words = on["lossy"], book.words
    first = words(400)
    book.prime(lossy, first)
    with lossy.fault("lose_events=1"):
        _fill(lossy, book)
    book.prime(lossy, words(64))
    book.plant("unknown", lossy, first, {"unknown": 400})
    book.plant("cold after a gap", lossy, words(400), {"cold": 400})


def cleared(on: Replicas, book: Book) -> None:
    a, b, words = on["a"], on["b"], book.words
    first, second, third = words(400), words(400), words(400)
    for prompt in (first, second, third):
        book.prime(b, prompt)
    book.plant("elsewhere", a, third, {"elsewhere": 400})
    _let_pass()
    b.forget()
    book.plant("evicted: clear", b, first, {"evicted/clear": 400})
    book.plant("evicted + cold", b, second + words(300), {"evicted/clear": 400, "cold": 300})
    book.plant("cleared, but elsewhere", b, third, {"elsewhere": 400})


def restarted(on: Replicas, book: Book) -> None:
    b, words = on["b"], book.words
    first, second = words(400), words(400)
    for prompt in (first, second):
        book.prime(b, prompt)
    b.restart()
    book.plant("evicted: restart", b, first, {"evicted/restart": 400})
    book.plant("evicted + cold", b, second + words(300), {"evicted/restart": 400, "cold": 300})
