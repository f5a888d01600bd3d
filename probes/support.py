"""What this host supports, as rows for `hitmap doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """YES: works, tried just now. LESS: a lower rung of a ladder works. NO: could work with what `needs` says.
    NEVER: not on this hardware or kernel."""

    YES = "yes"
    LESS = "less"
    NO = "no"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Support:
    """sensor: grpc, kernel, pmu or gpu. name: what is supported, as people call it. how: the rung or way that works
    with what was seen (`4,096 pages touched, 4,096 faults`). needs: for NO and LESS the exact package, capability,
    setting or command that opens it; empty else."""

    sensor: str
    name: str
    state: State
    how: str
    needs: str = ""
