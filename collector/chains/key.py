"""The key of an installation's hashes: made once, kept in a file that its owner alone can read, or given."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
from pathlib import Path

from cachemodel.content import SHORTEST_KEY
from cachemodel.errors import UserError

log = logging.getLogger(__name__)

KEY_BYTES, LONGEST_KEY = 32, 64


def parse_key(text: str) -> bytes:
    """The key that hexadecimal digits spell. Raises ValueError in words for a person."""
    try:
        key = bytes.fromhex(text.strip())
    except ValueError:
        key = b""
    if not SHORTEST_KEY <= len(key) <= LONGEST_KEY:
        raise ValueError(
            f"a key has {2 * SHORTEST_KEY} to {2 * LONGEST_KEY} hexadecimal digits, as `openssl rand -hex 32` prints"
        )
    return key


def installation_key(file: Path) -> bytes:
    """The key in `file`, which is made where there is none. Raises UserError where it can be neither read nor made.

    Two processes that begin at once come to the same key: whoever is first to put the file there made it. A file that
    others may read is used, with a warning.
    """
    try:
        if not file.exists():
            _make(file)
        if file.stat().st_mode & 0o077:
            log.warning(
                "%s can be read by others, who could try out prompts with it: chmod 600 %s", file, file
            )
        return parse_key(file.read_text())
    except (ValueError, UnicodeDecodeError) as error:
        raise UserError(
            f"{file} holds no key: {error}; restore it, or remove it: what is stored then no longer compares"
        ) from None
    except OSError as error:
        raise UserError(f"the key of this installation, {file}: {error.strerror}") from None


def _make(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f"{file.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as out:
            out.write(secrets.token_hex(KEY_BYTES) + "\n")
            out.flush()
            os.fsync(out.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(draft, file)  # unlike a rename it never replaces a key that another process just made
    finally:
        draft.unlink()
