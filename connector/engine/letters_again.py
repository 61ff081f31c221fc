"""Dead letters that go through the pipeline again: how an epoch reads them instead of Kafka.

With a route their epoch is decided in the coordinator log, for several tables. If its process dies between two tables'
commits, another one has to read the very same letters. So the epoch says which version of the table of letters it
reads, and the letters' mark there is its owner. Other retries may change marks later; that version stays as it was.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from connector.engine.dead_letters import Letters
from connector.engine.epoch import Reading, these
from connector.engine.outputs import Table
from sinks.contract import Epoch
from sinks.delta.dead_letters import DeadLetters
from sinks.delta.past_restores import past_restores
from sinks.delta.table import COORDINATES, DeltaTable
from sinks.errors import Fenced
from sinks.recreated import with_retired_names
from sinks.spark.sql import identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RECORD = COORDINATES[:3]
"""What identifies a record in the rows of a table."""
_OF_LETTERS = re.compile(r"dead letters/(\d+)")


def of_letters(epoch: Epoch, version: int) -> Epoch:
    """The epoch, of no records of Kafka, as one that reads letters in this version of their table."""
    return replace(epoch, batch=f"dead letters/{version}")


def letters_version(batch: str) -> int | None:
    """The version of the table of letters that an epoch of this ``batch`` reads. None: it reads Kafka, or nothing."""
    found = _OF_LETTERS.fullmatch(batch)
    return int(found[1]) if found else None


@dataclass(frozen=True)
class StillBad:
    """Takes the dead letters of a retry: they keep their place, with the new reason and without the mark."""

    letters: DeadLetters
    retry: str

    def add(self, letters: DataFrame, _: Epoch) -> None:
        """Leave these letters open. May be called again."""
        self.letters.keep(letters, self.retry)


def marked_letters(reading: Reading, letters: DeadLetters, retry: str, records: DataFrame, label: str) -> Reading:
    """As ``reading``, of the ``records`` of letters that have the mark ``retry``. ``label``: the place of the letters
    that are still bad, for messages."""
    place = Letters(StillBad(letters, retry), max_share=None, label=label)
    return replace(reading, read=these(records), letters=place)


def without_rows_there(table: DeltaTable, version: int | None, rows: DataFrame, names: tuple[str, ...]) -> DataFrame:
    """The rows of records of which the table has none at this version; None: at its newest.

    ``names``: the columns of ``rows`` with the record's coordinates. A commit after the version fences the epoch, so no
    later row can be missed.
    """
    at = f" VERSION AS OF {version}" if version is not None else ""
    held = table.spark.sql(f"SELECT {', '.join(RECORD)} FROM {table.sql}{at}")
    tried = rows.selectExpr(*(f"{name} AS {own}" for name, own in zip(names, RECORD, strict=True))).distinct()
    there = held.join(tried, list(RECORD), "left_semi").distinct()
    there = there.selectExpr(*(f"{own} AS {name}" for name, own in zip(names, RECORD, strict=True)))
    return rows.join(there, list(names), "left_anti").select(*map(identifier, rows.columns))


def forget_deletes(tables: Iterable[Table], records: str, at: int | None = None) -> None:
    """Forget which deletes in these tables came of these records; ``records``: SQL of their coordinates, as in FROM;
    ``at``: the epoch that tries them again, see ``Tombstones.forget``."""
    for table in tables:
        if table.derivation.tombstones is not None:
            table.derivation.tombstones.forget(records, at)


def open_undone(letters: DeadLetters, table: Table, pipeline: str) -> int:
    """Open dead letters again whose retry a RESTORE has undone. Returns how many there are.

    A run does so as soon as it sees that the table was restored. But only the newest commit shows that, and the run
    that was next may have had a file without these letters. So this goes by the history, as far back as it goes.
    """
    since = letters.oldest_retry() if letters.exists() else None
    if since is None:
        return 0
    return sum(
        letters.reopen(
            with_retired_names(past.to.offsets, past.to.topics) if past.to.delivery == "transactional" else None,
            past.to.epoch,
            past.highest,
            taken_in=past.taken_in,
            forget=partial(forget_deletes, [table]),
        )
        for past in past_restores(table.table, table.commits, pipeline, since=since)
    )


@contextmanager
def forgetting_deletes(tables: Sequence[Table], records: str, at: int) -> Iterator[None]:
    """Forget these deletes before the block; and those that the block has kept, if another run fences its commit."""
    forget_deletes(tables, records, at)
    try:
        yield
    except Fenced:
        forget_deletes(tables, records, at)
        raise


@dataclass(frozen=True)
class RoutedLetters:
    """The dead letters of a pipeline with a route, as its epochs see them."""

    letters: DeadLetters
    label: str

    def reading(self, epoch: Epoch, reading: Reading) -> Reading:
        """How the epoch is read: as ``reading`` says, or from the letters."""
        version = letters_version(epoch.batch)
        if version is None:
            return reading
        records = self.letters.records(epoch.owner, version)
        return marked_letters(reading, self.letters, epoch.owner, records, self.label)

    def committed(self, epoch: Epoch) -> None:
        """Close what went through in a retry's epoch that is in all its tables, before the log says that it is done.

        A crash before or after this leaves the epoch in doubt, so the next run settles it, and does this again: an
        UPDATE that changes nothing the second time.
        """
        if letters_version(epoch.batch) is not None:
            self.letters.close(epoch.owner, epoch.number)
