"""Applies the numbered SQL files of store/schema/, once each, forward only."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from importlib import resources
from itertools import pairwise

from clickhouse_connect.driver.client import Client

from cachemodel.errors import UserError

TABLE = """
CREATE TABLE IF NOT EXISTS hitmap_migrations
(
    number   UInt32,
    name     String,
    checksum String,
    applied  DateTime64(3) DEFAULT now64(3)
)
ENGINE = MergeTree
ORDER BY number
"""

_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_TOKEN = re.compile(rf"{_COMMENT.pattern}|'(?:[^'\\]|\\.)*'|`[^`]*`|\"[^\"]*\"|;", re.DOTALL)


@dataclass(frozen=True)
class Migration:
    """One schema file: `0004_requests.sql` is number 4, name `requests`."""

    number: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        """Tells whether an applied file was changed since."""
        return hashlib.sha256(self.sql.encode()).hexdigest()[:16]

    @property
    def statements(self) -> list[str]:
        """The file's statements: each ends with a semicolon that stands neither in a text nor in a comment."""
        ends = [token.end() for token in _TOKEN.finditer(self.sql) if token[0] == ";"]
        parts = [self.sql[a:b] for a, b in pairwise([0, *ends, len(self.sql)])]
        return [part.strip().removesuffix(";").rstrip() for part in parts if _COMMENT.sub("", part).strip()]


def known() -> list[Migration]:
    """All schema files in order."""
    found = []
    for file in sorted(resources.files("store").joinpath("schema").iterdir(), key=lambda f: f.name):
        if match := re.fullmatch(r"(\d{4})_(\w+)\.sql", file.name):
            found.append(Migration(int(match[1]), match[2], file.read_text()))
    return found


def applied(client: Client) -> dict[int, str]:
    """number -> checksum of what the database has."""
    if not client.command("EXISTS TABLE hitmap_migrations"):
        return {}
    rows = client.query("SELECT number, any(checksum) FROM hitmap_migrations GROUP BY number").result_rows
    return {int(number): str(checksum) for number, checksum in rows}


def migrate(client: Client) -> list[Migration]:
    """Bring the database up to date and return what was applied now.

    A file that fails half way is not recorded: its statements are written to be run again (IF NOT EXISTS). Raises
    UserError when an applied file was edited or the database is newer than this hitmap.
    """
    done, files = applied(client), known()
    if done and max(done) > max(f.number for f in files):
        raise UserError(f"the database has schema {max(done)}, newer than this hitmap; update hitmap")
    for file in files:
        if file.number in done and done[file.number] != file.checksum:
            raise UserError(
                f"schema file {file.number:04}_{file.name}.sql was changed after it was applied; add a new file instead"
            )
    pending = [f for f in files if f.number not in done]
    if pending:
        client.command(TABLE)
    for file in pending:
        for statement in file.statements:
            client.command(statement)
        client.insert(
            "hitmap_migrations",
            [[file.number, file.name, file.checksum]],
            column_names=["number", "name", "checksum"],
        )
    return pending
