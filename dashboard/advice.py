"""Advice on the prompts of a store, worked out beside the page and kept for a short while, and what people decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from clickhouse_connect.driver.client import Client

from analysis.advisor.advice import Advice
from analysis.advisor.consult import consult
from analysis.advisor.export import Export, chosen
from analysis.advisor.learning.cause import Safety
from analysis.advisor.priced import priced
from analysis.advisor.pricing.price import Prices
from analysis.advisor.report import AdviceReport, Told, ordered
from analysis.advisor.stored.prompts import Stored, read_prompts
from analysis.advisor.stored.verdicts import Decision, Measured, Verdict, decide, decisions, verified
from analysis.advisor.suggest import Suggestion
from analysis.prefix_replay.named import CACHES as NAMES
from analysis.prefix_replay.named import Named, named, of_dialect
from cachemodel.errors import UserError
from dashboard import data, source

AS_SERVED = "as the server"
CACHES = (AS_SERVED, *NAMES)
_WAITING = (
    "Reading prompts, comparing them, and replaying them as sent and rewritten: {} s. Thousands of prompts take a "
    "while; filters can be changed meanwhile."
)
NO_TOKENS = "this dashboard was started without anything that tells tokens; `hitmap dashboard` brings it"


@dataclass(frozen=True)
class Card:
    """A suggestion: how it is told, and the suggestion itself."""

    told: Told
    suggestion: Suggestion

    @property
    def key(self) -> str:
        """What it is called in every log."""
        return self.told.key


@dataclass(frozen=True)
class Advised:
    """What a page shows of a selection. stored: without its prompts, of which there were `prompts`. report, advice:
    None where there are no prompts. cards: in the order of the report."""

    stored: Stored
    prompts: int
    report: AdviceReport | None
    advice: Advice | None
    cards: tuple[Card, ...]
    made: datetime


@dataclass(frozen=True)
class Decided:
    """By key: what people decided, and what rewrites were measured to save."""

    decisions: Mapping[str, Decision]
    verified: Mapping[str, Measured]

    def of(self, key: str) -> Decision:
        """Of one suggestion."""
        return self.decisions.get(key) or Decision()


def advised(selection: str, cache: str) -> Advised:
    """Advice on a selection, by the rules of one of CACHES; raises UserError."""
    found: Advised = data.waited(("advice", selection, cache), lambda: work_out(selection, cache), _WAITING)
    return found


def work_out(selection: str, cache: str) -> Advised:
    """The same, now."""
    tokens, now = source.tokens(), datetime.now(UTC)
    if tokens is None:
        raise UserError(NO_TOKENS)
    with source.reader() as client:
        stored = read_prompts(client, selection, now=now)
        if not stored.prompts:
            return Advised(stored, 0, None, None, (), now)
        found = consult(
            stored.prompts,
            tokens,
            cache_of(stored, cache),
            price=lambda advice: _priced(client, advice),
            left_out=stored.left_out,
        )
    suggestions = (one for one, _ in ordered(found.advice, found.prices))
    cards = tuple(
        Card(one, suggestion) for one, suggestion in zip(found.report.suggestions, suggestions, strict=True)
    )
    return Advised(replace(stored, prompts=[]), len(stored.prompts), found.report, found.advice, cards, now)


def _priced(client: Client, advice: Advice) -> Prices:
    """A page is worth showing without a price, too."""
    try:
        return priced(client, advice)
    except UserError as error:
        return Prices(refused=str(error))


def cache_of(stored: Stored, wanted: str) -> Named:
    """The cache that is wanted, or that of the servers, in their blocks."""
    name = of_dialect(stored.dialect) if wanted == AS_SERVED else wanted
    return named(name, stored.block_size if name == "vllm" else None)


def decided() -> Decided:
    """Read anew each time: a click has to show."""
    with source.reader() as client:
        return Decided(decisions(client), verified(client))


def write(key: str, verdict: Verdict, reason: str = "") -> None:
    """A decision, into the store; raises UserError where nobody may, or the store refuses."""
    opened = source.writer()
    if opened is None:
        raise UserError("this dashboard writes nothing")
    with opened as client:
        decide(client, key, verdict, reason)


def elsewhere(found: Advised, decided_: Decided) -> int:
    """How many suggestions were accepted that are not among those found."""
    here = {card.key for card in found.cards}
    return sum(one.verdict is Verdict.ACCEPTED and key not in here for key, one in decided_.decisions.items())


def accepted(found: Advised, decided_: Decided, *, drop: bool) -> Export | None:
    """The rules of what was accepted; of what makes the model see less only with `drop`. None where nothing has any."""
    if found.advice is None:
        return None
    taken: Sequence[Suggestion] = [
        card.suggestion for card in found.cards if decided_.of(card.key).verdict is Verdict.ACCEPTED
    ]
    in_order = [one for one in found.advice.suggestions if one in taken]
    export = chosen(replace(found.advice, suggestions=tuple(in_order)), Safety.DROP if drop else Safety.MOVE)
    return export if export.rules or export.left else None
