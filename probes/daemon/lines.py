"""Points as JSON lines, to look at or for a script."""

from __future__ import annotations

import json
import os
from collections import Counter
from typing import TextIO

from cachemodel.errors import UserError
from cachemodel.observed import BY_NAME, SCALED, SERVICE, SOURCE, THREAD_ID
from probes.daemon.deltas import Point
from probes.daemon.otlp import Resources, resource_of


class Lines:
    """A sink. over: whether nobody reads them any more, as of `| head`."""

    trouble = ""

    def __init__(self, out: TextIO) -> None:
        self.over = False
        self.lost: Counter[str] = Counter()
        self._out = out

    def put(self, points: list[Point], resources: Resources) -> None:
        """Print them; times are Unix nanoseconds. Raises UserError where they cannot be written."""
        if self.over:
            return
        try:
            self._out.writelines(json.dumps(_line(point, resources)) + "\n" for point in points)
            self._out.flush()
        except OSError as error:
            self.over = True
            # what is still in its buffer would be tried again when Python ends, and fail again
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._out.fileno())
            os.close(nowhere)
            if not isinstance(error, BrokenPipeError):
                raise UserError(f"the points cannot be written: {error.strerror}") from None

    def close(self) -> None:
        pass


def _line(point: Point, resources: Resources) -> dict[str, object]:
    reading = point.reading
    told: dict[str, str | int | float] = {**dict(reading.attributes), SOURCE: reading.source}
    if reading.tid is not None:
        told[THREAD_ID] = reading.tid
    if reading.running < 1.0:
        told[SCALED] = reading.running
    resource = resource_of(reading.pid, resources)
    return {
        "metric": reading.metric,
        "value": point.value,
        "unit": BY_NAME[reading.metric].unit,
        "start_ns": point.start_ns,
        "end_ns": point.end_ns,
        "attributes": told,
        "resource": {key: value for key, value in resource.items() if value != SERVICE},
    }
