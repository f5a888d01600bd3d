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
from analysis.misses.sent import by_servers
from analysis.selection import Selection
from cachemodel.errors import UserError
from tests.analysis.misses.build import World, parts
from tests.analysis.misses.stored_world import events_of, insert, moment, put, put_all

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
    sent = Sent(
        hash=np.array([1, 2, 3], np.uint64),
        first=np.array([100, 205, 7]),
        server=np.array([0, 0, 1]),
        isolation=np.zeros(3, np.uint64),
    )
    moved = by_servers(sent, np.array([0, 0, 0]), np.array([100, 205, 300]), np.array([150, 260, 340]))
    assert moved.first.tolist() == [150, 260, 7]  # of the other server nothing is known
    history = Sent(np.array([1], np.uint64), np.array([50]), np.array([0]), np.zeros(1, np.uint64))
    assert by_servers(history, np.array([0]), np.array([100]), np.array([130])).first.tolist() == [80]


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
