"""A finding in words: pure, for terminals, files and pages alike."""

from __future__ import annotations

import string
from typing import Any

from analysis.sanity.model import Cause, Finding

UNKNOWN = "unknown"


class _Formatter(string.Formatter):
    """Formats numbers; what is NULL is called unknown. `{blocks:n block}` gives "1 block", "2,000 blocks"."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec.startswith("n "):
            return f"{UNKNOWN if value is None else f'{value:,.0f}'} {_plural(format_spec[2:], value)}"
        return UNKNOWN if value is None else str(super().format_field(value, format_spec))


def _plural(noun: str, count: float | None) -> str:
    return noun if count == 1 or noun.endswith("s") else f"{noun}s"


_format = _Formatter().vformat


def sentence(finding: Finding) -> str:
    """What was seen, with its numbers."""
    fields = {"said": finding.said, "corrected": finding.corrected, **finding.evidence}
    return _format(finding.rule.finding, (), fields)


def figures(finding: Finding) -> str:
    """What is said and what is right, be it the same; empty where the rule is about no figure."""
    rule = finding.rule
    if not rule.said:
        return ""
    said, right = quantity(finding.said, rule.unit), quantity(finding.corrected, rule.unit)
    how = f" ({rule.corrected})" if rule.corrected and finding.corrected is not None else ""
    same = finding.said is not None and said == right
    return f"{rule.said}: said {said}, {'which is right' if same else f'right {right}'}{how}"


def because(cause: Cause) -> str:
    """A cause with its versions and where it is told."""
    versions = " to ".join(
        filter(None, (cause.since and f"from {cause.since}", cause.before and f"before {cause.before}"))
    )
    aside = ", ".join(filter(None, (versions, cause.source)))
    return f"{cause.text} ({aside})" if aside else cause.text


def quantity(value: float | None, unit: str) -> str:
    """A number with its unit."""
    if value is None:
        return UNKNOWN
    if unit == "ratio":
        return f"{value:.1%}"
    number = f"{value:,.0f}" if float(value).is_integer() or abs(value) >= 1000 else f"{value:.3g}"
    return f"{number} {unit}".rstrip()
