"""What the writer asks of the store about one kind: insert a batch, count it, delete it, complete it."""

from __future__ import annotations

import re

from clickhouse_connect.driver.client import Client

from collector.batch import Batch
from collector.kinds import KINDS

_CODE = re.compile(r"\bcode:? (\d+)", re.IGNORECASE)


class Landing:
    """The tables of one kind in the store. Every method may raise what clickhouse-connect raises."""

    def __init__(self, client: Client, kind: str) -> None:
        self.client = client
        self.kind = KINDS[kind]

    def insert(self, batch: Batch, payload: bytes) -> None:
        """Insert a batch: once, however often it is tried under the same token."""
        self.client.raw_insert(
            self.kind.intake,
            # given bytes the client would copy them behind the statement, and the store take them apart again
            insert_block=memoryview(payload),  # type: ignore[arg-type]
            fmt=self.kind.format,
            settings={
                **self.kind.settings,
                "log_comment": batch.name,
                "insert_deduplication_token": batch.token,
                "deduplicate_blocks_in_dependent_materialized_views": "1",
            },
        )

    def count(self, batch_name: str) -> int:
        """Rows of a batch that the store has; 0 for tables that keep one row a key, where repeating does no harm."""
        if self.kind.replacing:
            return 0
        counts = " + ".join(
            f"(SELECT count() FROM {table} WHERE {self.kind.batch_column} = {{batch:String}})"
            for table in self.kind.targets
        )
        rows = self.client.query(f"SELECT {counts}", parameters={"batch": batch_name}).result_rows
        return int(rows[0][0])

    def erase(self, batch_name: str) -> None:
        """Delete what the store has of a batch, and wait until it is gone."""
        if self.count(batch_name):
            for table in self.kind.targets:
                self.client.command(
                    f"DELETE FROM {table} WHERE {self.kind.batch_column} = {{batch:String}}",
                    parameters={"batch": batch_name},
                )

    def repair(self, batch_name: str) -> None:
        """Complete what views derive from a batch: a crash can fall between a table and its view."""
        for statement in self.kind.repairs:
            self.client.command(statement, parameters={"batch": batch_name})


def code_of(error: Exception) -> int | None:
    """ClickHouse's error code, None where the error is not ClickHouse's."""
    found = _CODE.search(str(error))
    return int(found[1]) if found else None
