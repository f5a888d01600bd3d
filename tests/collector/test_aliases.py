"""Names as servers spell them, typed from the atlas (servers/names.txt), through the parser to their canonical names.

The tables of the dialects are not asked: a name that is misspelt there is found here.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest

from collector.prometheus import parse
from collector.series import Resolver, SeriesTracker
from tests.collector.servers import llama_cpp, vllm
from tests.collector.servers.watched import growth, latest, units, watch
from tests.conftest import Database

NOW_US = 1_795_953_914_000_000
FILE = Path(__file__).with_name("servers") / "names.txt"
_PARTS = {"histogram": ("_sum", "_count"), "counter": ("",), "gauge": ("",)}


class Name(NamedTuple):
    """A name that a server exposes. labels: that tell it from others of its family, as in an exposition; canonical:
    empty where hitmap does not know it, for that reason."""

    dialect: str
    kind: str
    raw: str
    labels: str
    canonical: str
    reason: str = ""

    def exposed(self, value: int = 1) -> str:
        """The family as its server writes it."""
        labels = f"{{{self.labels}}}" if self.labels else ""
        lines = (f"{self.raw}{part}{labels} {value}\n" for part in _PARTS[self.kind])
        return f"# TYPE {self.raw} {self.kind}\n" + "".join(lines)


def _names() -> Iterator[Name]:
    dialect, kind, prefixes = "", "", [""]
    for line in FILE.read_text().splitlines():
        if line.startswith("["):
            dialect, kind, *prefixes = line.strip("[]").split()
        elif line and not line.startswith("#"):
            spelt, told = line.split(maxsplit=1)
            raw, _, labels = spelt.rstrip("}").partition("{")
            label, _, value = labels.partition("=")
            canonical, _, reason = ("", "", told.removeprefix("?").strip()) if "?" in told else (told, "", "")
            for prefix in prefixes:
                yield Name(
                    dialect,
                    kind,
                    raw if prefix == "-" else prefix + raw,
                    f'{label}="{value}"' if label else "",
                    canonical,
                    reason,
                )


NAMES = tuple(_names())


def resolver(dialect: str) -> Resolver:
    found: Resolver = import_module(f"collector.dialects.{dialect}.detect").canonical_names
    return found


def understood(dialect: str, body: str) -> dict[str, list[str]]:
    """The metric of each series of an exposition, by raw name and labels."""
    batch = SeriesTracker("s", resolver(dialect)).batch(parse(body.encode()), NOW_US, up=None)
    assert batch.counts.total() == 0, "a name that cannot be exposed tests nothing"
    found: dict[str, list[str]] = {}
    for row in batch.series_rows:
        found.setdefault(row["raw_name"], []).append(row["metric"])
    return found


@pytest.mark.parametrize("name", NAMES, ids=lambda name: f"{name.dialect} {name.raw}{name.labels}")
def test_a_name_alone_is_known_as_what_it_means(name: Name) -> None:
    expected = {
        name.raw + part: [name.canonical + part.replace("_", ".") if name.canonical else ""]
        for part in _PARTS[name.kind]
    }
    assert understood(name.dialect, name.exposed()) == expected
    assert bool(name.canonical) != bool(name.reason), "what is not known has a reason"


def test_the_list_is_of_every_server_and_names_each_name_once() -> None:
    spelt = [(name.dialect, name.raw, name.labels) for name in NAMES]
    assert len(spelt) == len(set(spelt))
    assert {name.dialect for name in NAMES} == {
        *("vllm", "sglang", "dynamo", "lmcache", "trtllm", "triton", "llama_cpp")
    }


def test_all_names_of_a_server_at_once_count_once() -> None:
    """Old and new spellings, both prefixes, deprecated twins: of all that mean the same only one is read."""
    for dialect in sorted({name.dialect for name in NAMES}):
        own = [name for name in NAMES if name.dialect == dialect]
        metrics = [
            metric
            for found in understood(dialect, "".join(name.exposed() for name in own)).values()
            for metric in found
            if metric
        ]
        known = {name.canonical for name in own if name.canonical}
        assert len(metrics) == len(set(metrics)), dialect
        assert {metric.removesuffix(".sum").removesuffix(".count") for metric in metrics} == known


@pytest.mark.parametrize(
    ("dialect", "prefix", "body"),
    [("vllm", "vllm:", vllm.METRICS), ("llama_cpp", "llamacpp:", llama_cpp.AFTER_MIXED)],
)
def test_every_family_of_a_recorded_server_is_in_the_list(dialect: str, prefix: str, body: str) -> None:
    """The other way round: what a running server exposes, known or left out with a reason."""
    exposition = parse(body.encode())
    exposed = {
        sample.name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count")
        for sample in exposition.samples
        if sample.name.startswith(prefix) and not sample.name.endswith("_created")
    }
    assert exposed
    assert exposed - {name.raw for name in NAMES if name.dialect == dialect} == set()


# -- figures of two servers whose names went


def test_figures_of_a_v0_engine(db: Database, tmp_path: Path) -> None:
    detection = watch(db.dsn, tmp_path, vllm.v0(), [vllm.v0_metrics(n) for n in (2, 5)])
    assert (detection.kind, detection.version) == ("vllm", "0.6.6")
    assert any(note.startswith("prefix_cache.hit_ratio_gauge: the window") for note in detection.notes)
    rows = {row.signal: row for row in detection.capabilities}
    assert rows["prefix-cache hits"].evidence == "only a ratio over an unknown window"
    assert (rows["prefix-cache hits"].seen, rows["prefix-cache hits"].flag) == (False, "vLLM 0.8 or newer")
    grown = growth(db.client)
    assert grown["prompt_tokens"] == 3 * 1000
    assert grown["preemptions"] == 3
    assert grown["queue_time.count"] == 3
    assert grown["queue_time.sum"] == pytest.approx(3 * 0.05)
    assert grown["inter_token_latency.count"] == 3
    gauges = latest(db.client)
    assert gauges["prefix_cache.hit_ratio_gauge"] == [0.8]
    assert (gauges["kv_cache.usage"], gauges["kv_cache.host_usage"]) == ([0.5], [0.25])
    assert gauges["requests.swapped"] == [2.0]


@pytest.mark.parametrize("names", ["new", "old", "new old"])
def test_figures_of_an_offload_tier(names: str, db: Database, tmp_path: Path) -> None:
    """Loads and writes under their own names, in the deprecated families by direction, and both at once."""
    bodies = [vllm.METRICS + vllm.offload_metrics(n, names) for n in (2, 5)]
    detection = watch(db.dsn, tmp_path, vllm.recorded(), bodies)
    grown = growth(db.client)
    assert {name: value for name, value in grown.items() if name.startswith(("kv_", "tier", "remote"))} == {
        "kv_load.bytes": 3 * 4096,
        "kv_load.time": 3 * 0.5,
        "kv_load.size.sum": 3 * 4096,
        "kv_load.size.count": 3,
        "kv_load.size.bucket": 3,
        "kv_store.bytes": 3 * 8192,
        "kv_store.time": 3 * 0.25,
        "kv_store.size.sum": 3 * 8192,
        "kv_store.size.count": 3,
        "kv_store.size.bucket": 3,
        "tier.query_chunks": 3 * (10 + 4),
        "tier.hit_chunks": 3 * (6 + 3),
        "remote_load.bytes": 3 * 2048,
    }
    told = units(db.client)
    assert (told["tier.hit_chunks"], told["kv_load.bytes"], told["kv_load.time"]) == ("chunks", "bytes", "s")
    assert latest(db.client)["host_cache.pinned"] == [0.125]
    assert any("not tokens; a tier is asked only for" in note for note in detection.notes)
    assert next(row for row in detection.capabilities if "load KV" in row.signal).seen
