"""What to be wary of in a miss report: what makes its figures weaker than they look."""

from __future__ import annotations

from analysis.misses.events_alone import EventsAlone
from analysis.misses.reader import Reading
from analysis.misses.report_model import MissLine, MissReport
from analysis.misses.tables import shown_time


def warnings(report: MissReport, reading: Reading) -> list[str]:
    """What makes the figures weaker than they look."""
    found, mine = [], reading.asked.asked
    if report.sampled > 1:
        found.append(
            f"one in {report.sampled:,} requests was read, chosen by a hash of their id; totals are of those, and what"
            " was in flight beside them was not looked at"
        )
    if reading.unsized:
        found.append(f"{reading.unsized:,} requests do not tell how long their prompt is; left out")
    if report.derived:
        found.append(
            f"of {report.derived:,} of {report.total.placed:,} requests nothing tells what was served (usage with"
            f" cached_tokens in a request log would): {_estimated(report.total)}"
        )
    approximate = int((mine & (reading.asked.told_by == "approximation")).sum())
    if approximate:
        found.append(
            f"the prompts of {approximate:,} requests were cut into tokens without their tokenizer: causes are rough"
        )
    misfits = int((mine & reading.asked.misfit).sum())
    if misfits:
        found.append(
            f"the prompts of {misfits:,} requests in the log have another length than their server counted: another"
            " tokenizer or chat template than the server's, or images; what they would tell is left out"
        )
    if report.history_begin and report.total.parts.get("cold"):
        found.append(f"what was sent before {_since(report)} cannot be known: it counts as cold")
    return found


def _since(report: MissReport) -> str:
    """Since when prompts are known: of each fleet, where that differs."""
    if len(set(report.histories.values())) < 2:
        return f"{shown_time(report.history_begin)} UTC"
    times = sorted(report.histories.items(), key=lambda item: item[1])
    return ", ".join(f"{shown_time(time)} UTC ({name})" for name, time in times)


def _estimated(line: MissLine) -> str:
    estimate = "their hits are an estimate from prompts and KV events"
    if not line.untold:
        return estimate
    untold = f"{line.untold:,} of their tokens, which are unknown here, may be hits"
    return f"{estimate}, and {untold}" if line.untold < line.prompt else untold


def of_events(alone: EventsAlone) -> list[str]:
    """What weakens the part that rests on KV events alone."""
    if alone.sampled <= 1:
        return []
    return [
        f"of the KV events one block in {alone.sampled} was read, chosen by its content; tokens are of those"
    ]
