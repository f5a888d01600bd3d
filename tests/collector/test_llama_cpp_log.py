"""llama.cpp's log: lines of several builds, the sum of a task, times without a clock, no prompt text."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from collector.dialects.llama_cpp.log import LogReader
from collector.dialects.llama_cpp.log_lines import parse
from collector.log_tail import LogPosition
from collector.sink import Entry
from tests.collector.servers.llama_cpp import RUN_TINY

SLOTS_DEBUG = RUN_TINY.parent / "run_slotsdebug"


def events(entries: list[Entry]) -> list[tuple[str, int, dict[str, Any]]]:
    """Name, time (Unix ns) and attributes of each record."""
    found = []
    for entry in entries:
        for record in (
            ExportLogsServiceRequest.FromString(entry.payload).resource_logs[0].scope_logs[0].log_records
        ):
            values = {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in record.attributes}
            found.append((record.event_name.removeprefix("llama_cpp."), record.time_unix_nano, values))
    return found


def read(lines: list[str], reader: LogReader | None = None) -> list[tuple[str, int, dict[str, Any]]]:
    reader = reader or LogReader("s")
    return events([entry for line in lines for entry in reader(line, 1000.0)])


def test_where_prompts_part_is_told_without_their_text() -> None:
    lines = (SLOTS_DEBUG / "server.log").read_text().splitlines()
    reader = LogReader("s")
    found = events([entry for line in lines for entry in reader(line, 1000.0)])
    parted = [values for name, _, values in found if name == "divergence"]
    assert len(parted) == 15
    assert {k: parted[0][k] for k in ("slot", "task", "position", "old_chars", "new_chars")} == {
        "slot": 0,
        "task": 23,
        "position": 338,
        "old_chars": 5,  # "_Chid"
        "new_chars": 3,  # "_Em"
    }
    assert "Chid" not in str(found)


SELECTED = "0.01.479.485 I slot get_availabl: id  3 | task -1 | selected slot by LRU, t_last = -1"
FORCED = (
    "slot update_slots: id  1 | task 44 | forcing full prompt re-processing due to lack of cache data (likely due to"
    " SWA or hybrid/recurrent memory, see https://github.com)"
)
STARTED = (
    '{"type":"log","time":1479485,"level":"info","msg":"slot   operator(): id  2 | task 4 | new prompt, n_ctx_slot ='
    ' 4096, n_keep = 0, task.n_tokens = 365"}'
)
OF_SLOT = "3.44.824.176 W slot update_slots: id  2 | task 179 | "
LINES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    (SELECTED, "slot_selected", {"by": "LRU"}),
    (FORCED, "full_reprocessing", {"reason": "lack of cache data"}),
    (STARTED, "prompt_started", {"prompt_tokens": 365}),
    (
        "[53093] 736.46.933.316 I slot get_availabl: id  0 | task -1 | selected slot by LCP similarity,"
        " sim_best = 0.865 (> 0.100 thold), f_keep = 0.388",
        "slot_selected",
        {"by": "LCP", "similarity": 0.865, "kept": 0.388},
    ),
    (
        f"2026-05-17 10:48:09.144 | {OF_SLOT}restored context checkpoint"
        " (pos_min = 8191, pos_max = 8191, n_tokens = 8192, n_past = 8192, size = 166.782 MiB)",
        "checkpoint_restored",
        {"pos_min": 8191, "pos_max": 8191, "tokens": 8192, "size_mib": 166.782},
    ),
    (
        f"{OF_SLOT}erased invalidated context checkpoint"
        " (pos_min = 8729, pos_max = 8729, n_tokens = 8730, n_swa = 0, pos_next = 8192, size = 167.909 MiB)",
        "checkpoint_erased",
        {"pos_min": 8729, "pos_max": 8729, "tokens": 8730, "size_mib": 167.909},
    ),
    (
        f"{OF_SLOT}created context checkpoint 1 of 4"
        " (pos_min = 576, pos_max = 576, n_tokens = 577, size = 149.626 MiB)",
        "checkpoint_created",
        {"pos_min": 576, "pos_max": 576, "tokens": 577, "size_mib": 149.626},
    ),
    (
        "1.05.708.182 W srv         alloc:  - making room for prompt cache entry, removing oldest entry"
        " (size = 0.672 MiB)",
        "prompt_removed",
        {"size_mib": 0.672},
    ),
    (
        "0.01.000.000 W srv        update:  - cache size limit reached, removing oldest entry (size = 2201.968 MiB)",
        "prompt_removed",
        {"size_mib": 2201.968},
    ),
    (
        "0.01.000.000 I srv          load:  - found better prompt with f_keep = 0.916, f_sim = 0.917",
        "prompt_found",
        {"kept": 0.916, "similarity": 0.917},
    ),
    ("1.02.297.183 W srv          stop: cancel task, id_task = 1337", "cancelled", {}),
    (f"{OF_SLOT}selected slot by id (2)", "slot_selected", {"by": "id"}),
    (f"{OF_SLOT}superseding context checkpoint at n_tokens = 577", "checkpoint_erased", {"tokens": 577}),
    (
        f"{OF_SLOT}erasing context checkpoint too close to an earlier one"
        " (pos_min = 5, pos_max = 9, n_tokens = 10, size = 0.500 MiB)",
        "checkpoint_erased",
        {"pos_min": 5, "pos_max": 9, "tokens": 10, "size_mib": 0.5},
    ),
    (
        "0.01.000.000 W srv        update:  - cache token limit (16384, est: 9000) reached, removing oldest entry"
        " (size = 0.672 MiB)",
        "prompt_removed",
        {"size_mib": 0.672},
    ),
    (
        "0.01.000.000 I srv   prompt_save:  - saving prompt with length 408, total state size = 0.403 MiB"
        " (draft: 0.000 MiB)",
        "prompt_offered",
        {"tokens": 408, "size_mib": 0.403},
    ),
    (
        "0.01.000.000 I srv         alloc:  - prompt is already in the cache, skipping",
        "prompt_already_cached",
        {},
    ),
)


@pytest.mark.parametrize(("line", "name", "values"), LINES)
def test_lines_of_several_builds(line: str, name: str, values: dict[str, Any]) -> None:
    found = parse(line)
    assert found is not None
    assert (found.event, found.values) == (name, values)


def test_ids_and_times_of_lines() -> None:
    assert [(p.uptime_us, p.slot, p.task) for p in map(parse, (SELECTED, STARTED, FORCED)) if p] == [
        (1_479_485, 3, None),
        (1_479_485, 2, 4),
        (None, 1, 44),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{",
        '{"msg": 1}',
        "[1, 2]",
        '{"time":0,"msg":"slot x: id  1 | task 1 | cached"}',
        "0.01.477.641 I srv  server_strea: conv_id= (empty=1)",
        "0.0.0.0 I slot x: id 9 | task 9 | new prompt",
        "\tmirostat = 0, mirostat_lr = 0.100",
        "slot x: id  1 | task 1 | old: ... no bar",
    ],
)
def test_lines_that_mean_nothing(line: str) -> None:
    assert read([line]) == []


@given(st.sampled_from([line for line, _, _ in LINES]), st.text(max_size=30), st.integers(0, 200))
def test_no_line_stops_the_reader(line: str, text: str, position: int) -> None:
    read([line[:position] + text + line[position:], text, line[position:]])


def test_a_log_without_times_has_that_of_reading() -> None:
    """Started without --log-timestamps: in JSON the time is then 0."""
    line = STARTED.replace("1479485", "0")
    reader = LogReader("s")
    reader.anchor([line], 2_000_000.0)
    ((name, time_ns, values),) = read([line], reader)
    assert (name, time_ns, "uptime_us" in values) == ("prompt_started", 1000 * 10**9, False)


def test_what_the_slot_held_and_what_of_it_was_of_use() -> None:
    """A sliding window keeps no state for 300 of 400 common tokens: the last checkpoint before them is taken."""
    lines = (
        "0.01.000.000 I slot get_availabl: id  0 | task -1 |  - checking sim = 0.100 (50/500) > 0.100",
        "0.01.000.001 I slot get_availabl: id  1 | task -1 |  - checking sim = 0.800 (400/500) > 0.100",
        "0.01.000.002 I slot get_availabl: id  1 | task -1 | selected slot by LCP similarity,"
        " f_sim_best = 0.800 (> 0.100 thold), f_keep = 0.900",
        "0.01.000.003 I slot operator(): id  1 | task 9 | new prompt, n_ctx_slot = 4096, n_keep = 0,"
        " task.n_tokens = 500",
        "0.01.000.004 W slot operator(): id  1 | task 9 | old: ...  | Bo",
        "0.01.000.005 W slot operator(): id  1 | task 9 | new: ...  | Anna",
        "0.01.000.006 I slot operator(): id  1 | task 9 | restored context checkpoint (pos_min = 0, pos_max = 255,"
        " n_tokens = 256, n_past = 256, size = 1.000 MiB)",
        "0.01.000.007 I slot operator(): id  1 | task 9 | cached n_tokens = 256, memory_seq_rm [256, end)",
        "0.01.000.008 I slot print_timing: id  1 | task 9 | prompt eval time =     20.00 ms /   244 tokens",
        "0.01.000.009 I slot      release: id  1 | task 9 | stop processing: n_tokens = 510, truncated = 0",
    )
    found = {name: values for name, _, values in read(list(lines))}
    assert found["slot_selected"]["common_tokens"] == 400
    request = found["request"]
    assert (request["slot_common_tokens"], request["restored_tokens"]) == (400, 256)
    assert (request["prompt_tokens"], request["cached_tokens"], request["computed_tokens"]) == (500, 256, 244)
    assert found["divergence"]["old_chars"], found["divergence"]["new_chars"] == (2, 4)
    assert "position" not in found["divergence"], "the prompts part later than what is cached ends"


@pytest.mark.parametrize(
    "line",
    [
        STARTED.replace("1479485", "9" * 30),
        STARTED.replace("365", "9" * 30),
        STARTED.replace("365", "9" * 5_000),
        STARTED.replace("task 4", f"task {'9' * 30}"),
        f"{'9' * 30}.59.999.999 I slot x: id  1 | task 1 | cached n_tokens = 5",
        f"0.01.000.000 I slot x: id  1 | task 1 | prompt eval time = {'9' * 400} ms / 5 tokens",
    ],
)
def test_numbers_beyond_all_measure(line: str) -> None:
    reader = LogReader("s")
    reader.anchor([line], 2_000_000.0)
    for name, time_ns, _ in read([TASK[0], line, line], reader):
        assert name
        assert time_ns < 10**19


TASK = (
    "0.10.000.000 I slot   operator(): id  1 | task 7 | new prompt, n_ctx_slot = 4096, n_keep = 0, task.n_tokens = 100",
    "0.10.000.001 I slot   operator(): id  1 | task 7 | cached n_tokens = 30, memory_seq_rm [30, end)",
    "0.10.500.000 I slot   operator(): id  1 | task 7 | cached n_tokens = 80, memory_seq_rm [80, end)",
)


@pytest.mark.parametrize(
    ("end", "computed", "truncated"),
    [
        pytest.param(
            "stop processing: n_tokens = 80, truncated = 0", 50, False, id="cancelled in the prompt"
        ),
        pytest.param("stop processing: n_tokens = 104, truncated = 0", 70, False, id="cancelled after it"),
        pytest.param(
            "stop processing: n_tokens = 60, truncated = 1", None, True, id="text was dropped: unknown"
        ),
    ],
)
def test_the_sum_of_a_cancelled_task(end: str, computed: int | None, truncated: bool) -> None:
    lines = [*TASK, "0.11.000.000 W srv  stop: cancel task, id_task = 7"]
    *_, (name, _, values) = read([*lines, f"0.11.000.001 I slot  release: id  1 | task 7 | {end}"])
    assert name == "request"
    assert (values["prompt_tokens"], values["cached_tokens"], values["cancelled"]) == (100, 30, True)
    assert (values.get("computed_tokens"), values["truncated"]) == (computed, truncated)


def test_times_count_from_the_files_last_line() -> None:
    reader = LogReader("s")
    reader.anchor([*TASK, "0.20.000.000 I srv  update_slots: all slots are idle"], 1_000_020.0)
    assert [time_ns for _, time_ns, _ in read(list(TASK[:1]), reader)] == [1_000_010 * 10**9]
    # A later line that was read at once tells the start better than one that was read late; no line is read early.
    reader.anchor(["0.30.000.000 I srv  update_slots: all slots are idle"], 1_000_029.5)
    reader.anchor(["0.40.000.000 I srv  update_slots: all slots are idle"], 1_000_041.0)
    assert [time_ns for _, time_ns, _ in read(list(TASK[:1]), reader)] == [1_000_009_500_000_000]
    # The process was started again: what it left open is forgotten.
    reader.anchor(["0.01.000.000 I srv  llama_server: initializing ..."], 2_000_001.0)
    assert [time_ns for _, time_ns, _ in read(list(TASK[:1]), reader)] == [2_000_010 * 10**9]


def test_what_is_stored_of_the_same_process_is_left_out() -> None:
    for start, left in ((1_000_000.0, 0), (2_000_000.0, 2)):
        reader = LogReader("s")
        reader.resume(LogPosition(start + 10.2, 10_200_000))
        reader.anchor(TASK, 1_000_010.5)
        assert len(read(list(TASK), reader)) == left
