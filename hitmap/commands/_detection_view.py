"""What is known of a server, for people and for machines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from cachemodel.printable import printable
from collector.detection import Detection

MAX_FACT = 200  # characters
_MARKS = {True: "sees", False: "does not see", None: "cannot tell"}


def as_dict(name: str, detection: Detection) -> dict[str, object]:
    """A detection for machines."""
    return {
        "server": name,
        "url": detection.url,
        "kind": detection.kind,
        "version": detection.version,
        "models": list(detection.models),
        "facts": dict(detection.facts),
        "capabilities": [asdict(capability) for capability in detection.capabilities],
        "notes": list(detection.notes),
        "kv_sources": [asdict(source) for source in detection.kv_sources],
    }


def unreachable(name: str, url: str, error: Exception) -> dict[str, object]:
    """A server that could not be detected, for machines."""
    return {"server": name, "url": url, "error": str(error)}


def table(name: str, detection: Detection) -> Iterator[str]:
    """A detection for people: plain lines, so that flags can be copied whole."""
    return map(printable, _lines(name, detection))


def _lines(name: str, detection: Detection) -> Iterator[str]:
    models = ", ".join(detection.models) or "unknown model"
    yield f"{name}: {detection.kind} {detection.version or '(unknown version)'} at {detection.url}, {models}"
    if detection.facts:
        yield "  " + ", ".join(f"{fact} {value[:MAX_FACT]}" for fact, value in detection.facts.items())
    width = max(len(capability.signal) for capability in detection.capabilities)
    for capability in detection.capabilities:
        yield f"  {_MARKS[capability.seen]:<13} {capability.signal:<{width}}  {capability.evidence}"
    flags = [capability for capability in detection.capabilities if capability.flag]
    if flags:
        yield "  To open the rest:"
        for capability in flags:
            yield f"    {capability.signal}:"
            yield f"      {capability.flag}"
    if detection.notes:
        yield "  To mind when reading its numbers:"
        yield from (f"    {note}" for note in detection.notes)
