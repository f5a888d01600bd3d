"""`hitmap canary`: measures what a server's telemetry does not say, by requests of its own within a budget.

`run` takes the measurements (measures/) through a `Prober`, which charges every request to a `Ledger` before the
`Transport` sends it; `rehearse` takes the same course against a server that is not there.
"""

from collector.canary.budget import Budget
from collector.canary.finding import Finding, store
from collector.canary.measures import DEFAULT, MEASURES, Options
from collector.canary.run import Report, rehearse, run
from collector.canary.wire import HttpTransport

__all__ = [
    "DEFAULT",
    "MEASURES",
    "Budget",
    "Finding",
    "HttpTransport",
    "Options",
    "Report",
    "rehearse",
    "run",
    "store",
]
