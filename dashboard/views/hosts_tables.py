"""Processes and GPUs with their figures, a row each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st

from analysis.observed.figures import DENOMINATORS, FIGURES, OF_GPUS, OF_PROCESSES, Figure
from analysis.observed.watched import Hosts, Key, Watched
from cachemodel.printable import printable

TABLE = "table.processes"
MOST_ROWS = 1_000
_MIB = 1 << 20
_SHORT = {
    "cpu": "cores",
    "minor": "minor/s",
    "major": "major/s",
    "shootdowns": "shootdowns/s",
    "flushes": "flushes/s",
    "switches": "switches/s",
    "rss": "RSS, MiB",
    "gpu_memory": "GPU, MiB",
    "dtlb": "dTLB miss",
    "llc": "LLC miss",
    "l1d": "L1d miss",
    "memory": "memory, MiB",
    "limit": "of MiB",
    "busy": "busy",
    "dram": "DRAM bandwidth",
    "l2": "L2 hit",
    "l1": "L1 hit",
    "tensor": "tensor active",
    "pcie_in": "PCIe in, MiB/s",
    "pcie_out": "PCIe out, MiB/s",
    "nvlink_in": "NVLink in, MiB/s",
    "nvlink_out": "NVLink out, MiB/s",
    "throttled": "throttled",
    "corrected": "ECC corrected",
    "uncorrected": "uncorrected",
}


def processes(found: Sequence[Watched], chosen: Callable[[Key], None]) -> None:
    """A row a process, those that took most CPU first. chosen: called with the one that is ticked."""
    shown = found[:MOST_ROWS]

    def picked() -> None:
        rows = st.session_state[TABLE].selection.rows
        if rows and rows[0] < len(shown):
            chosen(shown[rows[0]].key)

    rows: dict[str, list[Any]] = {
        "process": [_cell(f"{one.executable or '?'} ({one.pid})") for one in shown],
        "server": [_cell(one.server) for one in shown],
        "host": [_cell(one.host) for one in shown],
        "port": [_cell(one.port) for one in shown],
    }
    for name in ("server", "host", "port"):
        if not any(rows[name]) or (name == "host" and len(set(rows[name])) == 1):
            del rows[name]
    _table(rows, shown, OF_PROCESSES, key=TABLE, on_select=picked, selection_mode="single-row")
    if len(found) > MOST_ROWS:
        st.caption(f"The first {MOST_ROWS:,} of {len(found):,} processes; the files have all.")


def gpus(found: Sequence[Watched]) -> None:
    """A row a GPU or MIG instance."""
    rows: dict[str, list[Any]] = {
        "GPU": [_cell(one.product or "GPU") for one in found],
        "id": [_cell(one.gpu) for one in found],
        "host": [_cell(one.host) for one in found],
    }
    _table(rows, found, OF_GPUS, key="table.gpus")


def _table(
    rows: dict[str, list[Any]], shown: Sequence[Watched], figures: Sequence[Figure], **more: Any
) -> None:
    """With a column a figure that any of them has."""
    config: dict[str, Any] = {
        name: st.column_config.TextColumn(width=150 if at == 0 else None if at > 1 else 105)
        for at, name in enumerate(rows)
    }
    for figure in figures:
        values = [one.figures.get(figure.name) for one in shown]
        if figure.name not in _SHORT or all(value is None for value in values):
            continue
        name, unit = _SHORT[figure.name], figure.unit
        scale = 1 / _MIB if unit.startswith("By") else 1.0
        rows[name] = [None if value is None else value * scale for value in values]
        form = "percent" if unit == "1" else "%.2f" if unit == "s/s" else "localized"
        if form == "localized":
            rows[name] = [None if value is None else _rounded(value) for value in rows[name]]
        config[name] = st.column_config.NumberColumn(
            format=form, help=f"{figure.label}: {figure.row.meaning}"
        )
    st.dataframe(rows, hide_index=True, column_config=config, height=min(38 + 35 * len(shown), 388), **more)


def _rounded(value: float) -> float:
    """Three digits are enough to look at, and whole numbers where there are more."""
    return round(value) if value >= 100 else float(f"{value:.3g}")


def as_rows(found: Hosts) -> list[dict[str, object]]:
    """For a file, in full precision: a column a figure, empty where nothing tells."""
    names = [name for name in FIGURES if name not in DENOMINATORS]
    return [
        {
            "host": one.host,
            "pid": one.pid,
            "executable": one.executable,
            "server": one.server,
            "port": one.port,
            "gpu": one.gpu,
            "product": one.product,
            **{name: one.figures.get(name) for name in names},
        }
        for one in (*found.processes, *found.gpus, *found.probes)
    ]


def _cell(text: str) -> str:
    return printable(text, lines=False)
