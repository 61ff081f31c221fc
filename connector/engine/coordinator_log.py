"""The coordinator log: a small Delta table with one commit per entry, which everybody may query.

An entry is committed as an epoch of a table is: with its number as Delta's ``txn``, and proven by reading it back.
Several pipelines may share one table. ``Log.append`` explains how the entries fence runs off.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Container, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from connector.protocol.decided import LogHeld, Row, State
from connector.spark.compat import from_ddl
from sinks.contract import Epoch, Position, Prepared
from sinks.delta.append import DeltaAppend
from sinks.delta.commit import PipelineCommits
from sinks.delta.conflicts import done_or_left
from sinks.delta.early_state import compute_state
from sinks.delta.metadata import CommitMetadata
from sinks.delta.table import CHANGING, DeltaTable
from sinks.errors import CommitUnknown, Fenced, UnsupportedFormat
from sinks.offsets import OffsetRange, Offsets
from sinks.spark.sql import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import Row as SparkRow
    from pyspark.sql.types import StructType

log = logging.getLogger("lakelock.coordinator")

FORMAT = 3
"""3: a decision to rewind. 2: an epoch of a route. Other entries are written as 1: earlier versions read them."""
_WITHOUT_ROUTES, _WITHOUT_REWINDS = 1, 2
_BACK_TO = "back_to"
_FIRST_LOOK, _FURTHER = 16, 16
"""Entries that are read first, some five epochs of them; and how many times as many each time that they don't do."""
COLUMNS = (
    "format INT, pipeline STRING, entry BIGINT, state STRING, epoch BIGINT, attempt BIGINT, owner STRING, run STRING, "
    "ranges ARRAY<STRUCT<topic: STRING, partition: INT, start: BIGINT, end: BIGINT>>, position STRING, "
    "expected STRING, sinks MAP<STRING, STRING>, config STRING, at TIMESTAMP"
)
"""``position``: the position after the epoch, as JSON in the form of a table's commit metadata. ``expected``: the
position before it. ``sinks``: per sink, as JSON, what it has prepared (``decided``) or how a reader sees it as of the
epoch (``done``). A rewind of a pipeline without tables has an entry without a name there, with the epoch that it goes
back to. ``at``: when the row was appended."""

# PySpark loses the order of a map, which is the order of the sinks in the pipeline file. Entries keep it.
_EVERYTHING = (
    "struct(format, pipeline, entry, state, epoch, attempt, owner, run, ranges, position, expected, "
    "map_entries(sinks) AS sinks, config, at)"
)
_ORDER = "struct(entry, epoch)"  # one entry may say that an epoch is done, and that the next one is begun


@dataclass(frozen=True)
class Entry:
    """One entry of the log: what was appended, and when."""

    number: int
    row: Row
    at: datetime


class Log:
    """The entries of one pipeline in a coordinator log."""

    def __init__(self, spark: SparkSession, *, path: str | None, name: str | None, pipeline: str, run: str) -> None:
        """The table is given by its ``path`` or its ``name``.

        ``run`` is the id of the run that appends; it may be empty for a log that is only read.
        """
        self._table = _LogTable(spark, path=path, name=name)
        self._pipeline = pipeline
        self._run = run
        self._sink = DeltaAppend(self._table, PipelineCommits(self._table, pipeline=pipeline, topics=()))
        self._stands: Position | None = None
        """The position of the log itself: its epochs are the entries."""

    @property
    def label(self) -> str:
        """The path or name of the table, as the pipeline file has it."""
        return self._table.label

    @property
    def location(self) -> str:
        """The table's folder, as a URL or an absolute path."""
        return self._table.location

    @property
    def table(self) -> DeltaTable:
        """The Delta table that holds the entries."""
        return self._table

    @property
    def staging(self) -> str:
        """A folder for this pipeline's staged rows, for sinks that have no place of their own."""
        return f"{self.location.rstrip('/')}/_lakelock/staging/{self._pipeline}"

    def exists(self) -> bool:
        """Whether the table is there."""
        return self._table.detail() is not None

    def create(self) -> None:
        """Create the table unless it is there, and check its columns. Raises NotADeltaTable, SchemaMismatch."""
        columns = _schema()
        if not self.exists():
            self._table.create(columns, CHANGING)
        detail = self._table.detail()
        if detail is not None:
            self._table.check(detail, columns)

    def read(self) -> LogHeld:
        """The number of the last entry, the last row, and the last decision. Read from the table at every call.

        Only entries that are proven to be committed count. Raises UnsupportedFormat for entries of a later version.
        """
        self._stands = self._sink.position() if self.exists() else None
        if self._stands is None:
            return LogHeld()
        return newest_first(self._stands.epoch, self._behind)

    def _behind(self, entry: int, last: int) -> LogHeld:
        """As ``read``, from the entries behind ``entry``, up to ``last``. Delta skips the files of others: it keeps the
        least and the highest ``entry`` of each file."""
        row = self._table.spark.sql(
            f"SELECT max_by({_EVERYTHING}, {_ORDER}) AS last, "
            f"max_by({_EVERYTHING}, {_ORDER}) FILTER (WHERE state = 'decided') AS decided "
            f"FROM {self._table.sql} WHERE pipeline = {literal(self._pipeline)} AND entry > {entry} AND entry <= {last}"
        ).first()
        if row is None or row["last"] is None:
            return LogHeld(last)
        decided = row["decided"]
        return LogHeld(last, _row(row["last"]), _row(decided) if decided else None)

    def done(self, epoch: int | None = None) -> Row | None:
        """The row that says that ``epoch`` is in all sinks; of the newest such epoch if None is given.

        None: there is none.
        """
        if not self.exists():
            return None
        which = "" if epoch is None else f" AND epoch = {int(epoch)}"
        row = (
            self._table.spark.table(self._table.sql)
            .where(f"pipeline = {literal(self._pipeline)} AND state = 'done'{which}")
            .selectExpr(f"max_by({_EVERYTHING}, entry) AS done")
            .first()
        )
        return _row(row["done"]) if row is not None and row["done"] is not None else None

    def entries(self, epochs: int) -> list[Entry]:
        """The entries of the last ``epochs`` epochs, oldest first."""
        if not self.exists():
            return []
        mine = f"pipeline = {literal(self._pipeline)}"
        rows = self._table.spark.sql(
            f"SELECT entry, {_EVERYTHING} AS everything, unix_micros(at) AS micros FROM {self._table.sql} WHERE {mine} "
            f"AND epoch > (SELECT max(epoch) FROM {self._table.sql} WHERE {mine}) - {int(epochs)} ORDER BY entry, epoch"
        ).collect()
        return [
            Entry(row["entry"], _row(row["everything"]), datetime.fromtimestamp(row["micros"] / 1e6, timezone.utc))
            for row in rows
        ]

    def last_writer(self, sink: str, pattern: str) -> str | None:
        """Of this pipeline and those whose name matches the pattern, the one that has last decided an epoch of a sink.

        The log has to be there. None: nobody has. ``pattern``: a regular expression.
        """
        name = literal(self._pipeline)
        row = (
            self._table.spark.table(self._table.sql)
            .where(f"state = 'decided' AND (pipeline = {name} OR pipeline RLIKE {literal(pattern)})")
            .where(f"map_contains_key(sinks, {literal(sink)})")
            .selectExpr("max_by(pipeline, at) AS pipeline")
            .first()
        )
        found: str | None = row["pipeline"] if row is not None else None
        return found

    def forget(self, before: datetime, *, rehearse: bool) -> int:
        """Remove the entries that were appended before a time; returns their number.

        With ``rehearse`` only count those that would go. Returns 0 if others' commits came first again and again, so
        that they stay, or if the log is append-only, as an earlier version made it in a session with that default.

        The last two epochs always stay, as they say where all sinks stand. A run may be at work meanwhile: an append
        doesn't conflict with a removal of other rows.
        """
        last = self.read().last
        if last is None:
            return 0
        old = (
            f"FROM {self._table.sql} WHERE pipeline = {literal(self._pipeline)} AND epoch < {last.epoch.number - 1} "
            f"AND at < timestamp_micros({int(before.timestamp() * 1e6)})"
        )
        counted = self._table.spark.sql(f"SELECT count(*) {old}").first()
        assert counted is not None
        if counted[0]:
            detail = self._table.detail()
            if detail is not None and detail.append_only:
                log.warning(
                    "The old entries of the coordinator log %r stay, as it has delta.appendOnly. To have them removed: "
                    "ALTER TABLE %s SET TBLPROPERTIES ('delta.appendOnly' = 'false')",
                    self._table.label,
                    self._table.sql,
                )
                return 0
        if counted[0] and not rehearse:
            entries = f"old entries of the coordinator log {self._table.label!r}"
            if not done_or_left(lambda: self._table.spark.sql(f"DELETE {old}").collect(), entries):
                return 0
        return int(counted[0])

    def since(self) -> datetime | None:
        """When the last entry was appended; None before the first ``read`` or ``append``."""
        return self._stands.committed_at if self._stands else None

    def append(self, number: int, rows: Sequence[Row]) -> None:
        """Append ``rows`` as entry ``number``, in one commit.

        This is the fence of two-phase commit. The entry's number is Delta's ``txn``, so only one run commits each
        number. A run that was replaced finds its next number taken, and stops before it decides or begins anything.
        Success is proven as for every epoch: the commit has to be in the log's history with this run's owner id.

        Two appends of one run differ as well, by a random id. An append whose answer was lost may be committed after
        the run has looked for it. Its row may say that an epoch counts which this append gives up, so the run stops.

        ====================  ==========================================================================================
        crash                 what is left
        ====================  ==========================================================================================
        before the commit     The log is as it was. The next run takes this number.
        after the commit      The entry counts. The next run reads it, whether or not this run got the answer.
        ====================  ==========================================================================================

        Raises Fenced if another run has committed this number, CommitUnknown if it can't be found out whether this
        append was committed.
        """
        append_id = uuid.uuid4().hex
        entry = Epoch(
            pipeline=self._pipeline,
            number=number,
            owner=self._run,
            ranges=(),
            offsets=rows[-1].epoch.offsets,
            topics={},
            read_to=None,
            expected=self._stands,
            batch=append_id,  # tells the appends of one run apart
        )
        frame = self._frame([_values(self._pipeline, number, row) for row in rows])
        try:
            stands = self._sink.write(entry, frame).position
        except Fenced as fenced:
            raise Fenced(
                f"Pipeline {self._pipeline!r} was replaced: run {fenced.owner} has gone on in its log "
                f"{self.label!r}. This run ({self._run}) has stopped at epoch {rows[-1].epoch.number}, which it "
                f"could not set to {rows[-1].state.value}.",
                owner=fenced.owner,
                epoch=rows[-1].epoch.number,
                hint="Two runs of one pipeline were active. Nothing is lost: the other run goes on from the same "
                "offsets.",
            ) from None
        if stands.batch != append_id:
            # An earlier append, given up because no answer came. It may decide an epoch that this append aborts.
            raise CommitUnknown(
                f"In the log {self.label!r} of pipeline {self._pipeline!r} an earlier append of this run was committed "
                f"late as entry {number}. This append, of epoch {rows[-1].epoch.number} as {rows[-1].state.value}, "
                "was not made.",
                hint="Run the pipeline again. It goes on from what the log says.",
            )
        self._stands = stands

    def compute_state(self) -> None:
        """Have Delta work out the log's newest state, which the next append asks for."""
        compute_state(self._table)

    def _frame(self, rows: list[dict[str, Any]]) -> DataFrame:
        """The rows as a DataFrame, without ``createDataFrame``: that makes its session the active one of the thread."""
        from pyspark.sql import functions as F

        parsed = F.from_json(F.lit(json.dumps(rows)), f"ARRAY<STRUCT<{COLUMNS}>>", {"mode": "FAILFAST"})
        return self._table.spark.range(0, 1, 1, 1).select(F.inline(parsed))


def newest_first(last: int, behind: Callable[[int, int], LogHeld]) -> LogHeld:
    """What a log with ``last`` entries holds. Pure.

    Each round of a run asks for it, and the log grows with each epoch. The newest entries have the last decision,
    unless many epochs since were given up: then more are read. ``behind``: reads the entries behind the first number,
    up to the second one.
    """
    look = _FIRST_LOOK
    while True:
        held = behind(max(last - look, 0), last)
        if held.decided is not None or look >= last:
            return held
        look *= _FURTHER


class _LogTable(DeltaTable):
    def coordinates(self, topics: Container[str]) -> Offsets:
        """Always empty, as the rows come from no record.

        If the history was cleaned, Delta's ``txn`` has the last number.
        """
        del topics
        return Offsets()


def _schema() -> StructType:
    from pyspark.sql.types import StructType

    schema = from_ddl(COLUMNS)
    assert isinstance(schema, StructType)
    return schema


def _values(pipeline: str, number: int, row: Row) -> dict[str, Any]:
    epoch = row.epoch
    expected = epoch.expected
    sinks = {name: json.dumps(_known(prepared)) for name, prepared in row.prepared.items()} or {
        name: json.dumps(dict(reads)) for name, reads in row.reads.items()
    }
    if row.of_rewind is not None and not sinks:
        sinks = {"": json.dumps({_BACK_TO: row.of_rewind})}
    return {
        "format": FORMAT if row.back_to is not None else _WITHOUT_REWINDS if row.of_route else _WITHOUT_ROUTES,
        "pipeline": pipeline,
        "entry": number,
        "state": row.state.value,
        "epoch": epoch.number,
        "attempt": epoch.attempt,
        "owner": epoch.owner,
        "run": row.run,
        "ranges": [asdict(range_) for range_ in epoch.ranges],
        "position": CommitMetadata.of(epoch).to_json(),
        "expected": CommitMetadata.at(pipeline, expected).to_json() if expected else None,
        "sinks": sinks,
        "config": row.config,
        "at": datetime.now(timezone.utc).isoformat(),
    }


def _known(prepared: Prepared) -> dict[str, Any]:
    """Without ``after`` where no route needs it: earlier versions read these entries too."""
    return {name: value for name, value in asdict(prepared).items() if name != "after" or value is not None}


def _row(row: SparkRow) -> Row:
    if row["format"] > FORMAT:
        raise UnsupportedFormat(
            f"The coordinator log holds entries in format {row['format']}; this version reads up to {FORMAT}.",
            hint="Upgrade lakelock to the version that wrote the log, or a later one.",
        )
    expected = _position(row["pipeline"], row["expected"])
    stands = _position(row["pipeline"], row["position"])
    assert stands is not None
    epoch = replace(
        Epoch.that_left(stands, pipeline=row["pipeline"]),
        ranges=tuple(OffsetRange(*fields) for fields in row["ranges"]),
        expected=expected,
        attempt=row["attempt"],
    )
    sinks = {name: json.loads(text) for name, text in row["sinks"]}
    state = State(row["state"])
    if state is State.DECIDED:
        of_rewind = sinks.pop("", {}).get(_BACK_TO)
        prepared = {name: Prepared(**fields) for name, fields in sinks.items()}
        return Row(state, epoch, row["run"], prepared, config=row["config"], of_rewind=of_rewind)
    return Row(state, epoch, row["run"], reads=sinks)


def _position(pipeline: str, text: str | None) -> Position | None:
    metadata = CommitMetadata.from_json(text, pipeline=pipeline)
    return metadata.position if metadata else None
