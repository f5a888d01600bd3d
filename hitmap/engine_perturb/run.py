"""Switches small delays on and off in a running engine, one layer at a time; ends every one of them, come what may."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from analysis.twin.workload import FEWEST
from hitmap.commands._engine_faults import ask
from hitmap.engine_perturb.model import FEWEST_DELAYED, Turn

SWITCH_S = 1.0  # that a switch takes on a busy engine, at most
SETTLE_S = 1.0  # after a switch, until requests of the turn before have mostly gone
START_S = 30.0  # for a person to start this after the load
Progress = Callable[[str], None]


def play(
    url: str,
    token: str | None,
    layers: Sequence[str],
    delay_ms: float,
    seconds: float,
    rounds: int,
    progress: Progress,
) -> list[Turn]:
    """Take turns, none and each of the layers, `rounds` times, so that a load that drifts is in all of them alike.

    A turn is `seconds` long. Raises UsageError for a layer that the engine does not have, UserError where no engine
    answers.
    """
    progress(outlook(url, len(layers), seconds, rounds))
    turns = []
    for number in range(rounds):
        for layer in ("", *layers):
            progress(f"round {number + 1} of {rounds}: {layer or 'no'} delay, {seconds:g} s")
            with _delayed(url, token, layer, delay_ms, seconds):
                begin = time.time() + SETTLE_S
                time.sleep(SETTLE_S + seconds)
                turns.append(Turn(layer, begin, time.time()))
    return turns


def outlook(url: str, layers: int, seconds: float, rounds: int) -> str:
    """How long it takes, and the load that it takes: enough in the turns without a delay for a twin, and in those of a
    layer for a figure."""
    turns = rounds * (1 + layers)
    whole_s = turns * (SETTLE_S + seconds)
    rate = max(FEWEST, FEWEST_DELAYED) / (rounds * seconds)
    load_s = math.ceil((whole_s + turns * SWITCH_S + START_S) / 10) * 10
    return (
        f"{turns} turns of {seconds:g} s take about {whole_s / 60:.1f} minutes. A twin takes {FEWEST} requests of those"
        f" without a delay: send at least {rate:.1f} a second all the while, as hitmap load {url}"
        f" --rate {math.ceil(1.25 * rate)} --duration {load_s} does"
    )


@contextmanager
def _delayed(url: str, token: str | None, layer: str, delay_ms: float, seconds: float) -> Iterator[None]:
    if not layer:
        yield
        return
    # it ends by itself, too, should this process be killed
    spec = f"layer={layer},delay_ms={delay_ms:g},for_s={seconds + 2 * SETTLE_S + 5:g}"
    fault = max(ask("POST", url, token, spec)).id
    try:
        yield
    finally:
        ask("DELETE", url, token, fault=fault)
