"""What a canary can measure, one module each, in the order in which a run takes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from collector.canary.measures.alignment import AlignmentMeasure
from collector.canary.measures.base import Measure, Options
from collector.canary.measures.lifetime import LifetimeMeasure
from collector.canary.measures.prefill import PrefillMeasure
from collector.canary.measures.replicas import ReplicasMeasure
from collector.canary.measures.salt import SaltMeasure
from collector.canary.measures.tiers import TiersMeasure

MEASURES: Mapping[str, Callable[[Options], Measure]] = {
    measure.name: measure
    for measure in (
        *(PrefillMeasure, AlignmentMeasure, SaltMeasure, ReplicasMeasure, LifetimeMeasure, TiersMeasure),
    )
}
DEFAULT = ("prefill", "alignment", "salt")

__all__ = ["DEFAULT", "MEASURES", "Measure", "Options"]
