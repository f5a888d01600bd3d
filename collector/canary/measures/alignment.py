"""The alignment law of the cache: in which units it serves what it holds.

Where the server tells cached tokens: prompts of designed lengths, each sent twice (cachemodel/alignment_probes.py), and
the law that fits them (cachemodel/alignment_fit.py). Where it does not: the time a prompt saves when it is sent again
is a staircase over its length, and the step is the unit (collector/canary/steps.py); how sure that is depends on how
long a token takes, and the bounds say so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from cachemodel.alignment_fit import Fit, Pair, explains, fit_pairs, possible_laws
from cachemodel.alignment_probes import Probe, designed_probes
from collector.canary.finding import Finding, untold
from collector.canary.measures.base import MS, Measure, Options, Reuse, because
from collector.canary.prober import Prober, Sample
from collector.canary.steps import Saved, fit_steps

MOST_PROBES = 30
CONFIRMED = 3
CONTRADICTED = 0.3  # of the hits: more of them cannot be entries that went in between
STAIRS, STAIR_ROUNDS = 24, 2
_UNIT, _DROPPED, _LEAST = "alignment.unit", "alignment.dropped_units", "alignment.least_tokens"


Inputs = Mapping[str, Any]


class AlignmentMeasure(Measure):
    name = "alignment"

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._reuse = Reuse()
        self._pairs: list[Pair] = []
        self._saved: list[Saved] = []

    def collect(self, prober: Prober) -> None:
        longest = prober.room(self.options.longest)
        self._reuse.calibrate(prober, longest)
        if not self._reuse.works:
            return
        if self._reuse.told:
            self._probe(prober, longest)
        else:
            self._climb(prober, longest)

    def _probe(self, prober: Prober, longest: int) -> None:
        """Send designed probes until one law is left, then some of other lengths to confirm it."""
        seen: set[Probe] = set()
        for _ in range(MOST_PROBES):
            designed = self._designed(prober, longest)
            probe = next((probe for probe in designed if probe not in seen), None)
            if probe is None:
                break
            seen.add(probe)
            self._send(prober, probe)
        for length in prober.shuffled(range(longest // 2, longest), CONFIRMED):
            self._send(prober, Probe(length, length))

    def _designed(self, prober: Prober, longest: int) -> list[Probe]:
        """What would tell more, the best first."""
        designed = designed_probes(self._pairs, longest)
        hits = [pair.prompt for pair in self._pairs if pair.cached]
        if hits and not designed and not _settled(fit_pairs(self._pairs)):
            return _whole_probes(_beyond_least(self._pairs), min(hits), longest)
        if hits and not prober.dialect.ids:
            return _whole_probes(self._pairs, prober.added + 1, longest)
        return designed

    def _send(self, prober: Prober, probe: Probe) -> None:
        whole = prober.write(probe.prompt)
        part = whole if probe.held == probe.prompt else prober.writer.beginning(whole, probe.held)
        first, again = prober.ask(part), prober.ask(whole)
        if first and again and again.cached is not None:
            held = again.tokens if part is whole else first.tokens
            self._pairs.append(Pair(again.tokens, again.cached, held))

    def _climb(self, prober: Prober, longest: int) -> None:
        for _ in range(STAIR_ROUNDS):
            low = max(2, longest // STAIRS)
            for length in prober.shuffled(range(low, longest + 1), STAIRS):
                prompt = prober.write(length)
                first, again = prober.ask(prompt), prober.ask(prompt)
                if first and again:
                    self._saved.append(_saved(first, again))

    def findings(self, broken_off: str) -> list[Finding]:
        if self._pairs:
            return self._of_pairs(broken_off)
        if self._saved:
            return self._of_times(broken_off)
        return [untold(_UNIT, "{token}", because(self._reuse.why_not, broken_off))]

    def _of_pairs(self, broken_off: str) -> list[Finding]:
        fit, pairs = fit_pairs(self._pairs), self._pairs
        found = []
        beyond = _beyond_least(self._pairs)
        if not _settled(fit) and len(beyond) < len(pairs) and _settled(again := fit_pairs(beyond)):
            fit, pairs = again, beyond
            found.append(_least(self._pairs))
        inputs: Inputs = {"pairs": [list(pair) for pair in self._pairs]}
        if fit is None:
            why = because("no law of units explains the cached tokens", broken_off)
            return [untold(_UNIT, "{token}", why, len(pairs), inputs=inputs), *found]
        if why := self._contradiction(fit, pairs):
            return [untold(_UNIT, "{token}", because(why, broken_off), len(pairs), inputs=inputs), *found]
        laws = (fit.alignment, *fit.candidates)
        return [
            _bounded(_UNIT, "{token}", fit, [law.unit for law in laws], inputs),
            _bounded(_DROPPED, "1", fit, [law.dropped_units for law in laws], {}),
            *found,
        ]

    def _contradiction(self, fit: Fit, pairs: list[Pair]) -> str:
        """Why no law holds although hits alone would fit one: what was held is known here, and says otherwise."""
        hits = [pair for pair in pairs if pair.cached]
        odd = sum(not explains(fit.alignment, pair) for pair in hits)
        varied = self._reuse.varied
        if not varied and odd <= CONTRADICTED * len(hits):
            return ""
        told = f"{odd} of {len(hits)} hits are not what one law gives of what was held"
        if varied:
            told += f", and the same {varied[0]:,} tokens sent again got {varied[1]:,} to {varied[2]:,} cached ones"
        return f"the cached tokens do not follow from what was sent: {told}"

    def _of_times(self, broken_off: str) -> list[Finding]:
        inputs = {"saved_ms": [[saved.tokens, round(saved.ms, 3)] for saved in self._saved]}
        steps = fit_steps(self._saved)
        if steps is None:
            why = because("times to first token show no steps over the length of a prompt", broken_off)
            return [untold(_UNIT, "{token}", why, len(self._saved), inputs=inputs)]
        how = f"derived from {len(self._saved)} times to first token, cached tokens being untold"
        words = f"Between {steps.low} and {steps.high} tokens are reused together ({how})."
        if steps.unit is not None:
            words = f"Hits come in units of {steps.unit} tokens, the one usual unit among {steps.low} to {steps.high}"
            words += f" that the times allow ({how})."
        value = None if steps.unit is None else float(steps.unit)
        return [
            Finding(
                _UNIT,
                value,
                "{token}",
                len(self._saved),
                words,
                low=float(steps.low),
                high=float(steps.high),
                inputs=inputs,
            )
        ]


def _settled(fit: Fit | None) -> bool:
    return fit is not None and fit.certain and not fit.misfits


def _beyond_least(pairs: list[Pair]) -> list[Pair]:
    """Without the prompts that are shorter than all that hit: some servers reuse nothing below a length."""
    shortest = min((pair.prompt for pair in pairs if pair.cached), default=0)
    return [pair for pair in pairs if pair.cached or pair.prompt >= shortest]


def _whole_probes(pairs: list[Pair], shortest: int, longest: int) -> list[Probe]:
    """The lengths from `shortest` on at which the laws that are left differ most, the shortest first.

    For servers that reuse nothing below a length, and for texts: the server puts some tokens around each, and it is not
    known where the tokens of a part end, so that all of a prompt is sent twice.
    """
    laws = possible_laws(Counter(pairs))
    beside = {law.unit * units + more for law in laws for units in range(1, 5) for more in (0, 1)}
    lengths = sorted(length for length in beside if shortest <= length <= longest)

    def outcomes(length: int) -> int:
        return len({law.attainable(length) for law in laws})

    telling = [length for length in lengths if outcomes(length) > 1]
    return [Probe(length, length) for length in sorted(telling, key=outcomes, reverse=True)]


def _least(pairs: list[Pair]) -> Finding:
    shortest = min(pair.prompt for pair in pairs if pair.cached)
    longest = max(pair.prompt for pair in pairs if not pair.cached and pair.prompt < shortest)
    words = f"Nothing of a prompt of {longest:,} tokens was reused, something of one of {shortest:,} was."
    return Finding(
        _LEAST,
        float(shortest),
        "{token}",
        len(pairs),
        words,
        low=float(longest + 1),
        high=float(shortest),
    )


def _bounded(name: str, unit: str, fit: Fit, values: list[int], inputs: Inputs) -> Finding:
    """What all laws that are left agree on, or the likeliest within what they allow."""
    return Finding(
        name,
        float(values[0]) if fit.certain or len(set(values)) == 1 else None,
        unit,
        fit.pairs,
        fit.sentence,
        low=float(min(values)),
        high=float(max(values)),
        inputs=inputs,
    )


def _saved(first: Sample, again: Sample) -> Saved:
    return Saved(again.tokens, (first.ttft_s - again.ttft_s) * MS)
