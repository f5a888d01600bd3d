"""What `hitmap advise` reads of a store: prompts that capture kept, and what hashes tell without."""

from __future__ import annotations

from datetime import UTC, datetime

from clickhouse_connect.driver.client import Client

from analysis.advisor.stored.prompts import read_prompts
from analysis.prefix_replay.named import of_dialect
from hitmap.advise.inputs import Read


def read_store(client: Client, requests: str) -> Read:
    """requests: a set as `hitmap misses` takes it. Raises UserError."""
    found = read_prompts(client, requests, now=datetime.now(UTC))
    return Read(
        prompts=found.prompts,
        places={},
        left_out=found.left_out,
        block_size=found.block_size,
        cache=of_dialect(found.dialect),
        partings=[str(parting) for parting in found.partings],
    )
