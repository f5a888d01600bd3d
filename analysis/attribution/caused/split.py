"""What caused a change: Shapley over root causes, each coalition replayed through the servers' twins.

One device serves all, so lost hits also lengthen everybody's queue and decode, and a split of each request's own time
puts them there. The twin replays the real arrivals through the scheduler with, say, the prompts of side B and all else
as on A; what a quantile gains that way is caused by the prompts, whatever layer shows it.

Error bars join two things that do not hang on each other: which requests came (the same block-bootstrap resamples as
for the other splits, on the times of every coalition) and what the twin was fitted to (laws drawn by their covariance,
the other side's requests drawn by blocks, and all coalitions played anew on a stretch of the requests).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from analysis.attribution.binned import Blocks, resampled
from analysis.attribution.caused.causes import SPEEDS
from analysis.attribution.caused.game import NOBODY, Game
from analysis.attribution.caused.server_inputs import server_inputs
from analysis.attribution.caused.told import ToldSide
from analysis.attribution.caused.twins import Twins, twins
from analysis.attribution.certainty.gate import Own
from analysis.attribution.model import Fidelity, Refused, Resampling, Side, Split
from analysis.attribution.shapley import shapley
from analysis.quantiles import Floats
from analysis.report.metrics import Metric
from analysis.twin.model import NoTwin

MOST_PLAYERS = 6  # causes played in all coalitions
NEXT_TO_NOTHING = 0.02  # of what the largest cause does
DRAWS = 16
DRAWN_REQUESTS = 4000  # of each side, on which draws are played
METHOD = (
    "Scheduler twin: a step-time law and limits fitted to each side; its requests replayed with every subset of the"
    " causes as on B; Shapley values of the quantile. Intervals: block bootstrap of the requests, draws of the laws."
)


def caused(
    a: Side,
    b: Side,
    q: float | None,
    metric: Metric,
    told: tuple[ToldSide, ToldSide],
    resampling: Resampling,
    *,
    rng: np.random.Generator | None = None,
) -> tuple[Split | Refused, list[Fidelity], dict[str, Own]]:
    """The change of the q-quantile (None: the mean) of `metric`, split over its root causes; Refused where there is no
    twin, or a poor one. With it how well the twin reproduces each side, and what the servers themselves changed."""
    try:
        both = twins(a, b, q, metric, told)
    except NoTwin as reason:
        return Refused("caused", str(reason)), [], {}
    own = server_inputs(both, resampling)
    if both.misfit:
        return Refused("caused", both.misfit), both.fidelity, own
    game = Game(both.pairs, metric.name, q, both.blocks(resampling))
    players, rest = screened(game)
    values, replicates = _shares(game, players, rest)
    if len(replicates):
        rng = rng or np.random.default_rng(0)
        fitted = _of_the_fit(both, resampling, game, (players, rest), rng)
        # normal, with the covariance that the draws show: they are too few to be shown again and again
        replicates += rng.standard_normal((len(replicates), DRAWS)) @ fitted / np.sqrt(DRAWS - 1)
    before = resampled(a.totals, q, Blocks(resampling.block_a, resampling.counts_a))
    after = resampled(b.totals, q, Blocks(resampling.block_b, resampling.counts_b))
    change, changes = after.value - before.value, after.replicates - before.replicates
    order = [name for name in game.names if name in (*players, *rest)]
    at = [[*players, *rest].index(name) for name in order]
    split = Split(
        kind="caused",
        q=q,
        names=tuple(order),
        values=values[at],
        replicates=replicates[:, at],
        change=change,
        change_replicates=changes,
        residual=change - float(values.sum()),
        residual_replicates=changes - replicates.sum(axis=1),
        provenance="simulated",
        method=METHOD,
        notes=both.notes,
    )
    return split, both.fidelity, own


def screened(game: Game) -> tuple[list[str], list[str]]:
    """Causes that are played in all coalitions, and those that do next to nothing, alone or in the end."""
    names, everybody = game.names, game.everybody
    nobody, whole = (played.value for played in game.play([NOBODY, everybody]))
    alone = np.array([played.value for played in game.play(frozenset([name]) for name in names)]) - nobody
    last = whole - np.array([played.value for played in game.play(everybody - {name} for name in names)])
    effect = np.maximum(np.abs(alone), np.abs(last))
    order = np.argsort(-effect, kind="stable")[:MOST_PLAYERS]
    kept = {names[at] for at in order if effect[at] > NEXT_TO_NOTHING * effect.max()}
    return [name for name in names if name in kept], [name for name in names if name not in kept]


def _shares(game: Game, players: list[str], rest: list[str]) -> tuple[Floats, Floats]:
    """Shares (m,) and their replicates (r, m): exact of the players, of the rest the mean of first and last."""
    values, replicates = game.values(players)
    shares, drawn = [shapley(values)], [shapley(replicates)]
    nobody, whole = game.play([NOBODY, game.everybody])
    for name in rest:
        alone, without = game.play([frozenset([name]), game.everybody - {name}])
        shares.append(np.array([(alone.value - nobody.value + whole.value - without.value) / 2]))
        drawn.append(
            ((alone.replicates - nobody.replicates + whole.replicates - without.replicates) / 2)[:, None]
        )
    return np.concatenate(shares), np.concatenate(drawn, axis=1)


def _of_the_fit(
    both: Twins,
    resampling: Resampling,
    game: Game,
    causes: tuple[list[str], list[str]],
    rng: np.random.Generator,
) -> Floats:
    """How far shares (DRAWS, m) are from their mean when the twin is fitted to other data of the same kind. Speeds that
    could not be told apart count as 0; what they would be otherwise is seen with laws that are free in them."""
    spread = _drawn(both, resampling, game, causes, rng)
    changed = {name for server in both.servers for name in server.laws.changed}
    names = [*causes[0], *causes[1]]
    same = [name for name in names if name in SPEEDS and name not in changed]
    if same:
        free = replace(both, servers=tuple(replace(one, laws=one.laws.freed) for one in both.servers))
        spread[:, [names.index(name) for name in same]] = _drawn(free, resampling, game, ([], same), rng)
    return spread


def _drawn(
    both: Twins,
    resampling: Resampling,
    game: Game,
    causes: tuple[list[str], list[str]],
    rng: np.random.Generator,
) -> Floats:
    """Shares (DRAWS, m) of draws of the twins, less their mean."""
    shares = []
    for drawn in both.drawn(resampling, DRAWS, DRAWN_REQUESTS, rng):
        a, b = (Blocks(blocks.of, blocks.counts[:0]) for blocks in drawn.blocks(resampling))
        shares.append(_shares(Game(drawn.pairs, game.metric, game.q, (a, b)), *causes)[0])
    return np.asarray(shares - np.mean(shares, axis=0))
