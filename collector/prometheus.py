"""Reads what a /metrics endpoint exposes: Prometheus text 0.0.4 and 1.0.0, and OpenMetrics 1.0. Pure, no I/O.

Why not prometheus_client's parser: see docs/decisions/0006-own-exposition-parser.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

Labels = tuple[tuple[str, str], ...]

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"
SUMMARY, INFO, UNKNOWN = "summary", "info", "unknown"

# The sample suffixes of a family, by its kind; a family of OpenMetrics is named without them.
_SUFFIXES = {
    "_total": {COUNTER},
    "_bucket": {HISTOGRAM},
    "_sum": {HISTOGRAM, SUMMARY},
    "_count": {HISTOGRAM, SUMMARY},
    "_info": {INFO},
    "_created": {COUNTER, HISTOGRAM, SUMMARY},
}
_KINDS = {
    "counter": COUNTER,
    "gauge": GAUGE,
    "histogram": HISTOGRAM,
    "summary": SUMMARY,
    "info": INFO,
    "stateset": GAUGE,
    "gaugehistogram": GAUGE,
    "untyped": UNKNOWN,
    "unknown": UNKNOWN,
}

_QUOTED = r'"(?:[^"\\]|\\.)*+"'
_LINE = re.compile(
    rf'([a-zA-Z_:][a-zA-Z0-9_:]*+)?(?:\{{([^"}}]*+(?:{_QUOTED}[^"}}]*+)*+)\}})?[ \t]*'  # name{{labels}}
    r"(?:(?<=[ \t}])([!-^`-~]+))"  # value: what float() takes, but no underscore
    r"(?:[ \t]+(-?[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?))?"  # time
    r"(?:[ \t]+#[ \t].*)?[ \t\r]*"  # exemplar
)
_LABEL = re.compile(
    rf"[ \t]*(?:([a-zA-Z_][a-zA-Z0-9_]*)|({_QUOTED}))[ \t]*(?:=[ \t]*({_QUOTED})[ \t]*)?(?:,|$)"
)
_META = re.compile(r"#[ \t]+(HELP|TYPE|UNIT)[ \t]+(\"(?:[^\"\\]|\\.)*+\"|[^ \t]+)(?:[ \t]+(.*))?")
_ESCAPE = re.compile(r"\\(.)")
_MAX_SHOWN = 120
_MAX_CHARS = 8192  # of a name, and of all labels of a sample: longer ones are content
_CACHED_CHARS = (
    1024  # of a label text that is remembered; with the number of them it bounds the cache's memory
)


class Sample(NamedTuple):
    """One line of an exposition. labels: sorted by name; time_s: Unix seconds, None where the line has none."""

    name: str
    labels: Labels
    value: float
    time_s: float | None


@dataclass(slots=True)
class Family:
    """What the HELP, TYPE and UNIT lines say of a metric."""

    name: str
    kind: str = UNKNOWN
    unit: str = ""
    help: str = ""


@dataclass(slots=True)
class Exposition:
    """A parsed body.

    malformed: how many lines were dropped, the first of them in `first_malformed`; whole: whether nothing is missing at
    the end.
    """

    samples: list[Sample] = field(default_factory=list)
    families: dict[str, Family] = field(default_factory=dict)
    malformed: int = 0
    first_malformed: str = ""
    whole: bool = True
    _family_of: dict[str, tuple[Family, str]] = field(default_factory=dict)

    def family_of(self, name: str) -> tuple[Family, str]:
        """The family of the samples called `name`, and the suffix that its kind adds (empty for a gauge)."""
        found = self._family_of.get(name)
        if found is None:
            found = self._family_of[name] = self._find_family(name)
        return found

    def _find_family(self, name: str) -> tuple[Family, str]:
        # The Python client declares `x_created` as a gauge of its own: it belongs to x or x_total all the same.
        for suffix, kinds in _SUFFIXES.items():
            stem = name.removesuffix(suffix)
            if stem == name:
                continue
            for owner in (stem, f"{stem}_total") if suffix == "_created" else (stem,):
                family = self.families.get(owner)
                if family is not None and family.kind in kinds:
                    return replace(family, name=stem), suffix
        family = self.families.get(name) or Family(name)
        if name.endswith("_total") and family.kind in (COUNTER, UNKNOWN):
            return Family(name.removesuffix("_total"), COUNTER, family.unit, family.help), "_total"
        return family, ""


def parse(body: bytes, *, openmetrics: bool = False, whole: bool = True) -> Exposition:
    """Parse an exposition; malformed lines are counted and the rest is kept.

    openmetrics: times are in seconds instead of milliseconds and `# EOF` ends the body. whole: False when the
    transport broke off: a last line without its end is then dropped, since its number may lack digits.
    """
    exposition = Exposition(whole=whole)
    lines = body.decode(errors="replace").split("\n")
    if lines.pop() and not whole:
        _reject(exposition, "(the body breaks off here)")
    elif not body.endswith(b"\n"):
        lines.append(body.rsplit(b"\n", 1)[-1].decode(errors="replace"))
    time_unit = 1.0 if openmetrics else 1e-3
    ended = False
    for line in lines:
        if line.startswith("#"):
            ended = ended or line.rstrip() == "# EOF"
            _read_meta(exposition, line)
        elif line and not line.isspace():
            sample = _read_sample(line, time_unit)
            if sample is None:
                _reject(exposition, line)
            else:
                exposition.samples.append(sample)
    if openmetrics and not ended:
        exposition.whole = False
    return exposition


def _reject(exposition: Exposition, line: str) -> None:
    exposition.malformed += 1
    exposition.first_malformed = exposition.first_malformed or line[:_MAX_SHOWN]


def _read_sample(line: str, time_unit: float) -> Sample | None:
    match = _LINE.fullmatch(line)
    if match is None or "\ufffd" in line:
        return None
    name, label_text, number, time = match.groups()
    if len(name or "") > _MAX_CHARS or len(label_text or "") > _MAX_CHARS:
        return None
    labels = _read_labels(label_text) if label_text else ("", ())
    if labels is None or bool(name) == bool(labels[0]):
        return None
    try:
        return Sample(name or labels[0], labels[1], float(number), float(time) * time_unit if time else None)
    except ValueError:
        return None


def _read_labels(text: str) -> tuple[str, Labels] | None:
    """The metric name among the labels (the UTF-8 form; else empty), and the labels; None if malformed.

    A scrape repeats the label texts of the scrape before, hence the cache.
    """
    return _short_labels(text) if len(text) <= _CACHED_CHARS else _parse_labels(text)


def _parse_labels(text: str) -> tuple[str, Labels] | None:
    metric, position = "", 0
    labels: dict[str, str] = {}
    while position < len(text):
        match = _LABEL.match(text, position)
        if match is None:
            return None if text[position:].strip() else (metric, tuple(sorted(labels.items())))
        plain, quoted, value = match.groups()
        name = plain or _unquote(quoted)
        if value is None:
            if plain or metric or labels:
                return None
            metric = name
        elif name in labels:
            return None
        else:
            labels[name] = _unquote(value)
        position = match.end()
    return metric, tuple(sorted(labels.items()))


_short_labels = lru_cache(maxsize=1 << 14)(_parse_labels)


def _unquote(text: str) -> str:
    inner = text[1:-1]
    return _ESCAPE.sub(lambda m: "\n" if m[1] == "n" else m[1], inner) if "\\" in inner else inner


def _read_meta(exposition: Exposition, line: str) -> None:
    match = _META.match(line)
    if match is None:
        return
    keyword, name, text = match.groups()
    name, text = _unquote(name) if name.startswith('"') else name, (text or "").strip()
    family = exposition.families.setdefault(name, Family(name))
    if keyword == "TYPE":
        family.kind = _KINDS.get(text, UNKNOWN)
    elif keyword == "UNIT":
        family.unit = text
    else:
        family.help = text
