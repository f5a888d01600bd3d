"""What the tests of the scraper share."""

from __future__ import annotations

from typing import Any

from collector.dialects.vllm.detect import canonical_names
from collector.scrape import Scraper, Target
from collector.spool import Spool
from tests.collector.support import Server, take

LABELS = 'engine="0",model_name="tiny-llama"'


def scraper(server: Server, spool: Spool, **options: Any) -> Scraper:
    stored = options.pop("stored", dict)
    return Scraper(
        Target("s", f"{server.url}/metrics", timeout_s=1.0, **options), canonical_names, spool, stored
    )


class Rows:
    """The rows a scraper stored, read by the series' name."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self.series: dict[int, dict[str, Any]] = {}

    def new(self) -> dict[str, list[dict[str, Any]]]:
        """Samples since the last look, by raw name."""
        self.series |= {row["fingerprint"]: row for row in take(self._spool, "series")}
        found: dict[str, list[dict[str, Any]]] = {}
        for row in take(self._spool, "samples"):
            found.setdefault(self.series[row["fingerprint"]]["raw_name"], []).append(row)
        return found

    def deltas(self, raw_name: str) -> list[float | None]:
        return [row["delta"] for row in self.new().get(raw_name, [])]
