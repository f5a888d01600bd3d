"""`hitmap engine perturb`: what it says of itself. tests/attributed/test_perturb.py has what it measures."""

from __future__ import annotations

import math
import re

from analysis.twin.workload import FEWEST
from hitmap.commands._engine_perturb import PASSED_BY_ALL, perturb
from hitmap.engine_perturb.run import SETTLE_S, outlook


def test_what_is_said_first_is_enough_for_a_twin() -> None:
    """With the defaults of the command: the load that is asked for covers and fills all turns."""
    options = {option.name: option.default for option in perturb.params}
    words = outlook("http://127.0.0.1:8000", len(PASSED_BY_ALL), options["seconds"], options["rounds"])
    rate, duration = (int(re.search(rf"--{name} (\d+)", words)[1]) for name in ("rate", "duration"))  # type: ignore[index]
    turns = options["rounds"] * (1 + len(PASSED_BY_ALL))
    assert duration > turns * (options["seconds"] + SETTLE_S)
    mean = rate * options["seconds"] * options["rounds"]
    assert mean - 2 * math.sqrt(mean) > FEWEST, "arrivals are by chance"
    assert rate <= 4, "what docs/engine.md sends"
