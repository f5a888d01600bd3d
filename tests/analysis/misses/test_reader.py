"""What is read from the store is what the ladder would have been given by hand."""

from __future__ import annotations

import numpy as np
import pytest
from clickhouse_connect.driver.client import Client

from analysis.misses.block_events import main_group
from analysis.misses.fleets import grouped
from analysis.misses.ladder import climb
from analysis.misses.model import NOT_TOLD, Action, Sent
from analysis.misses.reader import Reading, read
from analysis.misses.report import build
from analysis.misses.sent import blocks_by_servers
from analysis.selection import Selection
from cachemodel.errors import UserError
from tests.analysis.misses.build import World, contents, parts
from tests.analysis.misses.stored_world import (
    events_of,
    insert,
    insert_all,
    moment,
    put,
    put_all,
    rows_of,
    whole_second,
)

ALL = Selection("all", "1", {})
LATER = 100_000
TWO = {"a": 1, "b": 1}


def worlds() -> dict[str, World]:
    """The last request of each is in question."""
    return {
        "cold": World().served("ABC", 0),
        "a hit, part of a block, more": World()
        .served("ABC", 0)
        .served("ABD", LATER, found=2, split=(2, 9), more=3, cached=32),
        "not loaded": World().served("ABCD", 0).ask("ABCD", LATER, cached=16, more=4),
        "reads off": World().served("ABCD", 0).ask("ABCD", LATER, cached=0, reads_off=True),
        "elsewhere": World(TWO).served("XY", 0, "b").served("AB", 10, "a").ask("ABC", LATER, "b", cached=0),
        "isolated": World().served("ABC", 0, salt=3).served("ABCD", LATER, salt=9, cached=0),
        "made room": World()
        .served("ABC", 0)
        .remove("ABC", 5000)
        .store("Q", 5000)
        .served("ABC", LATER, cached=0),
        "expired": World().served("ABC", 0).remove("ABC", 50_000).served("ABC", LATER, cached=0),
        "cleared": World().served("ABC", 0).mark(Action.CLEARED, 5000).served("ABC", LATER, cached=0),
        "restarted": World().served("ABC", 0).mark(Action.RESTART, 5000).served("ABC", LATER, cached=0),
        "lost in a gap": World()
        .served("ABC", 0)
        .mark(Action.GAP, 5000)
        .store("Q", 6000)
        .ask("ABC", LATER, cached=0),
        "sent before all this": World().served("Z", 0).sent("AB", -9_000_000).served("ABC", LATER, cached=0),
        "changed": World()
        .served("ABC", 0, pieces=[("b", 20), ("c", 20)])
        .served("QBC", LATER, cached=0, pieces=[("q", 8), ("b", 20), ("c", 20)]),
        "no chain": World().served("ABC", 0).ask("ABC", LATER, known=False, cached=16),
        "loaded from host memory": World()
        .served("ABC", 0)
        .store("ABC", 200, tier=1)
        .remove("ABC", 300)
        .store("Q", 300)
        .served("ABC", LATER, cached=32),
        "no events": World(joined={("a", 0): None}).ask("ABC", 0).ask("ABC", LATER, cached=0),
    }


def test_the_ladder_says_the_same_of_what_was_stored(store: Client) -> None:
    """All in one store, each on servers and of a model of its own."""
    put_all(store, [(world, name, f"{name}.") for name, world in worlds().items()])
    for name, world in worlds().items():
        reading = read(store, Selection(name, f"server LIKE '{name}.%'", {}))
        n = len(world.asked)
        assert (reading.count, reading.chains.n, reading.sampled, reading.unsized) == (n, n, 1, 0), name
        assert [int(at) for at in reading.chains.arrived] == [
            round(moment(one.at).timestamp() * 1e6) for one in sorted(world.asked, key=lambda one: one.at)
        ]
        assert parts(_climbed(reading)) == parts(world.climb()), name
        np.testing.assert_array_equal(_climbed(reading).served, world.climb().served, name)


def test_a_set_is_read_with_what_was_in_flight_beside_it(store: Client) -> None:
    """The one in question came while another computed the same."""
    world = World().ask("ABC", 0, first=500).store("ABC", 400).ask("ABC", 100, first=520, cached=0)
    put(store, world)
    reading = read(store, Selection("it", "request_id = 'r1'", {}))
    assert reading.asked.asked.tolist() == [False, True]
    assert reading.count == 1
    ladder = climb(reading.chains, reading.events, reading.blocks_sent, reading.pieces_sent, {})
    assert parts(ladder) == parts(world.climb()) == {"not_loaded": 48}
    assert (reading.chains.holder == 0).all()


def test_what_is_too_much_is_thinned_by_request(store: Client) -> None:
    world = World()
    for number in range(200):
        world.served("ABC", number * 100)
    put(store, world)
    reading = read(store, ALL, most_requests=50)
    assert reading.sampled == 4
    assert 25 < reading.chains.n < 80
    assert reading.count == 200
    assert reading.chains.known.all()
    by_blocks = read(store, ALL, most_blocks=100)
    assert by_blocks.sampled == 6
    # a set that is small enough is read whole; what was beside it is not
    narrow = read(store, Selection("some", "request_id < 'r11'", {}), most_requests=50)
    assert (narrow.sampled, narrow.asked.asked.all()) == (1, True)


def test_models_share_no_cache(store: Client) -> None:
    """Contents name tokens alone: another model's cache is no other replica."""
    put(store, World().served("AB", 0, "a"), model="m1")
    other = World({"b": 1}).served("AB", LATER, "b", cached=0)
    put(store, other, model="m2")
    told = parts(_climbed(read(store, ALL)))
    assert told == {"cold": 32}
    put(store, World({"c": 1}).served("AB", 500, "c"), model="m2")
    reading = read(store, ALL)
    assert [name for name, _ in reading.events.holders] == ["a", "b", "c"]
    assert parts(_climbed(reading)) == {"elsewhere": 32}


def _climbed(reading: Reading):  # type: ignore[no-untyped-def]
    return climb(reading.chains, reading.events, reading.blocks_sent, reading.pieces_sent, {})


def test_fleets_are_joined_by_any_model_that_two_servers_share() -> None:
    models = {"a": {"base", "adapter"}, "b": {"base"}, "c": {"other"}, "d": {"adapter"}, "e": set()}
    found = grouped(["a", "e"], models)
    assert found.servers == ("a", "b", "d", "e")
    assert found.fleet.tolist() == [0, 0, 0, 1]
    hashes = np.array([5, 5, 5, 5], dtype=np.uint64)
    apart = found.apart(hashes, np.arange(4))
    assert apart.tolist()[:3] == [5, 5, 5]
    assert apart[3] != 5


def test_a_server_with_several_ranks_does_not_say_which(store: Client) -> None:
    put(store, World({"a": 2}).served("AB", 0).store("Q", 300, rank=1))
    reading = read(store, ALL)
    assert reading.events.holders == (("a", 0), ("a", 1))
    assert reading.chains.holder.tolist() == [NOT_TOLD]


def test_who_joined_late_knows_from_then_on_only(store: Client) -> None:
    asked = World().ask("AB", 0, cached=0)
    put(store, asked.store("AB", 20))
    in_flight = round(moment(0).timestamp() * 1e6)  # when the first message of the life came
    assert read(store, ALL).events.joined.tolist() == [in_flight]
    rows = events_of(World().mark(Action.GAP, 10).store("AB", 20))
    rows[0]["seq"] = 0  # what is missing begins with the first message
    store.command("TRUNCATE TABLE kv_events")
    store.command("TRUNCATE TABLE kv_lives")
    insert(store, "kv_events", rows)
    assert read(store, ALL).events.joined.tolist() == [in_flight + 10_000]


def test_one_group_of_layers_counts() -> None:
    assert main_group([0, 1, 2], {0: "sliding_window", 1: "full_attention", 2: "mamba"}) == 1
    assert main_group([0, 1], {0: "", 1: ""}) == 0
    assert main_group([512, 4096], {}) == 4096


def test_times_of_clients_become_those_of_servers() -> None:
    first, second = contents("A")[0], contents("B")[0]
    world = World(TWO).ask("A", 150).ask("B", 260).ask("C", 340)
    told = np.array([100, 205, 300]) * 1000
    sent = Sent(
        hash=np.array([first, second, 3, 4], np.uint64),
        first=np.array([100, 205, 7, 50]) * 1000,
        server=np.array([0, 0, 1, 0]),
        isolation=np.zeros(4, np.uint64),
    )
    moved = blocks_by_servers(sent, world.chains(), told)
    # of the other server nothing is known; what none of them sent is moved by what the clocks differ in the middle
    assert moved.first.tolist() == [150_000, 260_000, 7_000, 100_000]


@pytest.mark.parametrize("times", [[100, 500], [100, 300, 500, 900]])
@pytest.mark.parametrize("cached", [NOT_TOLD, 0])
def test_a_log_in_whole_seconds_tells_no_order(store: Client, times: list[int], cached: int) -> None:
    """Prompts that have nothing in common, all told to have been sent in the same second, and the first one again."""
    world = World()
    for at, word in zip(times, ("AB", "CD", "EF", "GH"), strict=False):
        world.served(word, at, cached=cached, pieces=[(word, 32)])
    world.ask("AB", 950, cached=32 if cached == 0 else cached, more=1)
    put(store, world, clock=whole_second)
    reading = read(store, ALL)
    ladder = _climbed(reading)
    assert [parts(ladder, row) for row in range(len(times))] == [{"cold": 32}] * len(times)
    assert parts(ladder) == {"actual": 32, "cold": 1}
    chains = reading.chains
    for told, hashes, offsets in (
        (reading.blocks_sent, chains.blocks, chains.offsets),
        (reading.pieces_sent, chains.pieces, chains.piece_offsets),
    ):
        arrived = np.repeat(chains.arrived, np.diff(offsets)).tolist()
        earliest = dict(sorted(zip(hashes.tolist(), arrived, strict=True), reverse=True))
        assert dict(zip(told.hash.tolist(), told.first.tolist(), strict=True)) == earliest


def test_pieces_are_told_apart_by_fleet(store: Client) -> None:
    """What another model alone was sent is new here."""
    pieces = [("p", 20), ("q", 28)]
    first = World().served("ABC", 0, pieces=pieces)
    other = World({"b": 1}).served("ABC", LATER, "b", pieces=pieces, cached=0)
    put_all(store, [(first, "m1", ""), (other, "m2", "")])
    assert parts(_climbed(read(store, Selection("b", "server = 'b'", {})))) == {"cold": 48}
    store.command("TRUNCATE TABLE requests")
    put_all(store, [(World().served("XYZ", 0, pieces=pieces), "m2", "c"), (other, "m2", "d")])
    assert parts(_climbed(read(store, Selection("d", "server = 'db'", {})))) == {"changed": 48}


def test_a_chain_of_another_length_is_not_of_that_prompt(store: Client) -> None:
    world = World().served("ABC", 0, cached=0).served("ABCD", LATER, cached=48, found=3)
    rows = rows_of(world)
    rows["requests"][0]["prompt_tokens"] = 200
    insert_all(store, rows)
    reading = read(store, ALL)
    assert reading.asked.misfit.tolist() == [True, False]
    assert parts(_climbed(reading), 0) == {"unknown": 200}
    assert parts(_climbed(reading), 1) == {"actual": 48, "cold": 16}
    report = build(store, ALL)
    assert any("another length" in warning for warning in report.warnings)
    assert any("another length" in need for need in report.unknown_needs)
    # one that was made without the tokenizer has another length nearly always
    for row in rows["request_chains"]:
        row["told_by"] = "approximation"
    store.command("TRUNCATE TABLE request_chains")
    insert(store, "request_chains", rows["request_chains"])
    assert not read(store, ALL).asked.misfit.any()


def test_requests_of_one_id_have_a_chain_each(store: Client) -> None:
    """The nearest one in time; of two of one request the truest."""
    world = World().served("AB", 0, cached=0).served("QRSTUV", LATER, cached=0)
    world.ask("QRSTUV", LATER + 50_000, cached=0)
    rows = rows_of(world)
    for row in (*rows["requests"], *rows["request_chains"]):
        row["request_id"] = "same"
    rough = {**rows["request_chains"][1], "told_by": "approximation", "blocks": [1], "time": moment(LATER)}
    rows["request_chains"].append(rough)
    insert_all(store, rows)
    reading = read(store, ALL)
    assert np.diff(reading.chains.offsets).tolist() == [2, 6, 6]
    told = [parts(_climbed(reading), row) for row in range(3)]
    assert told == [{"cold": 32}, {"cold": 96}, {"unaligned": 16, "not_loaded": 80}]
    # the chain of the second is lost: it has none, rather than another's
    store.command("TRUNCATE TABLE request_chains")
    insert(store, "request_chains", [rows["request_chains"][0], rows["request_chains"][2]])
    assert read(store, ALL).chains.known.tolist() == [True, False, True]


def test_an_empty_set_says_what_there_is(store: Client) -> None:
    with pytest.raises(UserError, match="the store has no requests yet"):
        read(store, ALL)
    put(store, World().served("A", 0))
    with pytest.raises(UserError, match="no request matches 'x': the store has 1 requests of a"):
        read(store, Selection("x", "0", {}))


def test_a_request_of_unknown_length_is_left_out(store: Client) -> None:
    put(store, World().served("A", 0))
    store.insert(
        "requests", [[moment(3), "a", "long", 9]], column_names=["time", "server", "request_id", "span_id"]
    )
    reading = read(store, ALL)
    assert (reading.count, reading.unsized, reading.chains.n) == (2, 1, 1)
    report = build(store, ALL)
    assert (report.total.requests, report.total.placed, report.total.prompt) == (2, 1, 16)
    assert "1 requests do not tell how long their prompt is; left out" in report.warnings
