"""Advice in milliseconds: of the requests in a store that had the prompts."""

from __future__ import annotations

import numpy as np
from clickhouse_connect.driver.client import Client

from analysis.advisor.advice import Advice
from analysis.advisor.pricing.price import Prices, prices
from analysis.advisor.pricing.traffic import traffic
from analysis.twin.model import NoTwin


def priced(client: Client, advice: Advice) -> Prices:
    """Raises UserError where the store has too few of the requests."""
    try:
        found = traffic(client, advice.requests, advice.servers)
    except NoTwin as reason:
        return Prices(refused=str(reason))
    changes = [one.gain.most for one in advice.suggestions if one.gain]
    told = prices(
        found.servers, advice.together.before, [advice.together, *changes], np.random.default_rng(0)
    )
    rest = iter(told[1:])
    return Prices(
        each=tuple(next(rest) if one.gain else None for one in advice.suggestions),
        together=told[0],
        requests=sum(one.side.n for one in found.servers),
        servers=tuple(name for one in found.servers for name in one.side.servers),
        notes=tuple(found.notes),
    )
