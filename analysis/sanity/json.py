"""What is known of servers and their figures, for machines."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from datetime import datetime
from typing import Any

from analysis.sanity.model import Finding
from analysis.sanity.sources import ServerSources
from analysis.sanity.words import sentence


def to_json(servers: list[ServerSources], begin: datetime, end: datetime) -> str:
    """Indented JSON; times are ISO 8601 in UTC, what is unknown is null."""
    data = {"from": begin, "to": end, "servers": [_server(server) for server in servers]}
    return json.dumps(_clean(data), indent=2, ensure_ascii=False, allow_nan=False)


def _server(server: ServerSources) -> dict[str, Any]:
    data = asdict(server)
    data["last_seen"] = server.last_seen
    data["reuse"] = [{**asdict(line), "ratio": line.ratio} for line in server.reuse]
    data["unanswered"] = [{"rule": one.rule.id, "reason": one.reason} for one in server.unanswered]
    data["findings"] = [_finding(finding) for finding in server.findings]
    return data


def _finding(finding: Finding) -> dict[str, Any]:
    rule = finding.rule
    return {
        "rule": rule.id,
        "severity": rule.severity,
        "means": rule.means,
        "seen": sentence(finding),
        "figure": rule.said or None,
        "unit": rule.unit,
        "said": finding.said,
        "corrected": finding.corrected,
        "corrected_from": rule.corrected or None,
        "evidence": dict(finding.evidence),
        "causes": [asdict(cause) for cause in finding.causes],
        "do": rule.do,
    }


def _clean(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _clean(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(v) for v in value]
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
