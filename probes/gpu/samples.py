"""GPM: what happened on a device between two samples of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from probes.gpu.nvml import Nvml, Refused

APART_S = 0.1
"""Samples closer than this are not told apart: the driver refreshes them so often (nvml.h, nvmlGpmMetricsGet)."""
NOT_SUPPORTED, NOT_READY = 3, 27


class GpmSamples:
    """Two sample buffers that take turns.

    gpu: handle of the whole GPU; instance: id of a GPU instance where a MIG instance is meant.
    """

    def __init__(self, nvml: Nvml, gpu: Any, instance: int | None) -> None:
        self._nvml, self._gpu, self._instance = nvml, gpu, instance
        self._supported: bool | None = None
        self._before: Any = None
        self._before_at = -math.inf
        self._spare: Any = None

    def between(self, ids: Sequence[int], clock: Callable[[], float]) -> tuple[float, list[float | Refused]]:
        """Seconds since the last sample, and for each metric its value over them, or why there is none.

        Raises Refused where there is no sample, none yet to compare with, or where the last is too young.
        """
        self._check()
        now = clock()
        if now - self._before_at < APART_S:
            why = f"two GPM samples must lie {APART_S * 1e3:.0f} ms apart; the last is younger"
            raise Refused(NOT_READY, why, "reads that are further apart")
        after = self._sample()
        if self._before is None:
            self._before, self._before_at, self._spare = after, now, None
            raise Refused(NOT_READY, "GPM tells what was between two samples, and this was the first")
        values = self._metrics(self._before, after, ids)
        seconds = now - self._before_at
        self._before, self._before_at, self._spare = after, now, self._before
        return seconds, values

    def close(self) -> None:
        """Frees the buffers, unless the driver took them along."""
        for sample in (self._before, self._spare):
            if sample is not None:
                try:
                    self._nvml.call("nvmlGpmSampleFree", sample)
                except Refused:
                    continue  # gone with its driver
        self._before = self._spare = None

    def _check(self) -> None:
        if self._supported is None:
            self._supported = bool(self._nvml.call("nvmlGpmQueryDeviceSupport", self._gpu).isSupportedDevice)
        if not self._supported:
            raise Refused(NOT_SUPPORTED, "this GPU has no GPM", "a GPU of the Hopper generation or later")

    def _sample(self) -> Any:
        if self._spare is None:
            self._spare = self._nvml.call("nvmlGpmSampleAlloc")
        if self._instance is None:
            return self._nvml.call("nvmlGpmSampleGet", self._gpu, self._spare)
        return self._nvml.call("nvmlGpmMigSampleGet", self._gpu, self._instance, self._spare)

    def _metrics(self, before: Any, after: Any, ids: Sequence[int]) -> list[float | Refused]:
        wanted = self._nvml.lib.c_nvmlGpmMetricsGet_t()
        wanted.version, wanted.numMetrics = self._nvml.lib.NVML_GPM_METRICS_GET_VERSION, len(ids)
        wanted.sample1, wanted.sample2 = before, after
        for place, id in enumerate(ids):
            wanted.metrics[place].metricId = id
        self._nvml.call("nvmlGpmMetricsGet", wanted)
        return [
            Refused(metric.nvmlReturn) if metric.nvmlReturn else float(metric.value)
            for metric in wanted.metrics[: len(ids)]
        ]
