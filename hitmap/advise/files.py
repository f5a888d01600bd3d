"""Files that are written whole, and several of them all or none."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path

from cachemodel.errors import UserError


def write_all(texts: Mapping[Path, str]) -> None:
    """Write each text to its file; a folder that is not there is made below one that is. Where one of them cannot be
    written, all files that were there stay as they were. Pipes and devices are written to. Raises UserError."""
    waiting: dict[Path, Path] = {}
    at = Path()
    try:
        for at, text in texts.items():
            at.parent.mkdir(exist_ok=True)
            if at.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            if at.exists() and not at.is_file():
                at.write_text(text, encoding="utf-8")
                continue
            target = at.resolve()  # what a link points to is what is meant
            new = waiting[target] = target.with_name(f".{target.name}.{os.getpid()}")
            new.write_text(text, encoding="utf-8")
        for at, new in waiting.items():
            new.replace(at)
    except OSError as error:
        raise UserError(f"{at} cannot be written: {error.strerror}") from None
    finally:
        for new in waiting.values():
            new.unlink(missing_ok=True)
