"""A load for people: how it goes, and what it came to."""

from __future__ import annotations

from collections.abc import Iterator

from cachemodel.printable import printable
from hitmap.load.plan import Outline
from hitmap.load.summary import Quantiles, Summary, Tally

_ROWS = (
    ("TTFT from sending", "ttft_s"),
    ("TTFT from when it was due", "ttft_from_due_s"),
    ("end to end from sending", "e2e_s"),
    ("end to end from when it was due", "e2e_from_due_s"),
    ("time per output token", "time_per_output_token_s"),
    ("sent later than due", "lag_s"),
)
_WIDTH = max(len(title) for title, _ in _ROWS)
_COLUMNS = ("P50", "P95", "P99", "max")
_MOST_ERRORS = 200


def progress(elapsed_s: float, tally: Tally) -> str:
    """How it goes, in a line."""
    rate = tally.sent / elapsed_s if elapsed_s else 0.0
    words = f"{tally.sent} sent, {rate:.1f}/s, {tally.in_flight} in flight"
    failed, not_sent = tally.failed.total(), tally.not_sent.total()
    return words + (f", {failed} failed" if failed else "") + (f", {not_sent} not sent" if not_sent else "")


def outline_lines(outline: Outline) -> Iterator[str]:
    """A plan in figures."""
    sessions = f", {outline.sessions} sessions" if outline.sessions else ""
    due = f"{outline.requests} requests due in {outline.window_s or outline.last_due_s:.1f} s"
    yield f"{outline.name}: {due}, {_rate(outline.offered_per_s)}{sessions}"
    for template, count in sorted(outline.by_template.items()):
        yield f"  {template or 'without a template':<20} {count}"
    if outline.prompt_ids:
        yield f"  {'prompt tokens':<20} {outline.prompt_ids:,}"
    if outline.prompt_chars:
        yield f"  {'prompt characters':<20} {outline.prompt_chars:,} (answers that only a server can give not counted)"
    yield f"  {'output tokens':<20} {outline.max_tokens:,} at most"


def summary_lines(summary: Summary) -> Iterator[str]:
    """What a load came to."""
    of = f" of {summary.whole_plan}" if summary.interrupted else ""
    yield printable(
        f"{summary.name}: {summary.planned}{of} due, {summary.sent} sent, {summary.completed} completed"
        f" in {summary.wall_s:.1f} s"
    )
    for kind, count in sorted(summary.not_sent.items()):
        yield f"  not sent, {kind}: {count}"
    for kind, count in sorted(summary.failed.items()):
        words = printable(summary.errors.get(kind, ""), lines=False)[:_MOST_ERRORS].rstrip()
        yield f"  failed, {kind}: {count}" + (f" ({words})" if words else "")
    yield f"  offered {_rate(summary.offered_per_s)}, completed {_rate(summary.achieved_per_s)}"
    yield "  " + "; ".join(_tokens(summary))
    yield f"  {'':<{_WIDTH}}" + "".join(f"{column:>10}" for column in _COLUMNS)
    for title, name in _ROWS:
        yield f"  {title:<{_WIDTH}}" + "".join(f"{cell:>10}" for cell in _cells(getattr(summary, name)))


def _tokens(summary: Summary) -> Iterator[str]:
    if summary.prompt_tokens is None and summary.completion_tokens is None:
        yield "the server told no tokens"
        return
    yield f"prompt tokens {_count(summary.prompt_tokens)}"
    cached = f"cached {_count(summary.cached_tokens)}"
    yield cached + ("" if summary.cached_share is None else f" ({summary.cached_share:.1%})")
    yield f"generated {_count(summary.completion_tokens)}"


def _count(count: int | None) -> str:
    return "unknown" if count is None else f"{count:,}"


def _rate(per_s: float | None) -> str:
    return "-" if per_s is None else f"{per_s:.2f}/s"


def _cells(found: Quantiles | None) -> list[str]:
    if found is None:
        return ["-"] * len(_COLUMNS)
    return [_time(value) for value in (found.p50, found.p95, found.p99, found.max)]


def _time(value_s: float) -> str:
    return f"{value_s:.2f} s" if value_s >= 1 else f"{value_s * 1e3:.1f} ms"
