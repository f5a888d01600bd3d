"""Where the senders of requests set cache breakpoints, and where the blocks between them end, in tokens.

Caches that keep entries only where somebody asks for one (Anthropic's) need both; all others need neither.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from analysis.advisor.learning.model import head
from analysis.prefix_replay.model import Ints, Ragged
from analysis.prefix_replay.rules import ProviderRule, Rule
from cachemodel.prompts.model import Part, Prompt
from cachemodel.prompts.read import read

Body = Mapping[str, Any]
Ends = Callable[[Body, Sequence[Part]], Sequence[int]]
"""Of each part of a request: how many tokens of its prompt come before the part's end."""

AUTOMATIC = "cache_control"
"""The mark of a request that asks for one breakpoint at its end."""


class Marked(NamedTuple):
    """Of n requests: token positions of their breakpoints, and of the ends of their blocks. heads: where what stands
    before the conversation ends, (n,)."""

    breakpoints: Ragged
    parts: Ragged
    heads: Sequence[int]

    def as_advised(self, lengths: Sequence[int]) -> Marked:
        """With breakpoints where Anthropic's documentation puts them: behind what stands before the conversation, and
        at the end of each request of so many tokens."""
        told = list(zip(self.heads, lengths, strict=True))
        return Marked(_ragged(told), self.parts, self.heads)


def needs_marks(rule: Rule) -> bool:
    """Whether a cache keeps nothing that nobody asked it to keep."""
    return isinstance(rule, ProviderRule) and rule.explicit


def marked(bodies: Sequence[Body], ends: Ends) -> Marked:
    """Each request as it would be sent: a rewritten one has its marks where they are then."""
    marks, blocks, heads = list[Sequence[int]](), list[Sequence[int]](), list[int]()
    for body in bodies:
        told = read(body, "") if body else []
        prompt = told[0] if isinstance(told, list) and len(told) == 1 else None
        own = list(ends(body, prompt.parts)) if prompt else []
        blocks.append(own)
        marks.append(_breakpoints(prompt, own) if prompt else [])
        heads.append(([0, *own])[len(head(prompt))] if prompt else 0)
    return Marked(_ragged(marks), _ragged(blocks), heads)


def _breakpoints(prompt: Prompt, ends: Sequence[int]) -> list[int]:
    found = []
    for mark in prompt.marks:
        within = [end for part, end in zip(prompt.parts, ends, strict=True) if _is_in(part.path, mark)]
        if mark == AUTOMATIC:
            within = list(ends[-1:])
        found += within[-1:]
    return found


def _is_in(path: str, mark: str) -> bool:
    return path == mark or path.startswith((f"{mark}.", f"{mark}["))


def _ragged(lists: Sequence[Sequence[int]]) -> Ragged:
    offsets: Ints = np.concatenate([[0], np.cumsum([len(one) for one in lists])]).astype(np.int64)
    return Ragged(np.array([value for one in lists for value in one], np.int64), offsets)
