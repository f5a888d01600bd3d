"""The recording of vLLM through hitmap's own readers, without its spans and without what usage tells of its cache:
prompts and KV events alone say what was served."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from clickhouse_connect.driver.client import Client

from analysis.misses.explain import explain
from analysis.misses.parts import HITS, total
from analysis.misses.report import build
from store.embedded import Embedded
from tests.analysis.misses.captured import database, take_in

NOW = datetime(2026, 11, 29, 13, tzinfo=UTC)
REQUESTS, TOKENS = 168, 0.98


@dataclass(frozen=True)
class Untold:
    """A store, and the cached tokens that usage has of each request, which the store was not told."""

    client: Client
    usage: Mapping[str, int]


def _untold(run: Path, folder: Path) -> dict[str, int]:
    """Write the recording anew without cached tokens, as a server logs that does not tell them; what they were."""
    usage, lines = {}, []
    for line in (run / "requests.jsonl").read_text().splitlines():
        told = json.loads(line)
        if details := told.get("usage", {}).pop("prompt_tokens_details", None):
            usage[str(told["response_id"])] = int(details["cached_tokens"])
        lines.append(json.dumps(told))
    folder.mkdir()
    (folder / "requests.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "kv_events.jsonl").symlink_to(run / "kv_events.jsonl")
    (folder.parent / "model").symlink_to(run.parent / "model")
    return usage


@pytest.fixture(scope="module")
def untold(store_server: Embedded, run1: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Untold]:
    folder = tmp_path_factory.mktemp("untold")
    usage = _untold(run1, folder / "run")
    with database(store_server, "misses_untold") as dsn:
        yield Untold(take_in(dsn, folder / "run", folder, spans=False), usage)


def test_misses_estimates_what_usage_would_tell(untold: Untold) -> None:
    ids = untold.client.query("SELECT count(), countIf(cached_tokens IS NOT NULL) FROM requests").result_rows
    assert ids == [(175, 0)]
    report = build(untold.client, "", by="phase", now=NOW)
    assert report.derived == report.total.placed == 175
    assert report.total.prompt == sum(report.total.parts.values())
    assert total(report.total.parts, HITS) >= TOKENS * sum(untold.usage.values())


def test_explain_does_so_of_each(untold: Untold) -> None:
    off = {}
    for name, cached in untold.usage.items():
        found = explain(untold.client, name)
        hits = sum(run.end - run.start for run in found.runs if run.part in HITS)
        assert found.derived
        assert sum(run.end - run.start for run in found.runs) == found.prompt
        if hits != cached:
            off[name] = hits - cached
    print(f"\n{len(untold.usage) - len(off)} of {len(untold.usage)} as usage has them; off by {off}")
    assert len(untold.usage) == 173
    assert len(untold.usage) - len(off) >= REQUESTS
    assert sum(map(abs, off.values())) <= (1 - TOKENS) * sum(untold.usage.values())
