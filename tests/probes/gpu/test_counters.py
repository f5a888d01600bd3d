"""What a burst says: of a kernel only what was counted while it, and nothing else, ran."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemodel import observed
from probes.gpu.counters import (
    SETS,
    Burst,
    Kernel,
    Sample,
    inside_one_kernel,
    mean_over_time,
    same_clock,
    summed,
)
from tests.probes.gpu.conftest import compiled, headers

times = st.integers(0, 60)
kernels = st.lists(
    st.builds(
        lambda name, start, long: Kernel(name, start, start + long), st.sampled_from("abc"), times, times
    )
)


@given(kernels, st.lists(st.integers(1, 9), max_size=12), times)
def test_a_sample_is_a_kernels_only_where_it_alone_ran(
    ran: list[Kernel], lengths: list[int], at: int
) -> None:
    samples = []
    for place, length in enumerate(lengths):
        samples.append(Sample(at, at + length, (float(place),)))
        at += length
    found = inside_one_kernel(Burst(samples, ran, (0, 1000)))
    expected: dict[str, list[Sample]] = {}
    for sample in samples:  # by the word of the promise, each against each
        touching = [kernel for kernel in ran if kernel.start < sample.end and kernel.end > sample.start]
        if len(touching) == 1:
            (only,) = touching
            if only.start <= sample.start and sample.end <= only.end:
                expected.setdefault(only.name, []).append(sample)
    assert found == expected


@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**9)), min_size=1))
def test_sums_are_sums_and_a_ratio_is_one_of_sums(pairs: list[tuple[int, int]]) -> None:
    sums = summed(
        Sample(i * 10, i * 10 + 10, (float(hit), float(miss))) for i, (hit, miss) in enumerate(pairs)
    )
    assert sums is not None
    hits, misses = (sum(column) for column in zip(*pairs, strict=True))
    assert sums.values == (hits, misses)
    assert sums.seconds == pytest.approx(len(pairs) * 1e-8)
    assert sums.ratio == (pytest.approx(hits / (hits + misses)) if hits + misses else None)


def test_samples_without_numbers_count_nothing() -> None:
    nan = Sample(0, 10, (float("nan"), 4.0))
    assert summed([nan]) is None
    assert summed([nan, Sample(10, 20, (1.0, 2.0)), Sample(20, 20, (9.0, 9.0))]) == summed(
        [Sample(0, 10, (1.0, 2.0))]
    )
    assert mean_over_time([nan]) is None
    assert mean_over_time([nan, Sample(0, 10, (50.0,)), Sample(10, 40, (90.0,))]) == pytest.approx(80.0)


def test_samples_of_another_clock_are_told_apart() -> None:
    samples = [Sample(5_000_000, 5_100_000, (1.0,)), Sample(5_100_000, 5_200_000, (1.0,))]
    assert same_clock(Burst(samples, (), (5_000_000, 5_200_000)))
    assert same_clock(Burst(samples, (), (5_900_000, 5_950_000)))
    assert not same_clock(Burst(samples, (), (6_100_000, 7_000_000)))
    assert not same_clock(Burst(samples, (), (0, 4_100_000)))
    assert not same_clock(Burst([], (), (0, 1)))


def test_every_metric_is_one_that_readers_know() -> None:
    for forms in SETS:
        for form in forms:
            told = [(form.ratio, ()), (form.mean, form.attributes), *filter(None, form.counts)]
            for metric, attributes in told:
                if metric:
                    assert {key for key, _ in attributes} <= set(observed.BY_NAME[metric].attributes)
            assert {observed.BY_NAME[count[0]].kind for count in form.counts if count} <= {"counter"}
            assert not form.ratio or len(form.counters) >= 2


KNOWN = r"""
#include <stdio.h>
#include <stdlib.h>
#include <nvperf_host.h>
#include <nvperf_cuda_host.h>
int main(int count, char **names) /* chip, then names: prints those that the chip does not know */
{
    NVPW_InitializeHost_Params host = {NVPW_InitializeHost_Params_STRUCT_SIZE};
    NVPW_CUDA_MetricsEvaluator_CalculateScratchBufferSize_Params size = {
        NVPW_CUDA_MetricsEvaluator_CalculateScratchBufferSize_Params_STRUCT_SIZE};
    NVPW_CUDA_MetricsEvaluator_Initialize_Params start = {NVPW_CUDA_MetricsEvaluator_Initialize_Params_STRUCT_SIZE};
    size.pChipName = start.pChipName = names[1];
    if (NVPW_InitializeHost(&host) || NVPW_CUDA_MetricsEvaluator_CalculateScratchBufferSize(&size)) return 1;
    start.scratchBufferSize = size.scratchBufferSize;
    start.pScratchBuffer = malloc(size.scratchBufferSize);
    if (NVPW_CUDA_MetricsEvaluator_Initialize(&start)) return 1;
    for (int place = 2; place < count; place++) {
        NVPW_MetricEvalRequest request;
        NVPW_MetricsEvaluator_ConvertMetricNameToMetricEvalRequest_Params ask = {
            NVPW_MetricsEvaluator_ConvertMetricNameToMetricEvalRequest_Params_STRUCT_SIZE};
        ask.pMetricsEvaluator = start.pMetricsEvaluator;
        ask.pMetricName = names[place];
        ask.pMetricEvalRequest = &request;
        ask.metricEvalRequestStructSize = NVPW_MetricEvalRequest_STRUCT_SIZE;
        if (NVPW_MetricsEvaluator_ConvertMetricNameToMetricEvalRequest(&ask)) puts(names[place]);
    }
    return 0;
}
"""


@pytest.mark.parametrize("chip", ["GH100", "GB100", "GA100", "AD102"])
def test_nvidias_library_knows_every_counter(chip: str, tmp_path: Path) -> None:
    include = headers("nvidia-cuda-cupti", "nvperf_host.h")
    library = include.parent / "lib" / "libnvperf_host.so"
    try:
        ctypes.CDLL(str(library))
    except OSError as error:
        pytest.skip(
            f"no libnvperf_host.so for this machine ({error}): pip install 'hitmap[cupti]' on x86-64 or arm64"
        )
    source = tmp_path / "known.c"
    source.write_text(KNOWN)
    program = compiled(
        source, tmp_path / "known", f"-I{include}", "-w", str(library), f"-Wl,-rpath,{library.parent}"
    )
    names = sorted({name for forms in SETS for form in forms for name in form.counters})
    ran = subprocess.run(
        [str(program), chip, *names, "l1tex__bogus.sum"], capture_output=True, text=True, check=True
    )
    unknown = set(ran.stdout.split()) - {"l1tex__bogus.sum"}
    assert "l1tex__bogus.sum" in ran.stdout
    realtime = {"lts__average_t_sector_hit_rate_realtime.pct"} if chip == "GA100" else set()
    assert unknown == realtime
