"""What the engine does on this machine: `hitmap engine bench`.

Every question is asked in several rounds, each of which asks all of its variants one after the other, so that a machine
that gets slower meanwhile does so for all of them. Figures are medians, with the lowest and the highest beside them.
"""

from __future__ import annotations

import sys

from rich.console import Console
from rich.progress import Progress

from engine.bench.mix import measure_throughput, mix_for
from engine.bench.overhead import measure_overhead
from engine.bench.report import Report, as_json_text, print_report
from engine.bench.tiers import lengths_for, measure_tiers
from engine.config import EngineConfig
from engine.model.load import load


def main(quick: bool, as_json: bool, config: EngineConfig) -> None:
    """Measure and print. quick: two rounds, short prompts, few requests.

    Raises UserError for settings that leave nothing to measure.
    """
    rounds = 2 if quick else 7
    lengths = lengths_for(config, longest=1024 if quick else config.max_model_len)
    mix = mix_for(config, requests=16 if quick else 48)
    loaded = load(config)
    with Progress(console=Console(stderr=True), transient=True) as progress:
        tiers = measure_tiers(config, loaded, lengths, rounds, progress)
        throughput = measure_throughput(config, loaded, mix, rounds, progress)
        overhead = measure_overhead(config, loaded, mix, 2 * rounds, progress)
    report = Report.of(config, loaded, tiers, throughput, overhead)
    if as_json:
        sys.stdout.write(as_json_text(report) + "\n")
    else:
        console = Console()
        print_report(report, Console(width=max(100, console.width)))
