"""What `hitmap advise` reads of a store: prompts that capture kept, and what hashes tell without."""

from __future__ import annotations

from datetime import UTC, datetime

from clickhouse_connect.driver.client import Client

from analysis.advisor.stored import read_prompts
from hitmap.advise.inputs import Read

_CACHES = {"sglang": "sglang", "llama_cpp": "llama.cpp"}  # of other dialects, blocks as vLLM's


def read_store(client: Client, requests: str) -> Read:
    """requests: a set as `hitmap misses` takes it. Raises UserError."""
    found = read_prompts(client, requests, now=datetime.now(UTC))
    return Read(
        prompts=found.prompts,
        places={},
        left_out=found.left_out,
        block_size=found.block_size,
        cache=_CACHES.get(found.dialect, "vllm"),
        partings=[str(parting) for parting in found.partings],
    )
