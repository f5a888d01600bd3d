"""The requests that had the prompts, found in the store by their ids, with those that loaded their servers beside."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from analysis.advisor.pricing.gains import Change, Outcome
from analysis.advisor.pricing.price import NOT_KNOWN, prices
from analysis.advisor.pricing.traffic import traffic
from analysis.attribution.model import Side
from analysis.twin.model import NoTwin
from cachemodel.errors import UserError
from cachemodel.layers import SERVING_LAYERS
from tests.analysis.advisor.test_price import REWRITTEN, SENT, outcome
from tests.analysis.attribution.contention import START as BEGUN
from tests.analysis.attribution.contention import Draws, World, side
from tests.analysis.attribution.test_reader import insert, request
from tests.analysis.misses.stored_world import START
from tests.conftest import Database

N = 400


def rows(of: Side, server: str) -> list[dict[str, Any]]:
    """What the store would have of this traffic."""

    def microseconds(name: str, at: int) -> int | None:
        value = of.time(name)[at]
        return None if np.isnan(value) else round(1000 * value)

    told = []
    for at in range(of.n):
        host, device = (int(of.tokens[of.sources.index(tier)][at]) for tier in ("host", "device"))
        told.append(
            {
                "time": START + timedelta(microseconds=round(1e6 * (of.arrival[at] - BEGUN))),
                "server": server,
                "request_id": f"{server}-{at}",
                "span_id": at,
                "prompt_tokens": int(of.prompt[at]),
                "completion_tokens": int(of.completion[at]),
                "cached_tokens": host + device,
                "device_tokens": device,
                "host_tokens": host,
                "remote_tokens": 0,
                **{layer.column: microseconds(layer.name, at) for layer in SERVING_LAYERS},
                "ttft_us": microseconds("ttft", at),
                "e2e_us": microseconds("e2e", at),
            }
        )
    return told


def test_requests_are_found_by_their_ids_and_replayed_with_all_others(db: Database) -> None:
    """Two servers; the log lacks every tenth request of one of them, and has one that no store knows."""
    draws = {server: Draws.of(N, seed) for seed, server in enumerate(("a", "b"))}
    for server, drawn in draws.items():
        insert(db, *rows(side(SENT, drawn), server))
    ids = [f"a-{at}" for at in range(N) if at % 10] + ["elsewhere"] + [f"b-{at}" for at in reversed(range(N))]
    found = traffic(db.client, ids)
    a, b = found.servers
    assert (a.side.servers, b.side.servers) == (("a",), ("b",))
    assert [ids[at] if at != NOT_KNOWN else "" for at in a.prompt] == [
        f"a-{at}" if at % 10 else "" for at in range(1, N)
    ]
    assert [ids[at] for at in b.prompt] == [f"b-{at}" for at in range(N)]
    assert any(f"of {2 * N - 40:,} of {2 * N - 1:,} requests" in note for note in found.notes)

    def replayed(world: World) -> Outcome:
        """In the order of the log."""
        of_a, of_b = (outcome(world, draws[server]) for server in ("a", "b"))
        some = np.arange(N) % 10 > 0
        none = np.array([0])
        return Outcome(
            *(
                np.concatenate([getattr(of_a, name)[some], none, getattr(of_b, name)[::-1]])
                for name in ("prompt", "served")
            )
        )

    (price,) = prices(
        found.servers, replayed(SENT), [Change(replayed(SENT), replayed(REWRITTEN))], np.random.default_rng(0)
    )
    real = [
        np.concatenate([np.asarray(side(world, draws[server]).time("ttft")) for server in draws])
        for world in (SENT, REWRITTEN)
    ]
    assert price.mean.value == pytest.approx((real[0] - real[1]).mean(), rel=0.2)
    assert price.p95.holds(float(np.quantile(real[0], 0.95) - np.quantile(real[1], 0.95)))


def test_a_log_that_the_store_does_not_have_is_refused(db: Database) -> None:
    insert(db, *(request(at, at) for at in range(4)))
    with pytest.raises(UserError, match="the store has 4 of the 10 requests"):
        traffic(db.client, [f"r{at}" for at in range(10)])


def test_an_id_of_several_requests_tells_none_of_them_apart(db: Database) -> None:
    """Two servers that number their requests alike: by the server that the log names each is found, and without that
    none; an id that the log has twice is left out on both, and what is left out is told."""
    of_a, of_b = (rows(side(SENT, Draws.of(N, seed)), server) for seed, server in enumerate(("a", "b")))
    for one in (*of_a, *of_b):
        one["request_id"] = one["request_id"].partition("-")[2]
    insert(db, *of_a, *of_b)
    ids = [str(at) for at in range(N)]
    found = traffic(db.client, ids, ["a"] * N)
    (a,) = found.servers
    assert a.side.servers == ("a",), "nothing of the other server's is claimed"
    assert a.prompt.tolist() == list(range(N))
    assert not any("left out" in note for note in found.notes)
    with pytest.raises(
        UserError, match=rf"the store has 0 of the {N} requests.*\({N} requests have ids that others"
    ):
        traffic(db.client, ids)
    twice = [*ids, *ids[50:60]]
    found = traffic(db.client, twice, ["a"] * len(twice))
    (a,) = found.servers
    assert a.prompt.tolist() == [NOT_KNOWN if 50 <= at < 60 else at for at in range(N)]
    assert found.notes[0] == "20 requests have ids that others have, too, and are left out."


def test_what_no_twin_can_be_fitted_to_has_no_price(db: Database) -> None:
    insert(db, *(request(at, at) for at in range(10)))
    with pytest.raises(NoTwin, match="has 10 requests, a twin takes 100"):
        traffic(db.client, [f"r{at}" for at in range(10)])


def test_many_ids_fit_into_one_question(db: Database) -> None:
    insert(db, *(request(at, at) for at in range(3)))
    with pytest.raises(UserError, match=r"the store has 3 of the 5,000 requests"):
        traffic(db.client, [f"r{at}" if at < 3 else f"chatcmpl-{at:036d}" for at in range(5000)])
