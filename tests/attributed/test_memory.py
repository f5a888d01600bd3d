"""Slow memory planted in one class of an engine's requests: counted by its thread, by the kernel beside it, joined with
the requests and quoted as evidence. Counts are compared, no times."""

from __future__ import annotations

import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from analysis.observed.model import Observed, Trace
from analysis.observed.request import trace
from cachemodel.observed import SHOOTDOWNS
from hitmap.cli import cli
from hitmap.commands._engine_faults import ask
from hitmap.demo.engine_process import engine
from hitmap.demo.stage import Stage, stage
from probes.kernel import requirements
from probes.kernel.requirements import Host
from store.client import connect
from tests.attributed.live import small_model
from tests.collector.support import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_MISSING = requirements.missing(Host())
needs_ebpf = pytest.mark.skipif(
    bool(_MISSING), reason="; ".join(f"{one.why}: needs {one.needs}" for one in _MISSING)
)
SERVER = "memory"
MEGABYTE_OF_PAGES = (1 << 20) // resource.getpagesize()
LOAD_S, RATE, COLD_PART = 60.0, 6.0, 0.4
STORMS = 3  # other work may hold the other CPU for as long as one of them lasts
MAJOR = "hitmap.thread.page_faults.major"


@dataclass(frozen=True)
class Played:
    """dsn: of the store. storms: ids of the requests that unmapped, each sent alone; quiet: of one before them."""

    dsn: str
    storms: list[str]
    quiet: str


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    home = tmp_path_factory.mktemp("memory")
    with stage(home) as ground:
        doors = [
            "--otlp",
            ground.otlp,
            "--service-name",
            SERVER,
            "--threads",
            "1",
            "--served-model-name",
            SERVER,
        ]
        with engine(home / "engine.log", [*doors, "--model", str(small_model(home / "small"))]) as serving:
            with probe(serving.pid, ground, home / "probe.log"):
                ask("POST", serving.url, None, "layer=prefix,cold_mb=1,salt=cold")
                load(serving.url)
                ask("DELETE", serving.url, None)
                quiet = complete(serving.url, "before the storm", "")
                ask("POST", serving.url, None, "layer=prefix,unmap_mb=32,salt=storm")
                time.sleep(1.2)  # the points before are told: none reaches into the storm
                storms = []
                for number in range(STORMS):
                    storms.append(complete(serving.url, f"storm {number}", "storm"))
                    time.sleep(1.2)
            settled(ground)
        yield Played(ground.dsn, storms, quiet)


@contextmanager
def probe(pid: int, ground: Stage, log: Path) -> Iterator[None]:
    """`hitmap probe` beside the engine, ended as an operator ends it."""
    command = [sys.executable, "-m", "hitmap", "probe", "--pid", str(pid), "--kernel", "--to", ground.otlp]
    with log.open("w") as out:
        watching = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
    try:
        with connect(ground.dsn) as client:
            told = "SELECT count() FROM otel_metrics_sum WHERE ServiceName = 'hitmap-probe'"
            wait_until(lambda: client.query(told).result_rows[0][0] > 0, 60)
        yield
    finally:
        watching.send_signal(signal.SIGTERM)
        assert watching.wait(30) == 0, log.read_text()


def load(url: str) -> None:
    """Requests of two classes that alternate by chance, each when it is due."""
    rng, began, due = random.Random(1), time.monotonic(), 0.0
    with ThreadPoolExecutor(16) as pool:
        asked = []
        for number in range(10_000):
            if (due := due + rng.expovariate(RATE)) > LOAD_S:
                break
            time.sleep(max(0.0, began + due - time.monotonic()))
            salt = "cold" if rng.random() < COLD_PART else "warm"
            asked.append(pool.submit(complete, url, f"number {number}", salt))
    assert all(one.result() for one in asked)


def complete(url: str, name: str, salt: str) -> str:
    body = {
        "model": SERVER,
        "prompt": f"{name}: " + "words to read " * 20,
        "max_tokens": 8,
        **({"cache_salt": salt} if salt else {}),
    }
    call = urllib.request.Request(
        f"{url}/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(call, timeout=60) as answer:
        return str(json.load(answer)["id"])


def settled(ground: Stage) -> None:
    time.sleep(1.5)  # the engine sends its spans twice a second
    ground.drain()


def rows(dsn: str, query: str) -> list[tuple[Any, ...]]:
    with connect(dsn) as client:
        return list(client.query(query).result_rows)


def traced(dsn: str, request_id: str) -> Trace:
    with connect(dsn) as client:
        return trace(client, request_id)


def told(found: Trace, metric: str, *, source: str = "", **attributes: str) -> Iterator[Observed]:
    for one in found.observed:
        values = set(one.attributes.values())
        if one.metric == metric and source in ("", one.source) and set(attributes.values()) <= values:
            yield one


def test_cold_reads_are_page_faults_of_their_class_and_of_no_other(played: Played) -> None:
    """256 each, to the page; others have at most a few that the program needs for itself."""
    found = rows(
        played.dsn,
        f"SELECT labels['fault'] LIKE '%cold%', toUInt64(observed['{MAJOR}']) FROM requests"
        " WHERE mapContains(observed, 'hitmap.thread.page_faults.major')",
    )
    cold, warm = ([faults for is_cold, faults in found if is_cold == wanted] for wanted in (1, 0))
    assert len(cold) > 0.2 * RATE * LOAD_S
    assert len(warm) > 0.3 * RATE * LOAD_S
    assert sum(faults != MEGABYTE_OF_PAGES for faults in cold) <= 2  # a page of the program itself came along
    assert min(cold) == MEGABYTE_OF_PAGES
    assert sum(faults > 0 for faults in warm) <= 3
    assert max(warm) < 64


def test_attribution_quotes_them_as_evidence(played: Played) -> None:
    asked = [
        "report",
        "--store",
        played.dsn,
        "--metric",
        "e2e",
        "--a",
        "fault=",
        "--b",
        "fault=layer=prefix*",
    ]
    shown = CliRunner().invoke(cli, [*asked, "--json"])
    assert shown.exit_code == 0, shown.output
    findings = {one["rule"]: one for one in json.loads(shown.output)["attribution"]["findings"]}
    evidence = findings["major-faults"]["evidence"]
    print("\n" + "\n".join(evidence))
    faults = re.search(r"waited for a disk, counted by its thread: ([\d.]+) -> (\d+)", evidence[0])
    assert faults
    assert float(faults[1]) < 0.5  # a page of the program itself may come along
    assert 240 <= int(faults[2]) <= 257  # and the request that only unmapped
    assert any("did not run" in line and "ms ->" in line for line in evidence)


@needs_ebpf
def test_the_kernel_counts_the_same_beside_it(played: Played) -> None:
    """All that the engine's process faulted on a disk, by who read: what the threads counted, and a few more."""
    by_threads = rows(played.dsn, f"SELECT sum(observed['{MAJOR}']) FROM requests")[0][0]
    by_kernel = rows(
        played.dsn,
        "SELECT sumIf(Value, MetricName = 'process.paging.faults' AND has(mapValues(Attributes), 'major')),"
        " sumIf(Value, MetricName = 'hitmap.page_faults' AND Attributes['hitmap.fault.access'] = 'read'"
        " AND Attributes['hitmap.fault.mode'] = 'user') FROM otel_metrics_sum",
    )[0]
    assert by_threads <= by_kernel[0] < by_threads + 500
    assert by_threads <= by_kernel[1] < 1.2 * by_threads + 5000


@needs_ebpf
def test_a_storm_of_unmapping_shows_as_shootdowns_of_the_request(played: Played) -> None:
    """8,192 pages, each of which interrupts the other CPU unless somebody else has it just then; the request before had
    next to none."""
    storms, quiet = [traced(played.dsn, one) for one in played.storms], traced(played.dsn, played.quiet)
    pages = 32 * MEGABYTE_OF_PAGES
    *shot, before = [
        sum(one.estimate or 0 for one in told(found, "hitmap.tlb_flushes", reason="remote_ipi_send"))
        for found in (*storms, quiet)
    ]
    print(f"\n{shot} shootdowns sent, {before} by the request before")
    assert "remote_ipi_send" in SHOOTDOWNS
    for storm in storms:
        (minor,) = told(storm, "process.paging.faults", source="its spans", kind="minor")
        assert pages <= minor.value <= pages + 512
        assert storm.processes[0].by == "spans"
    assert before < 0.02 * pages
    assert max(shot) < 1.2 * pages
    if len(os.sched_getaffinity(0)) == 1:
        pytest.skip("one CPU has nobody to interrupt")
    assert max(shot) > 0.1 * pages
