"""Attaches a server as soon as it can be asked: one that is down at the start is looked for until it answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cachemodel.content import ContentHasher
from cachemodel.errors import UserError
from collector.attach import Attachment, AttachOptions, detect
from collector.chains.memory import ChainMemory
from collector.chains.open import MEMORY_BYTES
from collector.detection import Detection
from collector.resume import Stored
from collector.sink import Sink
from collector.source import FAILING, RUNNING, SourceStatus, ThreadSource

FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 60.0

Found = Callable[[str, Detection], None]


class Joining:
    """A server by its address, attached once it is recognised.

    hasher, snapshots, memory: see Attachment. otlp: where its spans would be received. found: told the server's name
    and what it is when that is known.
    """

    def __init__(
        self,
        url: str,
        options: AttachOptions,
        sink: Sink,
        stored: Stored | None = None,
        *,
        hasher: ContentHasher,
        snapshots: Path | None = None,
        memory: ChainMemory | None = None,
        otlp: str = "127.0.0.1:4317",
        found: Found = lambda _server, _detection: None,
    ) -> None:

        def attachment(detection: Detection) -> Attachment:
            return Attachment(
                detection, options, sink, stored, hasher=hasher, snapshots=snapshots, memory=memory
            )

        self._options = options
        self._search = _Search(url, options, sink, attachment, otlp, found)

    @property
    def memory_bytes(self) -> int:
        """What its chains take at most, once it is attached."""
        return MEMORY_BYTES if self._options.log else 0

    def start(self) -> None:
        """Begin to look for the server."""
        self._search.start()

    def stop(self) -> None:
        """Stop looking, or the sources of the server that was found."""
        self._search.stop()
        if self._search.attachment:
            self._search.attachment.stop()

    def status(self) -> list[SourceStatus]:
        """How the server fares: its sources once it is attached, before that the search."""
        attachment = self._search.attachment
        return attachment.status() if attachment else [self._search.status()]


class _Search(ThreadSource):
    def __init__(
        self,
        url: str,
        options: AttachOptions,
        sink: Sink,
        attach: Callable[[Detection], Attachment],
        otlp: str,
        found: Found,
    ) -> None:
        super().__init__(f"server {options.server}", sink)
        self.attachment: Attachment | None = None
        self._url, self._options, self._attach = url, options, attach
        self._otlp, self._found = otlp, found
        self._wait_s = FIRST_WAIT_S

    def work(self) -> None:
        if self.attachment:
            self._stopping.wait()
            return
        try:
            options = self._options
            detection = detect(self._url, api_key=options.api_key, otlp=self._otlp, service=options.service)
            attachment = self._attach(detection)
            attachment.start()
        except UserError as error:
            self.tell(FAILING, f"{error}; looking for it until it answers")
            self._stopping.wait(self._wait_s)
            self._wait_s = min(2 * self._wait_s, LONGEST_WAIT_S)
            return
        self.attachment = attachment
        self.tell(RUNNING, f"{detection.kind} {detection.version}".strip())
        if self._stopping.is_set():  # told to while it was looking
            attachment.stop()
        else:
            self._found(self._options.server, detection)
