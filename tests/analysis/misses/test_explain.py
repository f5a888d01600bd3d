"""One request taken apart: runs that cover the prompt, each with who, when and why."""

from __future__ import annotations

import io

import numpy as np
import pytest
from clickhouse_connect.driver.client import Client
from rich.console import Console

from analysis.misses.explain import explain, moved_runs
from analysis.misses.explain_text import to_markdown, to_terminal, token_map
from analysis.misses.model import Action
from analysis.misses.prompt_text import PromptText, shortened
from analysis.misses.report import build
from analysis.misses.report_model import Explanation, TokenRun
from analysis.selection import Selection
from cachemodel.errors import UsageError, UserError
from tests.analysis.misses.build import World
from tests.analysis.misses.stored_world import Row, insert, moment, put

LATER = 100_000
TWO = {"vllm-a": 1, "vllm-b": 1}


def keyed(store: Client) -> None:
    """As the finaliser does it."""
    store.command("INSERT INTO request_keys SELECT sipHash64(request_id), toDateTime(time) FROM requests")


def explained(store: Client, world: World, request_id: str, **more: str) -> Explanation:
    put(store, world)
    keyed(store)
    return explain(store, request_id, **more)


def runs(found: Explanation) -> list[tuple[int, int, str, str]]:
    return [(run.start, run.end, run.part, run.evidence) for run in found.runs]


def test_every_cause_in_one_prompt(store: Client) -> None:
    """Blocks A-B hit, C was lost to C's own eviction, D is held by the other, E-F were sent under another key."""
    world = (
        World(TWO)
        .served("ABCDEF", 0, "vllm-a", salt=5)
        .served("ABCD", 1000, "vllm-b")
        .served("ABC", 2000, "vllm-a")
        .remove("ABC", 61_000, "vllm-a", begin=2)
        .store("Q", 61_000, "vllm-a")
        .served("ABCDEFG", LATER, "vllm-a", found=2, cached=32, more=4)
    )
    found = explained(store, world, "r3")
    assert runs(found) == [
        (0, 32, "cached", "served from a cache, held since 12:00:02, 98 s before"),
        (32, 64, "elsewhere", "held by vllm-b at that moment"),
        (64, 96, "isolated", "held by vllm-a under another salt, adapter or image key, first 100 s before"),
        (96, 116, "cold", "never sent before, as far as is known (since 2026-11-29 11:59:59)"),
    ]
    assert (found.prompt, found.cached, found.derived, found.server) == (116, 32, False, "vllm-a")
    assert found.time == "2026-11-29T12:01:40Z"


@pytest.mark.parametrize(
    ("lose", "part", "evidence"),
    [
        (
            lambda world: world.remove("ABC", 59_000).store("Q", 59_000),
            "evicted/capacity",
            "evicted to make room 12:00:59, 41 s before",
        ),
        (
            lambda world: world.remove("ABC", 59_000),
            "evicted/expiry",
            "expired 12:00:59, 41 s before: nothing needed its room",
        ),
        (
            lambda world: world.mark(Action.CLEARED, 59_000),
            "evicted/clear",
            "gone when the cache was cleared 12:00:59, 41 s before",
        ),
        (
            lambda world: world.mark(Action.RESTART, 59_000),
            "evicted/restart",
            "gone when the server was restarted 12:00:59, 41 s before",
        ),
    ],
)
def test_how_it_was_lost_and_when(store: Client, lose, part: str, evidence: str) -> None:  # type: ignore[no-untyped-def]
    world = lose(World().served("ABC", 0)).served("ABC", LATER, cached=0)
    assert runs(explained(store, world, "r1")) == [(0, 48, part, evidence)]


def test_blocks_lost_in_two_ways_are_two_runs(store: Client) -> None:
    world = World().served("ABC", 0).remove("ABC", 5000, begin=2).store("Q", 5000).mark(Action.CLEARED, 9000)
    found = explained(store, world.served("ABC", LATER, cached=0), "r1")
    assert [(start, end, part) for start, end, part, _ in runs(found)] == [
        (0, 32, "evicted/clear"),
        (32, 48, "evicted/capacity"),
    ]


def test_what_was_held_and_not_served(store: Client) -> None:
    found = explained(store, World().served("ABCD", 0).ask("ABCD", LATER, cached=16, more=4), "r1")
    assert runs(found)[1][2:] == (
        "not_loaded",
        "held on the device since 12:00:00, 100 s before, and not served: a load failed or was declined",
    )
    assert found.alignment.startswith("tokens are reused in whole units of 16, never the last token")


def test_an_option_that_keeps_the_cache_from_being_read(store: Client) -> None:
    found = explained(store, World().served("ABCD", 0).ask("ABCD", LATER, cached=0, reads_off=True), "r1")
    assert runs(found) == [(0, 64, "not_loaded", "an option of the request kept the cache from being read")]
    assert "an option of the request kept the cache from being read" in found.notes


def test_what_moved_is_shown_where_it_stands(store: Client) -> None:
    world = World().served("ABC", 0, pieces=[("b", 20), ("c", 20)])
    world.served("QBC", LATER, cached=0, pieces=[("q", 8), ("b", 20), ("c", 20)])
    assert runs(explained(store, world, "r1")) == [
        (0, 8, "cold", "never sent before, as far as is known (since 2026-11-29 11:59:59)"),
        (8, 48, "changed", "sent before, behind something else, first 100 s before"),
    ]


def test_without_its_prompt_it_says_what_would_tell(store: Client) -> None:
    found = explained(store, World().served("ABC", 0).ask("ABC", LATER, known=False, cached=16), "r1")
    assert [(run.start, run.end, run.part) for run in found.runs] == [(0, 16, "cached"), (16, 48, "unknown")]
    assert any("--tokenizer" in note for note in found.notes)


def test_without_events_the_sent_part_is_unknown(store: Client) -> None:
    silent = World(joined={("a", 0): None}).ask("ABC", 0).ask("ABC", LATER, cached=0)
    found = explained(store, silent, "r1")
    assert [run.part for run in found.runs][-1] == "unknown"
    assert "sent before; its server tells no KV events, so what it held is not known" in {
        r.evidence for r in found.runs
    }


def test_tiers_that_the_server_tells(store: Client) -> None:
    put(store, World().served("ABC", 0).ask("ABCD", LATER, cached=48))
    store.command(
        "ALTER TABLE requests UPDATE device_tokens = 16, host_tokens = 32, remote_tokens = 0 WHERE request_id = 'r1'"
        " SETTINGS mutations_sync = 1"
    )
    keyed(store)
    found = explain(store, "r1")
    assert [(run.start, run.end, run.part) for run in found.runs][:2] == [(0, 16, "device"), (16, 48, "host")]


def test_its_text_stands_beside_its_tokens(store: Client) -> None:
    put(store, World().served("AB", 0).served("AC", LATER, found=1, cached=16))
    keyed(store)
    hostile = "\x1b[31mred <script>|`*"
    insert(store, "segments", [segment(1, "x" * 30), segment(2, hostile), segment(3, "tail")])
    at = {"time": moment(LATER), "server": "a", "request_id": "r1"}
    insert(store, "prompts", [{**at, "capture": "redacted", "segments": [1, 2], "ends": [16, 32]}])
    found = explain(store, "r1")
    assert [run.text for run in found.runs] == ["x" * 30, hostile]
    assert any("what looks private replaced" in note for note in found.notes)
    paper = io.StringIO()
    to_terminal(found, Console(file=paper, width=100, force_terminal=True, highlight=False))
    assert "\x1b[31mred" not in paper.getvalue()
    assert "�[31mred <script>|`*" in paper.getvalue()
    assert "\\<script\\>\\|\\`\\*" in to_markdown(found)


def segment(number: int, text: str) -> Row:
    return {"segment": number, "role": "user", "text": text}


def test_a_request_is_found_by_what_tells_it_apart(store: Client) -> None:
    put(store, World().served("AB", 0).served("AC", 500))
    keyed(store)
    assert explain(store, "r1").request_id == "r1"
    with pytest.raises(UsageError, match="several requests are called so: r0, r1"):
        explain(store, "r")
    with pytest.raises(
        UserError, match=r"no request 'zz\ufffd': the store has 2 requests of a.*latest are r1, r0"
    ):
        explain(store, "zz\x1b")
    with pytest.raises(UserError, match="no request 'r1' of b"):
        explain(store, "r1", "b")
    with pytest.raises(UsageError, match="say which request"):
        explain(store, " ")
    put(store, World({"b": 1}).served("AB", 0, "b"), model="other")
    keyed(store)
    with pytest.raises(UsageError, match="say --server a or b"):
        explain(store, "r0")
    assert explain(store, "r0", "b").server == "b"


def test_an_empty_store_says_so(store: Client) -> None:
    with pytest.raises(UserError, match="the store has no requests yet"):
        explain(store, "x")


def test_a_request_of_unknown_length(store: Client) -> None:
    names = ["time", "server", "request_id", "span_id", "decode_us"]
    store.insert("requests", [[moment(0), "a", "long", 9, 1500]], column_names=names)
    keyed(store)
    found = explain(store, "long")
    assert (found.prompt, found.runs, found.layers) == (0, [], {"decode": 1.5})
    paper = io.StringIO()
    to_terminal(found, Console(file=paper, width=80))
    assert "Nothing tells how long its prompt is." in paper.getvalue()


def test_the_map_of_a_prompt_is_as_wide_as_asked() -> None:
    found = Explanation(
        "r", "s", "m", "2026-11-29T12:00:00Z", 100, 50, False, "server", 16, "",
        [TokenRun(0, 50, "device", ""), TokenRun(50, 51, "unaligned", ""), TokenRun(51, 100, "cold", "")], {},
    )  # fmt: skip
    for width in (1, 7, 10, 200):
        drawn = token_map(found, width)
        assert len(drawn.plain) == width
    colours = [span.style for span in token_map(found, 10).spans]
    assert colours == ["#56B4E9"] * 5 + ["#BBBBBB"] * 5  # one token has no cell of its own


def test_text_of_a_run_is_cut_in_proportion() -> None:
    text = PromptText(["abcdefgh", "XYZW"], [4, 8], "full")
    assert text.of(0, 4) == "abcdefgh"
    assert text.of(1, 6) == "cdefghXY"
    assert text.of(8, 9) == ""
    assert shortened("a" * 100, 21) == "a" * 9 + " … " + "a" * 9


def test_runs_of_moved_pieces() -> None:
    world = World().ask(
        "ABCDEF", 0, pieces_from=10, pieces=[("p", 10), ("q", 6), ("r", 30), ("s", 8), ("t", 20)]
    )
    chains = world.chains()
    assert moved_runs(chains, np.array([1, 1, 0, 1, 0], np.bool_), 12) == [(12, 26)]
    assert moved_runs(chains, np.array([0, 1, 0, 0, 1], np.bool_), 12) == [(64, 84)]
    assert moved_runs(chains, np.array([1, 1, 1, 1, 1], np.bool_), 90) == []


def test_its_law_is_the_one_that_the_report_uses(store: Client) -> None:
    """Usage alone cannot tell a dropped block from a shorter match; what many requests held proves it."""
    world = World()
    for n in range(14):
        word = chr(200 + n) + "BCDEFGHI"[: 2 + n % 5]
        world.served(word, n * 1000, cached=0)
        whole = n % 2  # sent again as it was, or with more behind it
        cached = (len(word) - 1 - whole) * 16
        world.ask(word if whole else word + "XY", 100_000 + n * 1000, cached=cached)
    found = explained(store, world, "r27")
    reported = build(store, Selection("it", "1", {}))
    assert "proven" in found.alignment
    assert [run.part for run in found.runs] == ["cached", "unaligned"]
    assert "not_loaded" not in reported.total.parts
    assert reported.total.parts["unaligned"] == 14 * 16 + 7 * 16
