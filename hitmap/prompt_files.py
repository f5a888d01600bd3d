"""Reads the prompts of log files: JSON lines or one JSON array, plain, gzip or zstd, in the order of time.

What is no prompt is counted by its reason and never stops the reading. Files are read as streams; a window of prompts
is held to bring them into order, since logs are written when responses end. KV events come to prompts at the end of
their file only.
"""

from __future__ import annotations

import gzip
import heapq
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import msgspec

from cachemodel.errors import UserError
from cachemodel.prompts.decode import SharedDecoder
from cachemodel.prompts.kv_recording import Recording, is_recorded
from cachemodel.prompts.model import Prompt
from cachemodel.prompts.read import TOO_DEEP, read_value
from cachemodel.prompts.split import NOT_JSON, Piece, pieces
from cachemodel.prompts.telemetry import Conversations

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

WINDOW = 1 << 16
"""Prompts held to order them by time, of all files together."""
FORMS = (
    "requests of OpenAI's chat, completions or responses, Anthropic's messages or Gemini's contents (alone or under"
    " body, request or request_body), ShareGPT conversations, texts, token ids, OpenTelemetry GenAI spans and logs,"
    " recordings of KV events"
)
CUT, DAMAGED = "file ends inside its compressed data", "file cannot be read to its end"

_CHUNK = 1 << 20
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass(slots=True)
class LeftOut:
    """Lines of one reason, or blocks. first: file and line of the first of them."""

    first: str
    count: int = 0


class PromptFiles:
    """The prompts of some files; iterate over it once.

    progress: is told of every stretch that was read of the files, in bytes as they lie there. server: of which the logs
    are. left_out: what was no prompt, by reason. lines: lines and items that were not empty; prompts: how many came out
    of them; mended: lines with broken UTF-8, in which U+FFFD stands now; late: prompts that came after a later one
    because their log is in no order by more than the window. of_events: prompts put together from KV events; of these,
    blocks_left_out by reason, block_sizes (blocks of so many tokens), missing (messages that were not recorded) and
    reordered (that stand behind later ones).
    Raises UserError for a file that cannot be read, and at the end where no line could be used, or where some prompts
    are of requests and some of events: those are the same ones as a rule, and would count twice.
    """

    def __init__(
        self,
        paths: Sequence[Path | str],
        *,
        server: str = "",
        progress: Callable[[int], object] | None = None,
        window: int = WINDOW,
    ) -> None:
        self.paths = [Path(path) for path in paths]
        self.left_out: dict[str, LeftOut] = {}
        self.blocks_left_out: dict[str, LeftOut] = {}
        self.block_sizes: Counter[int] = Counter()
        self.lines = self.prompts = self.late = self.of_events = self.missing = self.reordered = 0
        self._server, self._progress = server, progress or (lambda count: None)
        self._window = max(1, window // max(1, len(self.paths)))
        self._decoder = SharedDecoder()
        for path in self.paths:
            _check(path)

    @property
    def mended(self) -> int:
        """Lines with broken UTF-8 that were read all the same."""
        return self._decoder.mended

    def __iter__(self) -> Iterator[Prompt]:
        latest = float("-inf")
        streams = [_ordered(self._file(path), self._window) for path in self.paths]
        for time, prompt in heapq.merge(*streams, key=lambda timed: timed[0]):
            self.late += time < latest
            latest = max(latest, time)
            self.prompts += 1
            yield prompt
        if not self.prompts:
            raise UserError(self._nothing())
        if 0 < self.of_events < self.prompts:
            raise UserError(
                f"{self.of_events:,} of {self.prompts:,} prompts are of KV events and the others of requests, which"
                " would count twice; give one log or the other"
            )

    def _file(self, path: Path) -> Iterator[Prompt]:
        """The prompts of a file, in its order."""
        talks, recording = Conversations(), Recording(self._server)
        for place, data, fault in _pieces(path, self._progress):
            told = fault or self._read(data, place, talks, recording)
            self.lines += 1
            if isinstance(told, str):
                self.left_out.setdefault(told, LeftOut(place)).count += 1
            else:
                yield from told
        yield from talks.rest()
        yield from self._of_events(recording)

    def _of_events(self, recording: Recording) -> list[Prompt]:
        """The prompts that a recording comes to."""
        prompts = recording.chains.prompts()
        for why, count in recording.chains.left_out.items():
            self.blocks_left_out.setdefault(why, LeftOut(recording.chains.first[why])).count += count
        self.block_sizes.update(recording.chains.block_sizes)
        self.missing += recording.missing
        self.reordered += recording.late
        self.of_events += len(prompts)
        return prompts

    def _read(
        self, data: bytes, place: str, talks: Conversations, recording: Recording
    ) -> list[Prompt] | str:
        try:
            value = self._decoder.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return NOT_JSON
        except RecursionError:
            return TOO_DEEP
        if is_recorded(value):
            return recording.read(value, place) or []
        return read_value(value, place, self._server, talks)

    def _nothing(self) -> str:
        names = ", ".join(str(path) for path in self.paths)
        if not self.lines:
            return f"{names}: empty; give a log of requests, one JSON object a line: {FORMS}"
        left_out = {**self.blocks_left_out, **self.left_out}
        if not left_out:
            return f"{names}: KV events of {self.lines} messages, in which no block was stored"
        reason, most = max(left_out.items(), key=lambda told: told[1].count)
        return f"{names}: no prompt in {self.lines} lines ({most.first}: {reason}); what is read: {FORMS}"


def _ordered(prompts: Iterator[Prompt], window: int) -> Iterator[tuple[float, Prompt]]:
    """Prompts by their time, as far as a window of them tells; one without a time stays behind the one before it."""
    held: list[tuple[float, int, Prompt]] = []
    last = float("-inf")
    for number, prompt in enumerate(prompts):
        last = last if prompt.time is None else prompt.time
        if last == float("-inf"):
            yield last, prompt
            continue
        heapq.heappush(held, (last, number, prompt))
        if len(held) > window:
            time, _, first = heapq.heappop(held)
            yield time, first
    while held:
        time, _, first = heapq.heappop(held)
        yield time, first


def _check(path: Path) -> None:
    """Raises UserError where there is no such file, or one that cannot be read as text."""
    try:
        with path.open("rb") as file:
            start = file.read(2)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; give the log of requests to read") from None
    except IsADirectoryError:
        raise UserError(f"{path} is a folder; name the log files in it") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    if start in _UTF16:
        raise UserError(f"{path} is written in UTF-16; save it as UTF-8")


def _pieces(path: Path, progress: Callable[[int], object]) -> Iterator[Piece]:
    """The lines of a file, or the items of the array that it is; empty ones are passed over."""
    with path.open("rb") as raw:
        chunks = _Chunks(raw, progress)
        start = b""
        for chunk in chunks:
            start += chunk
            if len(start) >= _CHUNK:
                break
        yield from pieces(str(path), start, chunks)
        if chunks.fault:
            yield Piece(str(path), b"", chunks.fault)


class _Chunks:
    """A file's text in stretches, decompressed where it is compressed, whatever its name is.

    fault: why the text ended before its end, empty where it did not.
    """

    def __init__(self, raw: IO[bytes], progress: Callable[[int], object]) -> None:
        start = raw.read(4)
        raw.seek(0)
        self._raw, self._progress, self._done, self.fault = raw, progress, 0, ""
        self._file: Any = raw
        if start.startswith(_GZIP):
            self._file = gzip.GzipFile(fileobj=raw)
        elif start == _ZSTD:
            self._file = zstd.ZstdFile(raw)

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            chunk: bytes = b"" if self.fault else self._file.read(_CHUNK)
        except EOFError:
            chunk, self.fault = b"", CUT
        except (OSError, zlib.error, zstd.ZstdError):
            chunk, self.fault = b"", DAMAGED
        place = self._raw.tell()
        self._progress(place - self._done)
        self._done = place
        if not chunk:
            raise StopIteration
        return chunk
