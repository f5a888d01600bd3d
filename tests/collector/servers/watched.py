"""A stub server watched the way `hitmap attach` does it, down to the store, and what the store then says of it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from clickhouse_connect.driver.client import Client

from collector.attach import Attachment, AttachOptions, detect
from collector.detection import Detection
from collector.pipeline import Pipeline
from collector.source import RUNNING
from tests.collector.support import HASHER, Server, text, wait_until


def watch(dsn: str, spool: Path, server: Server, bodies: Iterable[str], **options: Any) -> Detection:
    """Attach to `server` as "s", let its /metrics say each body at least twice, and wait until all is in the store."""
    first, *rest = bodies
    with server:
        server.answers["/metrics"] = text(first)
        detection = detect(server.url)
        with (
            Pipeline(dsn, spool) as pipeline,
            Attachment(
                detection, AttachOptions("s", interval_s=0.05, **options), pipeline.sink, hasher=HASHER
            ) as attachment,
        ):
            for body in (first, *rest):
                server.answers["/metrics"] = text(body)
                _scraped(attachment, 2)
            for source in attachment.sources[1:]:
                wait_until(lambda source=source: source.status().state == RUNNING)  # type: ignore[misc]
    return detection


def _scraped(attachment: Attachment, more: int) -> None:
    counts = attachment.sources[0].status().counts
    wait_until(
        lambda: attachment.sources[0].status().counts.get("scrapes", 0) >= counts.get("scrapes", 0) + more + 1
    )


def growth(client: Client) -> dict[str, float]:
    """What every counter of a dialect grew by, summed over its series the way any reader does: those that say where
    tokens came from as `metric source`."""
    rows = client.query(
        """
        SELECT concat(metric, if(source = '', '', ' '), source) AS name, sum(delta)
        FROM samples
        JOIN (SELECT DISTINCT fingerprint, metric, labels['source'] AS source FROM series WHERE metric != '')
            AS known USING (fingerprint)
        WHERE delta IS NOT NULL
        GROUP BY name
        """
    ).result_rows
    return {name: value for name, value in rows if value}


def latest(client: Client) -> dict[str, list[float]]:
    """The newest value of each gauge, of all its series."""
    rows = client.query(
        """
        SELECT metric, groupArray(value) FROM
        (
            SELECT any(metric) AS metric, argMax(value, time) AS value
            FROM samples JOIN (SELECT DISTINCT fingerprint, metric FROM series WHERE metric != '' AND kind = 'gauge')
                AS known USING (fingerprint)
            GROUP BY fingerprint
        )
        GROUP BY metric
        """
    ).result_rows
    return {name: sorted(values) for name, values in rows}


def units(client: Client) -> dict[str, str]:
    """The unit of each metric that is known."""
    return dict(client.query("SELECT DISTINCT metric, unit FROM series WHERE metric != ''").result_rows)
