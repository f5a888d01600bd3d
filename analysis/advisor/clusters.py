"""Which prompts are made of one template: those whose heads have most of their sentences in common."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from analysis.advisor.model import Cluster, head
from analysis.advisor.tool_lists import tool_name
from analysis.advisor.words import sentences
from cachemodel.prompts.model import Kind, Part, Prompt

SAME = 0.5  # share of the smaller head that must be in the cluster's
MAX_SENTENCES = 400  # of a head are looked at: those at its beginning
MAX_CHARACTERS = 40_000


def clusters(prompts: Sequence[Prompt]) -> list[Cluster]:
    """The clusters, largest first; every prompt is in one."""
    found = _Clusters()
    members: dict[int, list[int]] = defaultdict(list)
    for index, prompt in enumerate(prompts):
        members[found.of(_features(prompt))].append(index)
    ordered = sorted(members.values(), key=len, reverse=True)
    return [Cluster(number, tuple(requests)) for number, requests in enumerate(ordered)]


def _features(prompt: Prompt) -> frozenset[str]:
    parts = head(prompt) or prompt.parts[:1]
    told: list[str] = []
    for part in parts:
        told += (
            [f"tool {tool_name(part.text)}"]
            if part.kind is Kind.TOOL
            else sentences(part.text[:MAX_CHARACTERS])
        )
        if len(told) > MAX_SENTENCES:
            break
    return frozenset(told[:MAX_SENTENCES]) or frozenset(_tokens(parts))


def _tokens(parts: Sequence[Part]) -> list[str]:
    """Of a prompt that is told as tokens: its first runs of 16."""
    return [
        str(part.tokens[at : at + 16])
        for part in parts
        for at in range(0, min(len(part.tokens), 16 * MAX_SENTENCES), 16)
    ]


class _Clusters:
    """Clusters by their sentences. A head goes to the one that most of its characters are in."""

    def __init__(self) -> None:
        self._known: dict[frozenset[str], int] = {}
        self._with: dict[str, set[int]] = defaultdict(set)
        self._size: list[int] = []

    def of(self, features: frozenset[str]) -> int:
        if (known := self._known.get(features)) is not None:
            return known
        votes: Counter[int] = Counter()
        for feature in features:
            for cluster in self._with.get(feature, ()):
                votes[cluster] += _weight(feature)
        size = sum(map(_weight, features))
        cluster = next(
            (c for c, common in votes.most_common(3) if common >= SAME * min(size, self._size[c])),
            len(self._size),
        )
        if cluster == len(self._size):
            self._size.append(size)
            for feature in features:
                self._with[feature].add(cluster)
        self._known[features] = cluster
        return cluster


def _weight(feature: str) -> int:
    """Bytes: a letter of a script without blanks says as much as several of one with them."""
    return len(feature.encode(errors="replace"))
