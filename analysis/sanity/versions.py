"""Compares versions, as far as their leading numbers go: "0.32.0rc1" is 0.32.0, "b11434" is 11434."""

from __future__ import annotations

import re

_NUMBERS = re.compile(r"\D*(\d+(?:\.\d+)*)")


def version_key(version: str) -> tuple[int, ...]:
    """What to compare a version by; empty where it is none."""
    found = _NUMBERS.match(version)
    return tuple(map(int, found[1].split("."))) if found else ()


def is_within(version: str, since: str, before: str) -> bool:
    """Whether a version is `since` or newer and older than `before`, each where given; False for an unknown version."""
    key = version_key(version)
    if not key:
        return False
    return not (since and key < version_key(since)) and not (before and key >= version_key(before))
