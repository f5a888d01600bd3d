"""Points as JSON lines, to look at or for a script."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import TextIO

from cachemodel.observed import BY_NAME, SCALED, SERVICE, SOURCE, THREAD_ID
from probes.daemon.deltas import Point
from probes.daemon.otlp import Attributes


class Lines:
    """A sink. lost: lines that nobody reads any more."""

    trouble = ""

    def __init__(self, out: TextIO) -> None:
        self.lost: Counter[str] = Counter()
        self._out = out

    def put(self, points: list[Point], resources: Mapping[int | None, Attributes]) -> None:
        """Print them; times are Unix nanoseconds."""
        try:
            for point in points:
                self._out.write(json.dumps(_line(point, resources)) + "\n")
            self._out.flush()
        except BrokenPipeError:
            self.lost["closed"] += len(points)
            self.trouble = "nobody reads the output any more"

    def close(self) -> None:
        pass


def _line(point: Point, resources: Mapping[int | None, Attributes]) -> dict[str, object]:
    reading = point.reading
    told = {**dict(reading.attributes), SOURCE: reading.source}
    if reading.tid is not None:
        told[THREAD_ID] = str(reading.tid)
    if reading.running < 1.0:
        told[SCALED] = str(reading.running)
    resource = resources.get(reading.pid) or {"process.pid": str(reading.pid)}
    return {
        "metric": reading.metric,
        "value": point.value,
        "unit": BY_NAME[reading.metric].unit,
        "start_ns": point.start_ns,
        "end_ns": point.end_ns,
        "attributes": told,
        "resource": {key: value for key, value in resource.items() if value != SERVICE},
    }
