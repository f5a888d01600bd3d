"""All facts of two sides, computed once. A fact that nothing tells is missing: a rule that asks for it is silent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from clickhouse_connect.driver.client import Client

from analysis.attribution.model import Resampling, Side, Verdict, View
from analysis.diagnosis.counters import counted, counts, fewest_slots, kinds_of
from analysis.diagnosis.fleet import fleet
from analysis.diagnosis.memory import of_processes, of_threads
from analysis.diagnosis.model import Fact
from analysis.diagnosis.over_time import bursts
from analysis.diagnosis.passes import passes
from analysis.diagnosis.requests import loads, of_requests

_OF_PASSES = ("decode speed", "prefill speed", "decode", "prefill", "workload")


def facts(client: Client, a: Side, b: Side, drawn: Resampling, views: Sequence[View]) -> Mapping[str, Fact]:
    """By the names of vocabulary.FACTS; what is not known is left out. drawn: resamples of both sides."""
    both = counts(client, a, b)
    found = {
        **of_requests(a, b, drawn),
        **loads(a, b),
        **bursts(a, b),
        **fleet(a, b, fewest_slots(client, a), fewest_slots(client, b)),
        **(counted(*both, a, b) if both else {}),
        **of_threads(a, b, drawn),
        **of_processes(client, a, b),
    }
    if _is_named(views, _OF_PASSES):  # a law takes seconds, and speaks of these only
        found = {**passes(client, a, b, views), **found}
    return found


def dialects(client: Client, side: Side) -> set[str]:
    """Kinds of the servers of a side."""
    return kinds_of(client, side)


def _is_named(views: Sequence[View], names: Sequence[str]) -> bool:
    return any(
        share.name in names and share.verdict is Verdict.NAMED for view in views for share in view.shares
    )
