"""What the store will never take, kept as files to look at, within bounds.

`<batch>.bin` is the payload as it was sent (collector/kinds.py says what each kind is), `<batch>.json` what is known.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

FOLDER = "rejected"  # in the spool's
MOST_BYTES = 64 << 20  # the newest are kept


@dataclass(frozen=True, slots=True)
class Rejection:
    """A batch that was set aside. time: Unix seconds; rows: spans, points or lines in it; file: its payload."""

    time: float
    kind: str
    rows: int
    reason: str
    file: Path


def set_aside(spool: Path, name: str, kind: str, rows: int, reason: str, payload: bytes) -> None:
    """Keep a payload; the oldest go when there are too many. Doing it twice is doing it once. Raises OSError."""
    folder = spool / FOLDER
    folder.mkdir(exist_ok=True, mode=0o700)
    about = folder / f"{name}.json"
    about.with_suffix(".bin").write_bytes(payload)
    rejection = Rejection(time.time(), kind, rows, reason, about.with_suffix(".bin"))
    about.write_text(json.dumps(asdict(rejection) | {"file": rejection.file.name}))
    total = 0
    for kept in reversed(list(rejections(spool))):
        total += kept.file.stat().st_size
        if total > MOST_BYTES and kept.file != rejection.file:
            kept.file.with_suffix(".json").unlink()
            kept.file.unlink()


def rejections(spool: Path) -> Iterator[Rejection]:
    """What was set aside in a spool's folder, oldest first; may be read while a collector runs."""
    found = []
    for about in (spool / FOLDER).glob("*.json"):
        try:
            fields = json.loads(about.read_text())
            found.append(Rejection(**fields | {"file": about.with_name(fields["file"])}))
        except (OSError, ValueError, TypeError, KeyError):
            continue  # being written or deleted right now
    yield from sorted(found, key=lambda rejection: (rejection.time, rejection.file))
