"""The rules as a Prometheus alerting-rules file: those that can be said over what servers expose and over what an OTLP
pipeline makes of probes. The others are comments with their reason.

https://prometheus.io/docs/prometheus/latest/configuration/alerting_rules/
"""

from __future__ import annotations

import string
import textwrap
from collections.abc import Iterable
from typing import Any

import yaml

from analysis.alerts.model import Rule

_HEAD = """\
# Alerting rules of hitmap, for Prometheus. Written by `hitmap alerts --prometheus`.
#
# Rules about processes and GPUs need the probes' metrics in Prometheus, by OTLP: otlp.promote_resource_attributes with
# host.name, process.pid and process.executable.name (else all processes of a job are one), and since probes send
# differences, the deltatocumulative processor of a Collector before it or --enable-feature=otlp-deltatocumulative.
# Metric names are as the default translation strategy makes them (UnderscoreEscapingWithSuffixes).
"""


class _Block(str):
    """Written as a block of lines."""


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    pass


_Dumper.add_representer(
    _Block, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style="|")
)


def to_prometheus(rules: Iterable[Rule]) -> str:
    """The file's text."""
    asked = [rule for rule in rules if rule.enabled]
    said = [_rule(rule) for rule in asked if rule.prometheus.expr]
    body = yaml.dump(
        {"groups": [{"name": "hitmap", "rules": said}]},
        Dumper=_Dumper,
        sort_keys=False,
        width=110,
        allow_unicode=True,
    )
    left_out = [
        _comment(
            f"{rule.id}: not here: {rule.prometheus.reason or 'the rule has no expression for Prometheus'}"
        )
        for rule in asked
        if not rule.prometheus.expr
    ]
    differ = [
        _comment(f"{rule.id}: {rule.prometheus.reason}")
        for rule in asked
        if rule.prometheus.expr and rule.prometheus.reason
    ]
    return "\n".join([_HEAD.rstrip(), *(["#"] if left_out or differ else []), *left_out, *differ, body])


def _rule(rule: Rule) -> dict[str, Any]:
    expr = string.Template(rule.prometheus.expr).substitute(threshold=f"{rule.threshold:.12g}")
    return {
        "alert": rule.id,
        "expr": _Block(expr.rstrip() + "\n"),
        **({"for": f"{rule.hold_s}s"} if rule.hold_s else {}),
        "labels": {"severity": rule.severity},
        "annotations": {
            "summary": _plain(f"{rule.value} {rule.breach} {rule.threshold:.12g}") + ": {{ $value }}",
            "description": _plain(rule.means),
        },
    }


def _plain(text: str) -> str:
    """Text that Prometheus does not take for a template."""
    return text.replace("{{", "{ {").replace("\n", " ")


def _comment(text: str) -> str:
    return "\n".join(f"# {line}" for line in textwrap.wrap(" ".join(text.split()), 110))
