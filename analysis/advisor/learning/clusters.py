"""Which prompts are made of one template: those whose heads have most of what they say in common, by sentences."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from analysis.advisor.learning.messages.tools import tool_name
from analysis.advisor.learning.model import HEAD_ROLES, Cluster, head
from analysis.advisor.learning.text.pieces import SHORT, phrases, pieces, size
from cachemodel.prompts.model import Kind, Part, Prompt

SAME = 0.5  # share of the smaller head that must be in the cluster's
MAX_PIECES = 400  # of a head are looked at: those at its beginning
MAX_CHARACTERS = 40_000
MAX_TOKENS = 1024  # of a head that is told as tokens
RUN, ONE_IN = 8, 8  # tokens that are compared as one, and of how many such runs one is
_PRIMES = np.array(
    [
        *(0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63),
        *(0x27D4EB2F165667C5, 0xD6E8FEB86659FD93, 0xA0761D6478BD642F, 0xE7037ED1A0B428DB),
    ],
    np.uint64,
)


def clusters(prompts: Sequence[Prompt]) -> list[Cluster]:
    """The clusters, largest first; every prompt is in one."""
    found = _Clusters()
    members: dict[int, list[int]] = defaultdict(list)
    for index, prompt in enumerate(prompts):
        members[found.of(_features(prompt))].append(index)
    _join(members, [number for number, own in members.items() if _is_talk([prompts[at] for at in own])])
    ordered = sorted(members.values(), key=len, reverse=True)
    return [Cluster(number, tuple(requests)) for number, requests in enumerate(ordered)]


def _is_talk(prompts: Sequence[Prompt]) -> bool:
    """Whether these are the requests of one conversation that no instructions precede."""
    begun = prompts[0].parts[:1]
    return len(prompts) > 1 and all(
        one.parts[:1] == begun and not head(one) and not _instructions(one) for one in prompts
    )


def _join(members: dict[int, list[int]], numbers: Sequence[int]) -> None:
    """Makes one of several: conversations that have no template are of one application, as far as anybody knows."""
    if numbers:
        members[numbers[0]] = sorted(at for number in numbers for at in members.pop(number))


def _features(prompt: Prompt) -> frozenset[str]:
    parts = head(prompt) or _instructions(prompt) or prompt.parts[:1]
    told: list[str] = []
    for part in parts:
        if part.kind is Kind.TOKENS:
            continue
        told += [_tool(part)] if part.kind is Kind.TOOL else pieces(part.text[:MAX_CHARACTERS])
        if len(told) > MAX_PIECES:
            break
    if sum(map(size, told)) < SHORT:
        told = [phrase for one in told for phrase in phrases(one)] or told
    return frozenset(told[:MAX_PIECES]) or frozenset(_tokens(parts))


def _instructions(prompt: Prompt) -> list[Part]:
    """System messages that stand behind what was said."""
    return [part for part in prompt.parts if part.role in HEAD_ROLES]


def _tool(part: Part) -> str:
    return f"tool {tool_name(part.text)}"


def _tokens(parts: Sequence[Part]) -> list[str]:
    """Of a prompt that is told as tokens: some of its runs, chosen by what they say and not by where they stand, so
    that a value in front of them that is longer or shorter changes none."""
    told = (
        parts[0].tokens
        if len(parts) == 1
        else [token for part in parts for token in part.tokens[:MAX_TOKENS]]
    )
    ids = np.array(told[:MAX_TOKENS], np.uint64)
    if len(ids) <= RUN:
        return [str(ids.tolist())] if len(ids) else []
    runs = np.lib.stride_tricks.sliding_window_view(ids, RUN)
    hashes = (runs * _PRIMES).sum(axis=1, dtype=np.uint64) * _PRIMES[0]
    mixed = hashes ^ (hashes >> np.uint64(29))
    chosen = mixed[mixed % np.uint64(ONE_IN) == 0] if len(mixed) > 4 * ONE_IN else mixed
    return [f"run {one:016x}" for one in chosen.tolist()]


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
        weights = {feature: size(feature) for feature in features}
        for feature in features & self._with.keys():
            for cluster in self._with[feature]:
                votes[cluster] += weights[feature]
        own = sum(weights.values())
        cluster = next(
            (c for c, common in votes.most_common(3) if common >= SAME * min(own, self._size[c])),
            len(self._size),
        )
        if cluster == len(self._size):
            self._size.append(own)
            for feature in features:
                self._with[feature].add(cluster)
        self._known[features] = cluster
        return cluster
