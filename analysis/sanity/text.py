"""What is known of servers and their figures, for a terminal. What telemetry named is shown as text, whatever it is."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from analysis.sanity.model import Finding
from analysis.sanity.sources import ServerSources, Signal
from analysis.sanity.words import because, figures, quantity, sentence
from cachemodel.printable import printable

_STYLES = {"wrong": "bold red", "beware": "bold yellow", "blind": "bold", "note": "dim"}


def to_terminal(servers: list[ServerSources], begin: datetime, end: datetime, console: Console) -> None:
    """Print one server after the other; a long line is folded under its own beginning, a flag is never cut."""
    console.print(_text(f"From {_time(begin)} to {_time(end)}", "dim"))
    for server in servers:
        console.print()
        _server(server, console)


def _server(server: ServerSources, console: Console) -> None:
    console.print(_text(_headline(server), "bold"))
    _put(console, 2, _last_seen(server))
    if server.facts:
        _put(console, 2, ", ".join(f"{fact} {value}" for fact, value in sorted(server.facts.items())))
    for title, lines in (("Comes in", _volumes(server)), ("Hit ratio", _reuse(server))):
        console.print(_text(f"\n  {title}"))
        for line in lines:
            _put(console, 4, line)
    console.print(_text("\n  Findings"))
    for finding in server.findings:
        _finding(finding, console)
    if not server.findings:
        _put(
            console,
            4,
            "none: what it tells agrees with itself" if server.last_seen else "none, since nothing came",
        )
    for unanswered in server.unanswered:
        _put(console, 4, f"not answered: {unanswered.rule.id}: {unanswered.reason}")
    if server.unseen:
        console.print(_text("\n  Does not see"))
        for signal in server.unseen:
            _put(console, 4, _unseen(signal))
            if signal.flag:
                console.print(_text(f"      {signal.flag}"), soft_wrap=True)
    if server.notes:
        console.print(_text("\n  To mind when reading its numbers"))
        for note in server.notes:
            _put(console, 4, note)


def _headline(server: ServerSources) -> str:
    if server.attached is None:
        return f"{server.server}: never attached, known by what it sends"
    kind = f"{server.kind} {server.version or '(unknown version)'}"
    return f"{server.server}: {kind} at {server.url}, {', '.join(server.models) or 'unknown model'}"


def _last_seen(server: ServerSources) -> str:
    seen = (
        f"last heard of {_time(server.last_seen)}" if server.last_seen else "nothing came in this time range"
    )
    return f"attached {_time(server.attached)}, {seen}" if server.attached else seen


def _volumes(server: ServerSources) -> Iterator[str]:
    for volume in server.volumes:
        last = _time(volume.last) if volume.last else "none"
        yield f"{volume.kind:<15}{volume.rows:>13,}  {last}"


def _reuse(server: ServerSources) -> Iterator[str]:
    width = max((len(line.told_by) for line in server.reuse), default=0)
    for line in server.reuse:
        ratio = quantity(line.ratio, "ratio")
        still = "" if line.whole else ": nothing was looked up in this time"
        yield f"{line.told_by:<{width}}  {ratio:>7}  {line.found:,} of {line.whole:,} {line.unit}{still}"
    if not server.reuse:
        yield "unknown: nothing tells"


def _unseen(signal: Signal) -> str:
    doubt = " (cannot be asked)" if signal.seen is None else ""
    return f"{signal.signal}{doubt}: {signal.evidence}"


def _finding(finding: Finding, console: Console) -> None:
    rule = finding.rule
    head = Text.assemble(
        (f"{rule.severity}: ", _STYLES[rule.severity]), _text(rule.means), " ", (f"[{rule.id}]", "dim")
    )
    console.print(Padding(head, (0, 0, 0, 4), expand=False))
    said = figures(finding)
    for title, line in (
        ("seen", sentence(finding)),
        ("figure", said),
        *(("known", because(cause)) for cause in finding.causes),
        ("do", rule.do),
    ):
        if line:
            _put(console, 6, f"{title}: {line}")


def _put(console: Console, indent: int, line: str) -> None:
    console.print(Padding(_text(line), (0, 0, 0, indent), expand=False))


def _text(text: str, style: str = "") -> Text:
    return Text(printable(text), style=style)


def _time(time: datetime | None) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S} UTC" if time else "never"
