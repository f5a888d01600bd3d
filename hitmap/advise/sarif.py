"""Advice as SARIF 2.1.0 (OASIS, "Static Analysis Results Interchange Format"): what code hosts show beside a change."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from analysis.advisor.evidence import evidence
from analysis.advisor.key import key_of
from analysis.advisor.learning.cause import REMEDIES, Cause, Safety
from analysis.advisor.report import told_apart
from analysis.advisor.suggest import Suggestion
from cachemodel.printable import printable
from hitmap.advise.places import Place

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_EDITED = (Safety.CANONICALISE, Safety.MOVE)
"""What a rewriter may do unasked."""


def sarif(
    suggestions: Sequence[Suggestion], places: Mapping[str, Place], *, budget: float, version: str
) -> str:
    """A log of one run. places: of requests in their logs. budget: share of the computed tokens from which on a
    suggestion is an error; below it is a warning, and a note where no rewrite is safe to apply unasked."""
    causes = sorted({one.slot.cause for one in suggestions})
    driver = {"name": "hitmap", "version": version, "rules": [_rule(cause) for cause in causes]}
    keys = told_apart(key_of(one) for one in suggestions)
    results = [
        _result(one, key, causes.index(one.slot.cause), places, budget)
        for one, key in zip(suggestions, keys, strict=True)
    ]
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def rule_id(cause: Cause) -> str:
    """Of a cause: lower case, words joined by hyphens."""
    return cause.value.lower().replace(" ", "-")


def _rule(cause: Cause) -> dict[str, Any]:
    remedy = REMEDIES[cause]
    return {
        "id": rule_id(cause),
        "name": cause.value,
        "shortDescription": {"text": f"{cause.value} breaks the prefix cache"},
        "help": {"text": f"{remedy.what}: {remedy.why}."},
        "properties": {"safety": remedy.safety.value},
    }


def _result(
    one: Suggestion, key: str, index: int, places: Mapping[str, Place], budget: float
) -> dict[str, Any]:
    slot = one.slot
    saved = one.gain.most.saved if one.gain else one.at_most
    told = f"{slot.cause.value} at {slot.path} keeps {one.share:.1%} of the computed tokens from the cache"
    place = places.get(slot.example)
    return {
        "ruleId": rule_id(slot.cause),
        "ruleIndex": index,
        "level": _level(one, budget),
        "message": {"text": printable(f"{told}; {evidence(slot)}. {one.remedy.what}.", lines=False)},
        "locations": [_location(slot.path, place)] if place else [],
        "partialFingerprints": {"slot/v2": key},
        "properties": {
            "share": one.share,
            "tokens": saved,
            "requests": slot.requests,
            "safety": one.remedy.safety.value,
        },
    }


def _level(one: Suggestion, budget: float) -> str:
    if one.share > budget:
        return "error"
    return "warning" if one.rules and one.remedy.safety in _EDITED else "note"


def _location(path: str, place: Place) -> dict[str, Any]:
    """The line of the example's request; of an array, the file."""
    told: dict[str, Any] = {"artifactLocation": {"uri": _uri(place.file)}}
    if place.line:
        told["region"] = {"startLine": place.line, "endLine": place.line}
    named = {"fullyQualifiedName": printable(path, lines=False), "kind": "member"}
    return {"physicalLocation": told, "logicalLocations": [named]}


def _uri(file: Path) -> str:
    """Below the working folder as a path from there, which is how CI finds it in a checkout."""
    whole = file.resolve()
    if whole.is_relative_to(here := Path.cwd().resolve()):
        return quote(whole.relative_to(here).as_posix())
    return whole.as_uri()
