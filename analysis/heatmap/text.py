"""A heatmap for a terminal of 80 columns, coloured or not, and as Markdown: a digit a cell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from analysis.heatmap.colours import UNKNOWN, colour_of, ink_on
from analysis.heatmap.model import LAYERS, Cell, Heatmap, Row, tells, top_of, value_of
from analysis.heatmap.words import spread, subject, why
from analysis.report.paper import escaped, shown_text
from analysis.treatments import Treatment

UNTOLD, MARK = "\N{MIDDLE DOT}", "^"
_TICK = 4  # columns between two positions that are named, or more where their names are long
MOST_MARKS = 8


def to_terminal(found: Heatmap, console: Console, layer: str = "reuse") -> None:
    """Print it; `console` decides width and colour. What has no room at the right is left out, and that is said."""
    console.print(shown_text(found.answer, "bold"), Text(), sep="\n")
    console.print(shown_text(describe(found)))
    names = _names(found)
    room = max(1, console.width - _label(names) - 1)
    columns = len(found.edges) - 1
    requests = room - 8 >= columns
    drawn = min(columns, room)
    console.print(
        Text(), shown_text(f"{_title(layer)}, by position in the prompt (tokens)", "bold"), sep="\n"
    )
    console.print(Text(" " * (_label(names) + 1) + _axis(found.edges, drawn)))
    for name, row in zip(names, found.rows, strict=True):
        line = Text(f"{name:<{_label(names)}} ", no_wrap=True)
        for cell in row.cells[:drawn]:
            line.append(digit(cell, layer, found), _style(cell, layer, found))
        line.append(f"{' ' * (columns - len(row.cells))}{row.requests:>8,}" if requests else "")
        console.print(line, no_wrap=True, crop=True)
        if below := _marks_below(row, drawn):
            console.print(Text(" " * (_label(names) + 1) + below, style="bold"))
    for note in [*_legend(found, layer), *_left_out(found, drawn)]:
        console.print(Padding(shown_text(note, "dim"), (0, 0, 0, 2), expand=False))
    for title, sentences in _lists(found):
        console.print(Text(), Text(title, style="bold"), sep="\n")
        for sentence in sentences:
            console.print(Padding(shown_text(sentence), (0, 0, 0, 2), expand=False))


def to_markdown(found: Heatmap, layer: str = "reuse") -> str:
    """A self-contained Markdown page."""
    names, columns = _names(found), len(found.edges) - 1
    lines = [
        f"# Heatmap: {escaped(found.name)}",
        "",
        escaped(found.answer),
        "",
        f"* {escaped(describe(found))}",
    ]
    lines += ["", f"## {_title(layer)}, by position in the prompt (tokens)", "", "```"]
    lines.append(" " * (_label(names) + 1) + _axis(found.edges, columns))
    for name, row in zip(names, found.rows, strict=True):
        cells = "".join(digit(cell, layer, found) for cell in row.cells)
        lines.append(f"{name:<{_label(names)}} {cells:<{columns}} {row.requests:>7,}")
        lines += [" " * (_label(names) + 1) + below for below in [_marks_below(row, columns)] if below]
    lines += [
        "```",
        "",
        *(f"* {escaped(note)}" for note in [*_legend(found, layer), *_left_out(found, columns)]),
    ]
    for title, sentences in _lists(found):
        lines += ["", f"## {title}", "", *(f"* {escaped(sentence)}" for sentence in sentences)]
    return "\n".join(lines) + "\n"


def describe(found: Heatmap) -> str:
    """Which requests these are."""
    period = f"{found.begin[:19].replace('T', ' ')} to {found.end[:19].replace('T', ' ')} UTC"
    sizes = " and ".join(f"{size:,}" for size in found.block_sizes)
    return (
        f"{found.name}: {found.requests:,} prompts in {found.blocks:,} blocks of {sizes} tokens on"
        f" {', '.join(found.servers[:5])}{' and others' if len(found.servers) > 5 else ''}, {period}"
    )


def digit(cell: Cell, layer: str, found: Heatmap) -> str:
    """Tenths of the scale: 9 for the highest tenth."""
    value = value_of(cell, layer)
    return UNTOLD if value is None else str(min(9, int(10 * value / top_of(found, layer) + 1e-9)))


def _style(cell: Cell, layer: str, found: Heatmap) -> str:
    value = value_of(cell, layer)
    colour = UNKNOWN if value is None else colour_of(value / top_of(found, layer))
    return f"{ink_on(colour)} on {colour}"


def _marks_below(row: Row, columns: int) -> str:
    return "".join(MARK if cell.rewrite else " " for cell in row.cells[:columns]).rstrip()


def _axis(edges: Sequence[int], columns: int) -> str:
    line = ""
    for column in range(0, columns, _TICK):
        if not line or column > len(line):
            line = f"{line:<{column}}{_short(edges[column])}"
    return line


def _short(tokens: int) -> str:
    return f"{tokens:,}" if tokens < 100_000 else f"{tokens // 1000:,}k"


def _title(layer: str) -> str:
    return layer.capitalize()


def _names(found: Heatmap) -> list[str]:
    """Templates as they are; times as short as they can be told apart."""
    if found.by == "template":
        return [row.key for row in found.rows]
    same_day = len({row.key[:10] for row in found.rows}) == 1
    if same_day:
        return [row.key[11:19] for row in found.rows]
    return [row.key[5:16].replace("T", " ") for row in found.rows]


def _label(names: Sequence[str]) -> int:
    return max((len(name) for name in names), default=0)


def _legend(found: Heatmap, layer: str) -> Iterator[str]:
    yield f"{layer}: {LAYERS[layer]}"
    if layer in ("reuse", "stability"):
        yield f"9 from 90 %, 8 from 80 %, ... 0 below 10 %; {UNTOLD} not known; nothing where no prompt reaches"
    else:
        unit = "bits" if layer == "volatility" else "tokens"
        top = top_of(found, layer)
        yield f"tenths of {top:,.4g} {unit}; {UNTOLD} not known; nothing where no prompt reaches"
    yield (
        f"{MARK} rewriting pays: more than 85 % of the row's prompts come there, and their responses are unlike each"
        " other (stability below 0.4) or, where none are kept, less than 60 % had that block before"
    )
    if not tells(found, layer):
        yield f"nothing is known of {layer} here"


def _left_out(found: Heatmap, drawn: int) -> Iterator[str]:
    if drawn < len(found.edges) - 1:
        yield f"the first {drawn} of {len(found.edges) - 1} columns fit; a wider terminal or -o FILE.html has all"
    if found.rows_left:
        yield f"{found.rows_left:,} templates more, of {found.requests_left:,} prompts, are not shown"
    if (sampled := found.sampled[layer_sample(found)]) > 1:
        yield f"contents of one request in {sampled:,} were compared"


def layer_sample(found: Heatmap) -> str:
    """The layer whose sample is the smallest."""
    return max(found.sampled, key=lambda name: found.sampled[name])


def _lists(found: Heatmap) -> list[tuple[str, list[str]]]:
    titled = [
        ("Where rewriting pays", _marks(found)),
        ("What the zones call for", [_treatment(one) for one in found.treatments]),
        ("Be wary", found.warnings),
        ("Next", found.next_steps),
    ]
    return [(title, sentences) for title, sentences in titled if sentences]


def _treatment(one: Treatment) -> str:
    return f"{one.zone}: {one.name}. Where {one.when}: {one.what}"


def _marks(found: Heatmap) -> list[str]:
    """The dearest of each place, and in how many rows that is."""
    places = Counter((mark.start, mark.end) for mark in found.marks)
    lines, told = [], set()
    for mark in found.marks:
        place = mark.start, mark.end
        if place in told:
            continue
        told.add(place)
        others = f" (and in {places[place] - 1} more rows)" if places[place] > 1 else ""
        lines.append(f"{subject(found, mark.key)}, tokens {spread(*place)}{others}: {why(mark)}")
    more = len(lines) - MOST_MARKS
    return lines if more <= 0 else [*lines[:MOST_MARKS], f"and {more} places more"]
