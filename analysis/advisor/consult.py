"""Advice, its price, and how both are told: the one way of the command, the page and the demo."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from analysis.advisor.advice import MIN_SHARE, Advice, advise
from analysis.advisor.pricing.price import Prices
from analysis.advisor.report import AdviceReport, Position, report
from analysis.prefix_replay.named import Named
from cachemodel.prompts.model import Part, Prompt

Pricing = Callable[[Advice], Prices]


class Tokens(Protocol):
    """The prompt tokens of a request's body. name: of who tells them; untold: requests that have none, by reason;
    picture_tokens: that an image counts as."""

    name: str
    untold: dict[str, int]
    picture_tokens: int

    def __call__(self, body: Mapping[str, Any]) -> NDArray[np.uint32]:
        """Of one request; none where it has none, which is counted."""

    def ends(self, body: Mapping[str, Any], parts: Sequence[Part]) -> Sequence[int]:
        """Tokens of a request before the end of each of its parts."""

    def notes(self) -> Sequence[str]:
        """What to know of the tokens that were told, one sentence each."""


@dataclass(frozen=True)
class Consulted:
    """prices: empty where nobody asked for any."""

    advice: Advice
    prices: Prices
    report: AdviceReport


def consult(
    prompts: Sequence[Prompt],
    tokens: Tokens,
    cache: Named,
    *,
    tokens_by: str = "",
    min_share: float = MIN_SHARE,
    price: Pricing | None = None,
    position: Position = lambda _: None,
    left_out: Sequence[str] = (),
    partings: Sequence[str] = (),
    progress: Callable[[str], None] = lambda _: None,
) -> Consulted:
    """Of prompts in order of time. tokens_by: who tells tokens, where it is not `tokens` alone; position, left_out,
    partings: as `report` takes them. Raises what `price` raises."""
    advice = advise(
        prompts,
        tokens,
        cache.rule,
        cache_name=cache.words,
        tokens_by=tokens_by or tokens.name,
        ends=tokens.ends,
        picture_tokens=tokens.picture_tokens,
        min_share=min_share,
        progress=progress,
    )
    advice = replace(advice, notes=(*advice.notes, *tokens.notes()))
    prices = Prices()
    if price:
        progress("serving the requests again")
        prices = price(advice)
    progress("finding where the slots stand")
    untold = [f"{count:,} requests: {why}" for why, count in tokens.untold.items()]
    return Consulted(advice, prices, report(advice, [*left_out, *untold], prices, position, partings))
