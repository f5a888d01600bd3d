"""What an engine calls itself on its spans, as /version tells it, and its instance followed over restarts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from cachemodel.errors import UserError
from collector.aliases import INSTANCE, alias
from collector.detection import Probe, Visit
from collector.source import FAILING, RUNNING, PollingSource

_LONGEST = 256  # characters of a name that is believed


class Identity(NamedTuple):
    """service.name and service.instance.id of its spans; empty where it does not tell."""

    service: str
    instance: str


def identity(version: Mapping[str, object]) -> Identity:
    """As in an answer of /version."""
    told = (version.get(name) for name in ("service_name", "service_instance_id"))
    return Identity(*(name if isinstance(name, str) and len(name) <= _LONGEST else "" for name in told))


class Instance(PollingSource):
    """Asks the engine at `url` who it is: it has a new instance id whenever it was started again, and its spans would
    go to whatever else has its service name.

    known: the instance whose name is stored.
    """

    def __init__(self, url: str, known: str, visit: Visit) -> None:
        super().__init__(f"instance {visit.server}", visit.sink, visit.interval_s)
        self._url, self._known, self._visit = url, known, visit

    def poll(self) -> None:
        """One question; a new instance is stored as another name of the server."""
        try:
            told = identity(Probe(self._url, self._visit.token).json("/version")).instance
        except UserError as error:
            self.failures += 1
            self.tell(FAILING, str(error))
            return
        self.failures = 0
        if told and told != self._known:
            if not self.deliver([alias(INSTANCE, told, self._visit.server)]):
                return
            self._known = told
        self.tell(RUNNING, self._known)
