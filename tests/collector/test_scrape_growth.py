"""What counters grew by from one scrape to the next, whatever happens in between."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from collector.resume import Stored
from collector.sink import Backpressure
from collector.spool import Spool
from collector.tally import Tally
from store.client import connect
from tests.collector.scraping import Rows, scraper
from tests.collector.support import Server, text, wait_until


def test_growth_goes_on_where_the_store_stands(run3: Path, server: Server, spool: Spool, db: Any) -> None:
    """Every text is scraped by a collector that has just been started; each knows what the one before stored."""

    def collect(file: Path, started: float = 0.0) -> None:
        body = file.read_bytes()
        if started:
            body = re.sub(rb"(?m)^(process_start_time_seconds) .*", rb"\1 %f" % started, body)
        server.answers["/metrics"] = text(body)
        source = scraper(server, spool, stored=partial(Stored(lambda: connect(db.dsn)).samples, "s"))
        source.start()
        wait_until(lambda: source.status().state == "running")
        del server.answers["/metrics"]
        source.scrape()
        source.stop()
        for kind in ("series", "samples"):
            if batch := spool.seal(kind, 1_000_000, 1 << 30):
                db.client.raw_insert(kind, insert_block=spool.payload(batch), fmt="JSONEachRow")
                spool.done(batch)

    deltas = (
        "SELECT delta FROM samples WHERE fingerprint = (SELECT fingerprint FROM series FINAL"
        " WHERE metric = 'prompt_tokens') ORDER BY time"
    )
    files = sorted((run3 / "metrics").iterdir())
    for file in files:
        collect(file)
    assert [row[0] for row in db.client.query(deltas).result_rows] == [None, 1466.0, 1466.0, 1466.0]
    collect(files[-1], started=1.9e9)
    assert db.client.query(deltas).result_rows[-1][0] == 4398.0, "the server was started anew in between"


def counter(
    value: float, *, created: float | None = None, started: float | None = None, name: str = "a"
) -> bytes:
    lines = [f"# TYPE {name}_total counter", f"{name}_total {value}"]
    if created is not None:
        lines += [f"# TYPE {name}_created gauge", f"{name}_created {created}"]
    if started is not None:
        lines.append(f"process_start_time_seconds {started}")
    return "\n".join([*lines, ""]).encode()


@pytest.mark.parametrize(
    ("bodies", "expected"),
    [
        pytest.param([counter(5), counter(7), counter(7)], [None, 2.0, 0.0], id="growth"),
        pytest.param([counter(5), counter(3)], [None, 3.0], id="it fell: everything since is growth"),
        pytest.param(
            [counter(5, created=1e9), counter(8, created=1e9 + 60)],
            [None, 8.0],
            id="made anew, already above",
        ),
        pytest.param(
            [counter(5, started=1e9), counter(8, started=1e9 + 60)], [None, 8.0], id="process started anew"
        ),
        pytest.param(
            [counter(5, started=1e9), counter(8, started=1e9 + 1)],
            [None, 3.0],
            id="a start time that jitters",
        ),
        pytest.param(
            [counter(5, created=1e9), counter(8)], [None, 3.0], id="no longer says when it was made"
        ),
    ],
)
def test_growth_of_a_counter(
    bodies: list[bytes], expected: list[float | None], server: Server, spool: Spool
) -> None:
    source, rows, found = scraper(server, spool), Rows(spool), []
    for body in bodies:
        server.answers["/metrics"] = text(body)
        source.scrape()
        found += rows.deltas("a_total")
    assert found == expected


def test_a_restart_counts_once_for_every_part_of_a_histogram(server: Server, spool: Spool) -> None:
    def body(count: int, created: float) -> bytes:
        return (
            f'# TYPE h histogram\nh_bucket{{e="0",le="1.0"}} {count}\nh_bucket{{e="0",le="+Inf"}} {count}\n'
            f'h_sum{{e="0"}} {count / 2}\nh_count{{e="0"}} {count}\nh_created{{e="0"}} {created}\n'
        ).encode()

    source, rows, found = scraper(server, spool), Rows(spool), []
    for count, created in ((4, 1e9), (6, 1e9 + 60), (7, 1e9 + 60)):
        server.answers["/metrics"] = text(body(count, created))
        source.scrape()
        found.append({name: [row["delta"] for row in samples] for name, samples in rows.new().items()})
    assert found[1] == {"h_bucket": [6.0, 6.0], "h_sum": [3.0], "h_count": [6.0], "up": [None]}
    assert found[2] == {"h_bucket": [1.0, 1.0], "h_sum": [0.5], "h_count": [1.0], "up": [None]}


def test_gauges_have_no_delta_and_what_is_not_finite_is_counted(server: Server, spool: Spool) -> None:
    source, rows = scraper(server, spool), Rows(spool)
    for value in ("1", "0.5", "NaN"):
        server.answers["/metrics"] = text(f"# TYPE g gauge\ng {value}\nh +Inf\n")
        source.scrape()
    assert [(row["value"], row["delta"]) for row in rows.new()["g"]] == [(1.0, None), (0.5, None)]
    assert source.status().counts["not_finite"] == 4


def test_a_sample_whose_time_stands_still_is_stored_once(server: Server, spool: Spool) -> None:
    server.answers["/metrics"] = text("# TYPE a_total counter\na_total 5 1795953914757\n")
    source, rows = scraper(server, spool), Rows(spool)
    source.scrape()
    assert {name: [row["time"] for row in found] for name, found in rows.new().items()} == {
        "up": [1795953914.757],
        "a_total": [1795953914.757],
    }
    source.scrape()
    assert rows.new() == {}
    assert source.status().counts["stale"] == 2
    server.answers["/metrics"] = text("# TYPE a_total counter\na_total 6 1795953915757\n")
    source.scrape()
    assert rows.deltas("a_total") == [1.0]


def test_the_same_recording_twice_adds_nothing(run3: Path, server: Server, spool: Spool) -> None:
    def play() -> dict[str, list[dict[str, Any]]]:
        source, rows = scraper(server, spool), Rows(spool)
        for number, file in enumerate(sorted((run3 / "metrics").iterdir())):
            stamped = b"\n".join(
                line if not line or line.startswith(b"#") else b"%b %d" % (line, 1795954210000 + number)
                for line in file.read_bytes().split(b"\n")
            )
            server.answers["/metrics"] = text(stamped)
            source.scrape()
        return rows.new()

    assert len(play()["vllm:prompt_tokens_total"]) == 4
    assert play() == {}


def test_a_full_spool_loses_no_growth(server: Server, tmp_path: Path) -> None:
    spool = Spool(tmp_path / "small.sqlite", Tally())
    rows = Rows(spool)
    server.answers["/metrics"] = text(counter(5))
    source = scraper(server, spool)
    source.scrape()
    rows.new()
    spool.limit_bytes = 0
    server.answers["/metrics"] = text(counter(7))
    source.scrape()
    assert source.status().counts["refused"] == 1
    assert source.status().detail == str(Backpressure(2))
    spool.limit_bytes = 1 << 30
    server.answers["/metrics"] = text(counter(10))
    source.scrape()
    assert rows.deltas("a_total") == [5.0]
    spool.close()
