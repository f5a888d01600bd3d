"""The binding's structs, its constants and our ids against NVIDIA's own header."""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path

import pynvml
import pytest

from cachemodel import observed
from probes.gpu import nvml, table
from probes.gpu.device import _MEMBERS, NOT_AVAILABLE
from tests.probes.gpu.conftest import compiled, headers

STRUCTS = {
    "nvmlMemory_v2_t": pynvml.c_nvmlMemory_v2_t,
    "nvmlBAR1Memory_t": pynvml.c_nvmlBAR1Memory_t,
    "nvmlUtilization_t": pynvml.c_nvmlUtilization_t,
    "nvmlProcessInfo_t": pynvml.c_nvmlProcessInfo_v3_t,
    "nvmlFieldValue_t": pynvml.c_nvmlFieldValue_t,
    "nvmlGpmMetric_t": pynvml.c_nvmlGpmMetric_t,
    "nvmlGpmMetricsGet_t": pynvml.c_nvmlGpmMetricsGet_t,
    "nvmlGpmSupport_t": pynvml.c_nvmlGpmSupport_t,
}


@pytest.fixture(scope="module")
def header() -> dict[str, int]:
    """Every NVML_* constant of nvml.h with a number of its own."""
    text = (headers("nvidia-nvml-dev", "nvml.h") / "nvml.h").read_text(errors="replace")
    found = re.findall(r"^\s*(?:#define\s+)?(NVML_\w+)\s*=?\s+(\d+)\b", text, re.MULTILINE)
    return {name: int(number) for name, number in found}


def test_structs_are_laid_out_as_the_header_says(tmp_path: Path) -> None:
    lines = []
    for name, struct in STRUCTS.items():
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        lines += [
            f'printf("{name}.{field[0]} %zu\\n", offsetof({name}, {field[0]}));' for field in struct._fields_
        ]
    lines.append('printf("nvmlMemory_v2 %llu\\n", (unsigned long long)nvmlMemory_v2);')
    source = tmp_path / "layout.c"
    body = "\n".join(lines)
    source.write_text(
        f"#include <stddef.h>\n#include <stdio.h>\n#include <nvml.h>\nint main(void) {{ {body} return 0; }}\n"
    )
    program = compiled(source, tmp_path / "layout")
    printed = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout
    said = {line.split()[0]: int(line.split()[1]) for line in printed.splitlines()}
    here = {"nvmlMemory_v2": table.MEMORY_V2}
    for name, struct in STRUCTS.items():
        here[name] = ctypes.sizeof(struct)
        here.update({f"{name}.{field[0]}": getattr(struct, field[0]).offset for field in struct._fields_})
    assert here == said


NAMES = {  # ids that the table uses, by the header's names
    3: "ECC_SBE_VOL_TOTAL",
    4: "ECC_DBE_VOL_TOTAL",
    5: "ECC_SBE_AGG_TOTAL",
    6: "ECC_DBE_AGG_TOTAL",
    74: "PERF_POLICY_POWER",
    75: "PERF_POLICY_THERMAL",
    76: "PERF_POLICY_SYNC_BOOST",
    77: "PERF_POLICY_BOARD_LIMIT",
    78: "PERF_POLICY_LOW_UTILIZATION",
    79: "PERF_POLICY_RELIABILITY",
    80: "PERF_POLICY_TOTAL_APP_CLOCKS",
    81: "PERF_POLICY_TOTAL_BASE_CLOCKS",
    94: "PCIE_REPLAY_COUNTER",
    138: "NVLINK_THROUGHPUT_DATA_TX",
    139: "NVLINK_THROUGHPUT_DATA_RX",
    142: "REMAPPED_COR",
    143: "REMAPPED_UNC",
    197: "PCIE_COUNT_TX_BYTES",
    198: "PCIE_COUNT_RX_BYTES",
    202: "NVLINK_COUNT_XMIT_BYTES",
    204: "NVLINK_COUNT_RCV_BYTES",
    269: "CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN",
    270: "CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN",
    271: "CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN",
    297: "MMA_STALL_PERCENT",
}
GPM_NAMES = {
    1: "GRAPHICS_UTIL",
    2: "SM_UTIL",
    3: "SM_OCCUPANCY",
    4: "INTEGER_UTIL",
    5: "ANY_TENSOR_UTIL",
    6: "DFMA_TENSOR_UTIL",
    7: "HMMA_TENSOR_UTIL",
    8: "DMMA_TENSOR_UTIL",
    9: "IMMA_TENSOR_UTIL",
    10: "DRAM_BW_UTIL",
    11: "FP64_UTIL",
    12: "FP32_UTIL",
    13: "FP16_UTIL",
    20: "PCIE_TX_PER_SEC",
    21: "PCIE_RX_PER_SEC",
    60: "NVLINK_TOTAL_RX_PER_SEC",
    61: "NVLINK_TOTAL_TX_PER_SEC",
    100: "C2C_TOTAL_TX_PER_SEC",
    101: "C2C_TOTAL_RX_PER_SEC",
    160: "HOSTMEM_CACHE_HIT",
    162: "PEERMEM_CACHE_HIT",
    164: "DRAM_CACHE_HIT",
}


def test_ids_are_the_headers(header: dict[str, int]) -> None:
    fields = {row.ask.id for row in table.ROWS if isinstance(row.ask, table.Field)}
    gpm = {row.ask.id for row in table.ROWS if isinstance(row.ask, table.Gpm)}
    assert {id: header[f"NVML_FI_DEV_{name}"] for id, name in NAMES.items()} == {id: id for id in fields}
    assert {id: header[f"NVML_GPM_METRIC_{name}"] for id, name in GPM_NAMES.items()} == {id: id for id in gpm}


def test_every_error_of_the_header_has_a_reason(header: dict[str, int]) -> None:
    codes = {number for name, number in header.items() if name.startswith("NVML_ERROR_")}
    assert len(codes) > 25
    assert codes == set(nvml._REASONS)


def test_every_metric_and_attribute_is_one_that_readers_know() -> None:
    for row in table.ROWS:
        metric = observed.BY_NAME[row.metric]
        assert {key for key, _ in row.attributes} <= set(metric.attributes)
        assert metric.kind == "gauge" or row.scale > 0


def test_the_binding_has_the_functions_the_types_and_the_sentinel() -> None:
    calls = {row.ask.function for row in table.ROWS if isinstance(row.ask, table.Call)}
    calls |= {ask.function for ask in (*table.PROCESSES.values(), table.THROTTLED, table.THROTTLE_KNOWN)}
    assert [name for name in calls if not callable(getattr(pynvml, name, None))] == []
    assert [name for name, _ in pynvml.c_nvmlValue_t._fields_] == list(_MEMBERS)
    order = "DOUBLE UNSIGNED_INT UNSIGNED_LONG UNSIGNED_LONG_LONG SIGNED_LONG_LONG SIGNED_INT UNSIGNED_SHORT"
    assert [getattr(pynvml, f"NVML_VALUE_TYPE_{name}") for name in order.split()] == list(range(7))
    assert pynvml.NVML_VALUE_NOT_AVAILABLE_ulonglong.value == NOT_AVAILABLE
