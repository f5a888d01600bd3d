"""Attaches a server as soon as it can be asked: one that is down at the start is looked for until it answers."""

from __future__ import annotations

from collections.abc import Callable

from cachemodel.errors import UserError
from collector.attach import Attachment, AttachOptions, detect
from collector.detection import Detection
from collector.resume import Stored
from collector.sink import Sink
from collector.source import FAILING, RUNNING, SourceStatus, ThreadSource

FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 60.0


class Joining(ThreadSource):
    """A server by its address, attached once it is recognised.

    otlp: where its spans would be received. found: told what it is when that is known.
    """

    def __init__(
        self,
        url: str,
        options: AttachOptions,
        sink: Sink,
        stored: Stored | None = None,
        *,
        otlp: str = "127.0.0.1:4317",
        found: Callable[[str, Detection], None] = lambda _server, _detection: None,
    ) -> None:
        super().__init__(f"server {options.server}", sink)
        self._url = url
        self._options = options
        self._stored = stored
        self._otlp = otlp
        self._found = found
        self._attachment: Attachment | None = None
        self._wait_s = FIRST_WAIT_S

    def work(self) -> None:
        if self._attachment:
            self._stopping.wait()
            return
        try:
            detection = detect(self._url, api_key=self._options.api_key, otlp=self._otlp)
            attachment = Attachment(detection, self._options, self._sink, self._stored)
            attachment.start()
        except UserError as error:
            self.tell(FAILING, f"{error}; tried again every {LONGEST_WAIT_S:.0f} s at least")
            self._stopping.wait(self._wait_s)
            self._wait_s = min(2 * self._wait_s, LONGEST_WAIT_S)
            return
        self._attachment = attachment
        if self._stopping.is_set():  # told to while it was looking
            attachment.stop()
        self.tell(RUNNING, f"{detection.kind} {detection.version}".strip())
        self._found(self._options.server, detection)

    def stop(self, timeout_s: float = 5.0) -> None:
        super().stop(timeout_s)
        if self._attachment:
            self._attachment.stop()

    def statuses(self) -> list[SourceStatus]:
        """How the server fares: its sources once it is attached, before that the search."""
        return self._attachment.status() if self._attachment else [self.status()]
