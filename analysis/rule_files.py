"""Rules as data: the YAML files of a folder inside a package, each a list of rules with an `id`."""

from __future__ import annotations

from importlib import resources
from typing import Any

import yaml


def rule_files(package: str) -> list[dict[str, Any]]:
    """What the files in `rules/` of a package say, in their order. Raises ValueError for an id that is there twice."""
    folder = resources.files(package).joinpath("rules")
    found = [
        raw
        for file in sorted(folder.iterdir(), key=lambda f: f.name)
        if file.name.endswith(".yaml")
        for raw in yaml.safe_load(file.read_text(encoding="utf-8"))
    ]
    ids = [raw.get("id") for raw in found]
    if twice := {str(id) for id in ids if id is not None and ids.count(id) > 1}:
        raise ValueError(f"rules that are there twice: {', '.join(sorted(twice))}")
    return found
