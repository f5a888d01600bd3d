"""The lines of llama.cpp's log (-lv 4, text or --log-jsonl) that tell of its prompt cache. Pure.

A line of text is `M.SS.mmm.uuu L comp func: id S | task T | message`, minutes and so on since the process started,
often behind a prefix of whoever forwards it; without --log-timestamps the time is left out. Wording as in a running
b11434, that of checkpoints as in its source (tools/server/server-context.cpp, common/log.cpp) and in public logs of
older builds (ggml-org/llama.cpp issues 21831, 24055): never run live here.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from collector.log_event import MAX_EVENT_LINE, Value, number

_LONGEST_US = 2**50  # 35 years: more is no time that a process has run
_TIME = re.compile(r"\b(\d{1,7})\.(\d\d)\.(\d{3}\.\d{3}) [A-Z] ")
_TEXT = re.compile(
    r"\b(?:slot|srv) +\S+: (?:id +(?P<slot>-?\d+) \| task +(?P<task>-?\d+) +\| )?[ -]*(?P<message>.*)"
)
_TOKENS = r" = +(?P<{}>[\d.]+) ms / +(?P<{}>\d+) tokens"
_MIB = r"size = (?P<size_mib>[\d.]+) MiB"
_POSITIONS = r"\(pos_min = (?P<pos_min>\d+)(?:, pos_max = (?P<pos_max>\d+))?.*?n_tokens = (?P<tokens>\d+)"
_CHECKPOINT = rf".*context checkpoint.*{_POSITIONS}(?:.*{_MIB})?"

# Event and pattern by the first word of the message; named groups become attributes.
_MESSAGES: dict[str, tuple[tuple[str, str], ...]] = {
    "selected": (
        (
            "slot_selected",
            r"selected slot by (?P<by>LCP|LRU|id)(?:.*sim(?:_best)? = (?P<similarity>[\d.]+))?"
            r"(?:.*f_keep = (?P<kept>[\d.]+))?",
        ),
    ),
    "new": (("prompt_started", r"new prompt.* task\.n_tokens = (?P<prompt_tokens>\d+)"),),
    "cached": (("prompt_cached", r"cached n_tokens = (?P<cached_tokens>\d+)"),),
    "need": (("last_token_recomputed", r"need to evaluate at least 1 token"),),
    "forcing": (
        ("full_reprocessing", r"forcing full prompt re-processing due to (?P<reason>[^(]{1,100}?) *(?:\(|$)"),
    ),
    "created": (("checkpoint_created", rf"created{_CHECKPOINT}"),),
    "restored": (("checkpoint_restored", rf"restored{_CHECKPOINT}"),),
    "erased": (("checkpoint_erased", rf"erased{_CHECKPOINT}"),),
    "erasing": (("checkpoint_erased", rf"erasing{_CHECKPOINT}"),),
    "superseding": (("checkpoint_erased", r"superseding context checkpoint at n_tokens = (?P<tokens>\d+)"),),
    # How much of the new prompt each free slot holds: the slot is chosen by it.
    "checking": (("common_prefix", r"checking sim = [\d.]+ \((?P<tokens>\d+)/"),),
    "saving": (("prompt_offered", r"saving prompt with length (?P<tokens>\d+).*" + _MIB),),
    "found": (
        (
            "prompt_found",
            r"found better prompt with f_keep = (?P<kept>[\d.]+), (?:f_)?sim = (?P<similarity>[\d.]+)",
        ),
    ),
    "making": (("prompt_removed", rf".*removing oldest entry \({_MIB}"),),
    "cache": (
        ("prompt_removed", rf".*removing oldest entry \({_MIB}"),
        (
            "prompt_cache",
            r"cache state: (?P<prompts>\d+) prompts, (?P<size_mib>[\d.]+) MiB "
            r"\(limits: (?P<limit_mib>[\d.]+) MiB, (?P<limit_tokens>\d+) tokens",
        ),
    ),
    "prompt": (
        ("prompt_done", "prompt eval time" + _TOKENS.format("prompt_ms", "computed_tokens")),
        ("prompt_already_cached", "prompt is already in the cache"),
    ),
    "eval": (("decode_done", "eval time" + _TOKENS.format("decode_ms", "completion_tokens")),),
    "cancel": (("cancelled", r"cancel task, id_task = (?P<task>\d+)"),),
    "stop": (
        (
            "stopped",
            r"stop processing: (?:n_tokens = (?P<tokens>\d+), )?(?:.*truncated = (?P<truncated>\d))?",
        ),
    ),
    # Text of two prompts from where they part: read for its length only.
    "old:": (("old_text", r"old: \.\.\. .*?\| ?(?P<text>.*)"),),
    "new:": (("new_text", r"new: \.\.\. .*?\| ?(?P<text>.*)"),),
}
_PATTERNS = {
    word: tuple((event, re.compile(pattern)) for event, pattern in messages)
    for word, messages in _MESSAGES.items()
}


class Line(NamedTuple):
    """A line that means something. uptime_us: since the process started, None where the line does not tell; slot, task:
    None where it is of none; values: what else it tells, by name."""

    event: str
    uptime_us: int | None
    slot: int | None
    task: int | None
    values: dict[str, Value]


def parse(line: str) -> Line | None:
    """What a line tells; None where that is nothing of the prompt cache."""
    if len(line) > MAX_EVENT_LINE:
        return None
    text, time_us = _unwrapped(line)
    found = _TEXT.search(text)
    if found is None:
        return None
    message = found["message"]
    for event, pattern in _PATTERNS.get(message.partition(" ")[0], ()):
        if told := pattern.match(message):
            values = {name: number(value) for name, value in told.groupdict().items() if value is not None}
            if values.pop("text", None) is not None:
                values["chars"] = len(told["text"])
            task = values.pop("task", found["task"])
            return Line(event, time_us, _id(found["slot"]), _id(task), values)
    return None


def uptime_us(line: str) -> int | None:
    """Microseconds from the start of the process to a line, also to one that means nothing; None where not told."""
    return _unwrapped(line)[1]


def _unwrapped(line: str) -> tuple[str, int | None]:
    """The text of a line of either form, and its time since the process started in microseconds."""
    if line.startswith("{"):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            return line, None
        time_us = record.get("time")
        is_time = isinstance(time_us, int) and 0 < time_us < _LONGEST_US  # 0: without --log-timestamps
        return str(record.get("msg", "")), time_us if is_time else None
    time = _TIME.search(line)
    if time is None:
        return line, None
    return line, (int(time[1]) * 60 + int(time[2])) * 1_000_000 + int(time[3].replace(".", ""))


def _id(text: object) -> int | None:
    """A slot or task id; None where there is none, which is also written -1."""
    value = number(str(text))
    return value if isinstance(value, int) and value >= 0 else None
