"""`hitmap load`: a workload, a trace or a seeded mix, its requests sent when they are due whatever the server does."""

from hitmap.load.plan import Plan, Planned
from hitmap.load.run import prompts, run
from hitmap.load.summary import Summary

__all__ = ["Plan", "Planned", "Summary", "prompts", "run"]
