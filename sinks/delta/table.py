"""A Delta table by path or name, through public SQL and DataFrame APIs only."""

from __future__ import annotations

import os
import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING

from sinks.delta.delta_log import DeltaLog, utc, written
from sinks.delta.position import Commit
from sinks.errors import NotADeltaTable, SchemaMismatch
from sinks.offsets import Offsets, TopicPartition
from sinks.recreated import topic_of
from sinks.spark.files import if_there, no_glob
from sinks.spark.schema_changes import OnNewColumn, differences
from sinks.spark.sql import identifier, literal
from sinks.spark.types import ddl, names, needs_column_mapping, sql_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

COORDINATES = ("_topic", "_partition", "_offset", "_timestamp")
"""The columns with the coordinates of a row's record, beside the columns of its value."""

_WIDENING = "delta.enableTypeWidening"


@dataclass(frozen=True)
class Detail:
    """Details of a table, as Delta describes it."""

    location: str
    properties: Mapping[str, str]
    id: str = ""
    """The table's id in Delta. It changes if the table is replaced, or dropped and recreated."""
    partitions: Sequence[str] = ()
    """The partition columns."""

    @property
    def column_mapping(self) -> str:
        """Delta's mode of column mapping: none, name or id."""
        return self.properties.get("delta.columnMapping.mode", "none")

    @property
    def log_retention(self) -> timedelta:
        """How long Delta keeps a commit's metadata."""
        return self._interval("delta.logRetentionDuration", timedelta(days=30))

    @property
    def file_retention(self) -> timedelta:
        """How long VACUUM keeps files that are no longer in the newest version."""
        return self._interval("delta.deletedFileRetentionDuration", timedelta(days=7))

    def _interval(self, name: str, default: timedelta) -> timedelta:
        """An interval property. ``default``: the value if the property is missing or can't be parsed."""
        units = {"week": 604800.0, "day": 86400.0, "hour": 3600.0, "minute": 60.0, "second": 1.0}
        parts = re.findall(r"(\d+)\s*(week|day|hour|minute|second)s?", self.properties.get(name, "").lower())
        return timedelta(seconds=sum(int(count) * units[unit] for count, unit in parts)) if parts else default


class DeltaTable:
    """A Delta table, which may not exist yet.

    ``path``: a folder or URI, relative to the working directory; or ``name``: ``catalog.schema.table``.
    ``label``: what messages and a coordinator log call it. ``on_new_column``: what happens to columns that the rows
    have and the table lacks; None: as ``fail``.
    """

    def __init__(
        self,
        spark: SparkSession,
        *,
        path: str | None = None,
        name: str | None = None,
        label: str | None = None,
        on_new_column: OnNewColumn | None = None,
    ) -> None:
        self.spark = spark
        self._on_new_column = on_new_column
        self._detail: Detail | None = None
        self.was_missing = False
        """Whether `create` ran, because the table didn't exist. No earlier commit needs to be looked for then."""
        self.path: str | None = None
        self.name: str | None = None
        if path is not None:
            # Made absolute, because Spark's working directory may differ from that of this process.
            self.path = path if ":" in path else os.path.abspath(path)  # noqa: PTH100
            self.sql = f"delta.{identifier(self.path)}"
            self.label = label or path
        elif name is not None:
            self.sql = ".".join(identifier(part) for part in _name_parts(name))
            self.label = label or name
            self.name = name
        else:
            raise ValueError("give path or name")

    def detail(self) -> Detail | None:
        """The table's details, or None if it doesn't exist. Raises NotADeltaTable if the place holds something else.

        The details are read once and kept until ``forget``, because they only change if the table is replaced.
        """
        if self._detail is None:
            self._detail = self._ask_detail()
        return self._detail

    @property
    def id(self) -> str:
        """The table's id in Delta. Empty if there is no table."""
        detail = self.detail()
        return detail.id if detail is not None else ""

    def forget(self) -> None:
        """Read the details again at the next use, because the path may hold another table now."""
        self._detail = None

    def exists(self) -> bool:
        """Whether the table exists. The table may lie in the folder of another one.

        While it is missing, Delta would take its path for a partition of the other table. So its log is looked for
        first.
        """
        return (self.path is None or self.has_log()) and self.detail() is not None

    @property
    def live_view(self) -> str | None:
        """SQL of the name of the view of current rows, for tables merged on read. None: the table has no name."""
        if self.name is None:
            return None
        *place, name = _name_parts(self.name)
        return ".".join(identifier(part) for part in [*place, f"{name}_live"])

    @property
    def location(self) -> str:
        """The folder or URI of the table's files. Empty for a table of a catalog that doesn't exist yet."""
        detail = self.detail()
        return detail.location if detail else self.path or ""

    def _ask_detail(self) -> Detail | None:
        from pyspark.errors import AnalysisException

        try:
            described = self.spark.sql(f"DESCRIBE TABLE EXTENDED {self.sql}").collect()
            properties = self.spark.sql(f"SHOW TBLPROPERTIES {self.sql}").collect()
            detail = self.spark.sql(f"DESCRIBE DETAIL {self.sql}").select("format", "id").first()
        except AnalysisException as error:
            if "DELTA_MISSING_DELTA_TABLE" in str(error):
                if self.path is None or self._holds_files():
                    raise self._not_delta() from None
                return None
            if "TABLE_OR_VIEW_NOT_FOUND" in str(error) or "PATH_NOT_FOUND" in str(error):
                return None
            raise
        # The columns come first and may have any name. Later entries replace them in the dictionary.
        information = {row["col_name"]: row["data_type"] for row in described}
        if information.get("Provider", "").lower() != "delta":
            raise self._not_delta()
        table_id = detail["id"] if detail is not None and detail["format"] == "delta" else None
        return Detail(
            information["Location"],
            {row["key"]: row["value"] for row in properties},
            table_id or "",
            _partitions([(row["col_name"], row["data_type"]) for row in described]),
        )

    def _holds_files(self) -> bool:
        files = self.spark.read.format("binaryFile").option("recursiveFileLookup", "true")
        any_file = if_there(lambda: files.load(no_glob(self.path or "")).select("path").first())
        return any_file is not None

    def sql_at(self, version: int | None) -> str:
        """SQL, as in FROM, of the table at a version. ``version`` None: the newest one when the query runs."""
        return self.sql if version is None else f"(SELECT * FROM {self.sql} VERSION AS OF {int(version)})"

    @property
    def log(self) -> DeltaLog | None:
        """The table's log. None if there is no table yet."""
        detail = self.detail()
        return DeltaLog(self.spark, detail.location) if detail else None

    @property
    def is_new(self) -> bool:
        """Whether this object created the table, and nothing was committed since. Needs no Spark job."""
        log = self.log if self.was_missing else None
        return log is not None and not log.has(1)

    def has_log(self) -> bool:
        """Whether the table's own path has a log. Needs no Spark job."""
        return self.path is not None and DeltaLog(self.spark, self.path).exists()

    def _not_delta(self) -> NotADeltaTable:
        return NotADeltaTable(
            f"{self.label!r} holds something that isn't a Delta table.",
            hint="Give the sink a path that is empty or doesn't exist yet, or the path of a Delta table.",
        )

    def create(self, schema: StructType, properties: Mapping[str, str] = MappingProxyType({})) -> None:
        """Create the table if it doesn't exist. Two runs may do so at once. ``properties``: its TBLPROPERTIES."""
        self.was_missing = True
        columns = ddl(schema)
        if any(map(needs_column_mapping, names(schema))):
            properties = {**properties, "delta.columnMapping.mode": "name"}
        pairs = ", ".join(f"{literal(name)} = {literal(value)}" for name, value in properties.items())
        tblproperties = f" TBLPROPERTIES ({pairs})" if pairs else ""
        try:
            self.spark.sql(f"CREATE TABLE IF NOT EXISTS {self.sql} ({columns}) USING delta{tblproperties}")
        except Exception:
            if self.detail() is None:
                raise

    def check(self, detail: Detail, wanted: StructType, more: Sequence[str] = ()) -> None:
        """Raise SchemaMismatch unless the table takes rows of the schema ``wanted`` and keeps its last epoch forever.

        ``more``: further faults for the error.
        """
        retention = detail.properties.get("delta.setTransactionRetentionDuration")
        if retention is not None:
            raise SchemaMismatch(
                f"The table {self.label!r} has delta.setTransactionRetentionDuration = {retention!r}: Delta would "
                "forget the pipeline's last epoch after that time, and a run that was replaced could commit it again.",
                hint=f"ALTER TABLE {self.sql} UNSET TBLPROPERTIES ('delta.setTransactionRetentionDuration')",
            )
        there = self.schema
        differing = differences(there, wanted)
        adds = self._on_new_column == "add"
        faults = [f"column {name} {kind} is missing in the table" for name, kind in differing.new.items() if not adds]
        faults += [f"column {name} {how}" for name, how in differing.wider.items() if not adds]
        faults += [
            f"column {name} {how}" for name, how in differing.narrower.items() if self._on_new_column in (None, "fail")
        ]
        faults += [f"column {name} {how}" for name, how in differing.others.items()]
        faults += more
        given = {name.lower() for name in wanted.names}
        faults += [
            f"column {field.name} of the table is NOT NULL, and the pipeline has no value for it"
            for field in there
            if not field.nullable and field.name.lower() not in given
        ]
        if faults:
            evolves = (
                " Or have it change with the records: on_new_column: add." if differing.new or differing.wider else ""
            )
            raise SchemaMismatch(
                f"The table {self.label!r} doesn't take the rows of this pipeline: " + "; ".join(faults) + ".",
                hint="Change value.schema, or the table with ALTER TABLE, until both agree; or write to another table."
                + ("" if adds else evolves),
            )

    @property
    def schema(self) -> StructType:
        """The table's schema, read again at each call."""
        return self.spark.table(self.sql).schema

    @property
    def evolves(self) -> bool:
        """Whether commits may add columns and widen types. That happens with the first rows that need it."""
        return self._on_new_column == "add"

    def lacks(self, columns: Sequence[str]) -> list[str] | None:
        """The columns of ``columns`` that the next commit adds to the table. None: the table doesn't evolve."""
        if not self.evolves:
            return None
        there = {name.lower() for name in self.schema.names}
        return [name for name in columns if name.lower() not in there]

    def allow_widening(self, wanted: StructType) -> None:
        """Enable Delta's type widening if the rows need wider types. Readers of the table must support it too.

        This is a separate commit, which changes no row and no column. A crash after it does no harm.
        """
        detail = self.detail()
        if detail is None or not self.evolves or not differences(self.schema, wanted).wider:
            return
        if detail.properties.get(_WIDENING, "false").lower() != "true":
            self.spark.sql(f"ALTER TABLE {self.sql} SET TBLPROPERTIES ('{_WIDENING}' = 'true')")
            self._detail = None

    def check_order(self, wanted: StructType, *, sequence_by: str | None) -> None:
        """Raise SchemaMismatch if the pipeline orders changes in another way than the table's rows were ordered."""
        there = [name.lower() for name in self.spark.table(self.sql).columns]
        if sequence_by is not None and "_sequence" not in there:
            kind = sql_type(wanted["_sequence"].dataType)
            raise SchemaMismatch(
                f"The rows of {self.label!r} are ordered by Kafka's offset (the table has no column _sequence), and "
                f"the pipeline orders changes with sequence_by: {sequence_by}. The two orders can't be mixed.",
                hint="Replay the topic into a new table; or, where the rows themselves tell their sequence, say so: "
                f"ALTER TABLE {self.sql} ADD COLUMNS (_sequence {kind}); UPDATE {self.sql} SET _sequence = "
                f"{sequence_by}. A row without a _sequence is older than every change.",
            )
        if sequence_by is None and "_sequence" in there:
            raise SchemaMismatch(
                f"The rows of {self.label!r} are ordered by their column _sequence, and the pipeline has no "
                "sequence_by: it would order changes by Kafka's offset. The two orders can't be mixed.",
                hint="Give the sink the sequence_by that the table was written with, or write to another table.",
            )

    def history(self, limit: int) -> list[Commit]:
        """The newest ``limit`` commits, newest first."""
        rows = (
            self.spark.sql(f"DESCRIBE HISTORY {self.sql} LIMIT {int(limit)}")
            .selectExpr(
                "version", "unix_millis(timestamp) AS millis", "operation", "operationParameters", "userMetadata",
                "operationMetrics", "userName",
            )
            .collect()
        )  # fmt: skip
        return [
            Commit(
                row["version"],
                utc(row["millis"]),
                row["operation"],
                dict(row["operationParameters"] or {}),
                row["userMetadata"],
                written(row["operation"], row["operationMetrics"] or {}),
                row["userName"],
            )
            for row in rows
        ]

    def coordinates(self, topics: Container[str]) -> Offsets:
        """The next offset per partition of these topics, from the coordinates in the rows.

        Collects one row per partition, whatever the table's size.
        """
        rows, columns = self.sql, self.spark.table(self.sql).columns
        if not {"_applied", "_topic"} & set(columns):
            return Offsets()
        if "_applied" in columns:
            # A group of an aggregate has records of many partitions: ``map<topic-partition, offset>``.
            rows = (
                "(SELECT regexp_replace(key, '-[0-9]+$', '') AS _topic, value AS _offset, "
                "CAST(substring_index(key, '-', -1) AS INT) AS _partition "
                f"FROM (SELECT explode(_applied) FROM {self.sql}))"
            )
        places = self.spark.sql(
            f"SELECT _topic, _partition, max(_offset) + 1 AS next FROM {rows} "
            "WHERE _topic IS NOT NULL AND _partition IS NOT NULL AND _offset IS NOT NULL GROUP BY _topic, _partition"
        ).collect()
        return Offsets(
            {
                TopicPartition(row["_topic"], row["_partition"]): row["next"]
                for row in places
                if topic_of(row["_topic"]) in topics
            }
        )


def _partitions(described: Sequence[tuple[str, str]]) -> list[str]:
    """The partition columns in the output of DESCRIBE. Columns have a type there, and titles of sections have none."""
    start = next((at for at, row in enumerate(described) if row == ("# Partition Information", "")), None)
    if start is None:
        return []
    names = []
    for name, kind in described[start + 2 :]:  # skips the section's title and header
        if not kind:
            break
        names += _name_parts(name)
    return names


def _name_parts(name: str) -> list[str]:
    """Split a name at its dots: ``a.`b.c`.d`` -> a, b.c, d."""
    parts = re.findall(r"`(?:[^`]|``)*`|[^.`]+", name)
    return [part[1:-1].replace("``", "`") if part.startswith("`") else part for part in parts]
