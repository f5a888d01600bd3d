"""Reads llama.cpp's log: an event for each line that tells of the prompt cache, and one for each request as a whole.

Events are called `llama_cpp.<what happened>`; `llama_cpp.request` sums a task up when it leaves its slot:
prompt_tokens, cached_tokens and computed_tokens (cached + computed = prompt), prompt_ms, completion_tokens, decode_ms,
cancelled, how its slot was chosen and how many tokens of the prompt that slot held (slot_common_tokens; NULL where it
was empty). Tasks are the server's own numbers: no response carries them. No prompt text is kept.

The log has no wall clock, only the time since the process started. That is anchored to the file: its last line was
written when the file was last modified. Of the latest anchors the earliest counts, since a line can be read late but
never early; where the lines have no time at all, it is that of reading.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from collector.detection import LineReader
from collector.dialects.llama_cpp.log_lines import Line, parse, uptime_us
from collector.log_event import Value, event
from collector.log_tail import LogPosition
from collector.sink import Entry

DIALECT = "llama_cpp"
_ANCHORS = 64
_MAX_TASKS = 1024  # more than any server has slots: those beyond ended in lines that are lost
_SAME_START_S = 5.0  # starts of the process that were worked out from different lines differ by less
_WARNINGS = {"full_reprocessing", "prompt_removed", "checkpoint_erased"}
_SUMMED_UP = {"prompt_cached", "old_text", "new_text", "stopped", "common_prefix", "slot_selected"}

Values = dict[str, Value | None]


def reader(server: str) -> LineReader:
    """A reader of the log of the server with that name."""
    return LogReader(server)


class LogReader:
    """Reads the lines of one server one after the other."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._starts: deque[float] = deque(maxlen=_ANCHORS)
        self._newest_us = 0
        self._stored: LogPosition | None = None
        self._stored_us = -1
        self._tasks: dict[int, Values] = {}
        self._common: dict[int, Value] = {}  # by slot: how many tokens of the prompt to come it holds
        self._chosen: dict[int, Values] = {}  # by slot: how it was chosen for the task to come

    def resume(self, stored: LogPosition) -> None:
        """Leave out what the same process wrote up to here."""
        self._stored = stored

    def anchor(self, lines: Sequence[str], written_s: float) -> None:
        """The newest lines of the file, and when the last of them was written (Unix seconds)."""
        newest_us = next((us for line in reversed(lines) if (us := uptime_us(line)) is not None), None)
        if newest_us is None:
            return
        if newest_us < self._newest_us:
            self._restarted()
        self._newest_us = newest_us
        # To the millisecond: more is not known, and a log read again gives the same times.
        self._starts.append(round(written_s - newest_us / 1e6, 3))
        if self._stored:
            start_s = self._stored.time_s - self._stored.uptime_us / 1e6
            if abs(start_s - self._starts[0]) < _SAME_START_S:
                self._stored_us = self._stored.uptime_us
            self._stored = None

    def __call__(self, text: str, now_s: float) -> Sequence[Entry]:
        """The events of a line; now_s: their time where the line tells none."""
        line = parse(text)
        if line is None:
            return ()
        told = self._told(line)
        if line.uptime_us is None or not self._starts:
            time_s = now_s
        elif line.uptime_us <= self._stored_us:
            return ()
        else:
            time_s = min(self._starts) + line.uptime_us / 1e6
        base: Values = {"uptime_us": line.uptime_us, "slot": line.slot, "task": line.task}
        return [
            event(
                self._server,
                f"{DIALECT}.{name}",
                time_s,
                base | values,
                "WARN" if name in _WARNINGS else "INFO",
            )
            for name, values in told
        ]

    def _restarted(self) -> None:
        self._starts.clear()
        self._tasks.clear()
        self._common.clear()
        self._chosen.clear()
        self._stored_us = -1

    def _told(self, line: Line) -> list[tuple[str, Values]]:
        """Names and attributes of what a line tells together with those before it."""
        told: list[tuple[str, Values]] = []
        if line.event not in _SUMMED_UP:
            told.append((line.event, {**line.values}))
        if line.task is None:
            return told + (self._choose(line, line.slot) if line.slot is not None else [])
        if line.event == "prompt_started":
            self._start(line, line.task)
        elif (task := self._tasks.get(line.task)) is not None:
            told += self._note(line, line.task, task)
        return told

    def _choose(self, line: Line, slot: int) -> list[tuple[str, Values]]:
        """How a slot was chosen for a task that has no number yet, with what it holds of its prompt."""
        if line.event == "common_prefix":
            self._common[slot] = line.values["tokens"]
        if line.event != "slot_selected":
            return []
        values = {**line.values, "common_tokens": self._common.get(slot)}
        self._common.clear()
        self._chosen[slot] = {f"slot_{name}": value for name, value in values.items()}
        return [(line.event, values)]

    def _start(self, line: Line, number: int) -> None:
        if len(self._tasks) >= _MAX_TASKS:
            del self._tasks[next(iter(self._tasks))]
        chosen = {} if line.slot is None else self._chosen.pop(line.slot, {})
        self._tasks[number] = {**line.values, **chosen}

    def _note(self, line: Line, number: int, task: Values) -> list[tuple[str, Values]]:
        """What a line adds to its task; at the end of the task, all of it."""
        match line.event:
            case "old_text" | "new_text":
                task[line.event.replace("text", "chars")] = line.values["chars"]
            case "prompt_cached":
                # Told again for each batch of the prompt: only the first is from the cache.
                return [] if "cached_tokens" in task else _found(line, task)
            case "prompt_done" | "decode_done":
                task |= line.values
            case "cancelled":
                task["cancelled"] = True
            case "full_reprocessing":
                task["full_reprocessing"] = True
            case "checkpoint_restored":
                task["restored_tokens"] = line.values["tokens"]
            case "stopped":
                del self._tasks[number]
                return [("request", _summary(task, line.values))]
        return []


def _found(line: Line, task: Values) -> list[tuple[str, Values]]:
    """What was in the cache and, where the texts after it were told, that the prompts part there."""
    told: list[tuple[str, Values]] = [(line.event, {**line.values})]
    task |= line.values
    chars: Values = {name: task.pop(name) for name in ("old_chars", "new_chars") if name in task}
    if chars:
        # A checkpoint that was restored, or none that could be, leaves fewer cached than the prompts have in common.
        fell_back = task.keys() & {"restored_tokens", "full_reprocessing"}
        told.append(
            ("divergence", {"position": None if fell_back else line.values["cached_tokens"], **chars})
        )
    return told


def _summary(task: Values, stopped: dict[str, Value]) -> Values:
    """A task from its lines.

    One that was cancelled early has no line of its prompt's evaluation: what it computed is then what the slot held at
    the end, as far as that is prompt, less what was cached.
    """
    prompt, cached, held = task.get("prompt_tokens"), task.get("cached_tokens"), stopped.get("tokens")
    truncated = bool(stopped.get("truncated"))
    computed = task.get("computed_tokens")
    if computed is None and not truncated and all(isinstance(n, int) for n in (prompt, cached, held)):
        computed = max(min(prompt, held) - cached, 0)  # type: ignore[operator, type-var]
    return {
        **task,
        "computed_tokens": computed,
        "cancelled": bool(task.get("cancelled")),
        "truncated": truncated,
    }
