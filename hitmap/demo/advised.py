"""What the demo says to write instead, and what came of it: predicted before, measured after."""

from __future__ import annotations

import json
import runpy
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from clickhouse_connect.driver.client import Client
from rich.console import Console
from rich.text import Text

from analysis.advisor.advice import Advice
from analysis.advisor.consult import consult
from analysis.advisor.export import Export, chosen
from analysis.advisor.key import key_of
from analysis.advisor.priced import priced
from analysis.advisor.pricing.price import Q
from analysis.advisor.report import AdviceReport
from analysis.advisor.text import with_interval
from analysis.attribution.certainty.fall import fall
from analysis.attribution.model import Side
from analysis.attribution.reader import read_side
from analysis.interval import Interval
from analysis.prefix_replay.named import Named
from analysis.prefix_replay.rules import ENGINE
from analysis.report.metrics import METRICS
from analysis.selection import Selection
from hitmap.advise.deliver import write_rules
from hitmap.advise.inputs import read_logs
from hitmap.advise.kept import Saved, keep
from hitmap.demo.live import SERVER, TOKENIZER
from hitmap.demo.periods import AFTER, REWRITTEN, Rewrite
from hitmap.prompt_tokens import body_tokens


@dataclass(frozen=True)
class Advised:
    """Of the prompts with the clock. told: the same for people, in tokens and milliseconds."""

    advice: Advice
    told: AdviceReport
    export: Export


@dataclass(frozen=True)
class Verified:
    """The same requests through the rewriter. Prompt tokens computed as they were sent, rewritten, and rewritten as
    predicted; ms of the time to first token before, saved, and predicted to be saved, None where no twin could."""

    computed_as_sent: int
    computed_rewritten: int
    computed_predicted: int
    p95_as_sent_ms: float
    p95_saved_ms: Interval
    p95_predicted_ms: Interval | None
    mean_as_sent_ms: float
    mean_saved_ms: Interval
    mean_predicted_ms: Interval | None


def advised(client: Client, log: Path, home: Path) -> Advised:
    """Advice on the requests of the second period; their log is put into `home`. Raises UserError."""
    own = home / "after.jsonl"
    with log.open() as lines, own.open("w") as out:
        out.writelines(line for line in lines if json.loads(line).get("phase") == AFTER.phase)
    tokens = body_tokens(str(TOKENIZER))
    engine = Named(ENGINE, "the engine's cache in blocks of 16 tokens")
    found = consult(
        read_logs([own]).prompts,
        tokens,
        engine,
        tokens_by="the engine's own tokenizer",
        price=lambda advice: priced(client, advice),
    )
    return Advised(found.advice, found.report, chosen(found.advice))


def rewriter(found: Advised, home: Path) -> Rewrite:
    """The module that people put into a gateway, as `hitmap advise --apply` writes it, loaded from there."""
    folder = home / "rewriter"
    write_rules(found.export, found.advice, folder)
    rewrite: Rewrite = runpy.run_path(str(folder / "rewriter.py"))["rewrite"]
    return rewrite


def verified(client: Client, found: Advised) -> Verified:
    """What the third period says beside the second one."""
    sides = _side(client, AFTER.phase), _side(client, REWRITTEN.phase)
    rng, price = np.random.default_rng(0), found.told.price
    p95, p95_before = fall(*sides, Q, rng)
    mean, mean_before = fall(*sides, None, rng)
    computed = [round(float((side.prompt - side.tokens[:-1].sum(axis=0)).sum())) for side in sides]
    _keep(client, found, mean, sides[0].n)
    return Verified(
        computed_as_sent=computed[0],
        computed_rewritten=computed[1],
        computed_predicted=computed[0] - found.advice.together.saved,
        p95_as_sent_ms=p95_before,
        p95_saved_ms=p95,
        p95_predicted_ms=price.p95_ms if price else None,
        mean_as_sent_ms=mean_before,
        mean_saved_ms=mean,
        mean_predicted_ms=price.mean_ms if price else None,
    )


def _keep(client: Client, found: Advised, mean: Interval, requests: int) -> None:
    """For the dashboard; where one suggestion is all there is, it is verified by itself."""
    names = [("", "all suggestions together")]
    if len(found.export.taken) == 1:
        (one,) = found.export.taken
        names.append((key_of(one), f"{one.slot.cause.value} at {one.slot.path}"))
    keep(client, SERVER, [Saved(*name, mean, None, requests, {"by": "the demo's load"}) for name in names])


def _side(client: Client, phase: str) -> Side:
    asked = Selection(phase, "labels['phase'] = {advised_phase:String}", {"advised_phase": phase})
    return read_side(client, asked, METRICS["ttft"], causes=False)


def show(of: Verified, console: Console) -> None:
    """Print it."""
    before, after = of.computed_as_sent, of.computed_rewritten
    lines = [
        f"prompt tokens computed: {before:,} as sent, {after:,} rewritten; {of.computed_predicted:,} were predicted",
        _time("P95", of.p95_as_sent_ms, of.p95_saved_ms, of.p95_predicted_ms),
        _time("mean", of.mean_as_sent_ms, of.mean_saved_ms, of.mean_predicted_ms),
    ]
    console.print(Text("Verified: the same requests at the same times, through the rewriter", style="bold"))
    for line in lines:
        console.print(f"  {line}", soft_wrap=True, markup=False)


def _time(name: str, before: float, saved: Interval, predicted: Interval | None) -> str:
    told = (
        f"time to first token, {name}: {before:,.0f} ms as sent, {before - saved.value:,.0f} ms rewritten, which saves"
        f" {with_interval(saved, 'ms')}"
    )
    if predicted is None:
        return told
    holds = {True: ", which holds that", False: ", which does not hold that", None: ""}
    return f"{told}; predicted {with_interval(predicted, 'ms')}{holds[predicted.holds(saved.value)]}"
