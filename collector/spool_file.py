"""The spool's database file: its schema, and how it is opened for one process alone."""

from __future__ import annotations

import secrets
import sqlite3
from pathlib import Path

from cachemodel.errors import UserError

APPLICATION_ID = 0x48495450  # "HITP", in the file's header
SCHEMA_VERSION = 1
SCHEMA = f"""
CREATE TABLE spool (uuid TEXT NOT NULL) STRICT;
-- an accepted payload and where it is (collector/segments.py)
CREATE TABLE entry (
    kind TEXT, id INTEGER, rows INTEGER NOT NULL, segment INTEGER NOT NULL, offset INTEGER NOT NULL,
    length INTEGER NOT NULL, PRIMARY KEY (kind, id)) STRICT, WITHOUT ROWID;
-- the run of its kind's entries from `first` to `last`; ids are never used again
CREATE TABLE batch (
    id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
    entries INTEGER NOT NULL, rows INTEGER NOT NULL, attempt INTEGER NOT NULL DEFAULT 0) STRICT;
-- hashes of what was accepted, in this order
CREATE TABLE seen (id INTEGER PRIMARY KEY AUTOINCREMENT, hash BLOB NOT NULL UNIQUE) STRICT;
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
"""


def open_database(path: Path, *, fsync: bool) -> sqlite3.Connection:
    """Open or create the file; no other process can while this one has it. Raises UserError with what to do."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        db = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        fresh = not db.execute("SELECT 1 FROM sqlite_master").fetchone()
        header = [db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
        if not fresh and header != [APPLICATION_ID, SCHEMA_VERSION]:
            db.close()
            raise UserError(
                f"{path} is not a spool of this hitmap version; move it away or choose another --spool"
            )
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(f"PRAGMA synchronous = {'FULL' if fsync else 'NORMAL'}")
        db.executescript("BEGIN IMMEDIATE; COMMIT")  # takes the lock, kept until close
        if fresh:
            uuid = secrets.token_hex(6)
            db.executescript(f"BEGIN; {SCHEMA} INSERT INTO spool VALUES ('{uuid}'); COMMIT")
    except OSError as error:
        raise UserError(
            f"cannot use {path.parent} for the spool ({error.strerror}); choose another --spool"
        ) from error
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            raise UserError(
                f"spool {path} is in use by another collector; stop it or choose another --spool"
            ) from error
        raise UserError(
            f"cannot open spool {path} ({error}); check its permissions or choose another --spool"
        ) from error
    except sqlite3.DatabaseError as error:
        raise UserError(
            f"spool {path} is damaged ({error}); move it away to start with an empty one"
        ) from error
    return db
