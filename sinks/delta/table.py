"""A Delta table by path or name, through public SQL and DataFrame APIs only."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING

from sinks.delta.delta_log import DeltaLog, utc, written
from sinks.delta.detail import Detail, name_parts, partitions, with_constraints, with_generated
from sinks.delta.layout import NO_LAYOUT, Layout
from sinks.delta.position import Commit
from sinks.delta.refusals import managed_by_catalog
from sinks.delta.torn_log import cleared
from sinks.errors import NotADeltaTable, SchemaMismatch, SinkError
from sinks.offsets import Offsets, TopicPartition
from sinks.recreated import topic_of
from sinks.spark.cached import uncached
from sinks.spark.files import absolute, folders, if_there, local, no_glob, twice
from sinks.spark.probes import probing
from sinks.spark.schema_changes import OnNewColumn, differences
from sinks.spark.settings import told
from sinks.spark.sql import identifier
from sinks.spark.types import sql_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructField, StructType

COORDINATES = ("_topic", "_partition", "_offset", "_timestamp")
"""The columns with the coordinates of a row's record, beside the columns of its value."""

CHANGING = Layout(properties={"delta.appendOnly": "false"})
"""The layout of Lakelock's own tables, whose rows change, whatever is the default of the session."""
_WIDENING = "delta.enableTypeWidening"


class DeltaTable:
    """A Delta table, which may not exist yet.

    ``path``: a folder or URI, relative to the working directory; or ``name``: ``catalog.schema.table``.
    ``label``: what messages and a coordinator log call it. ``on_new_column``: what happens to columns that the rows
    have and the table lacks; None: as ``fail``. ``advice``: what to do where the table doesn't take the rows; None:
    what fits a pipeline with one table.
    """

    def __init__(
        self,
        spark: SparkSession,
        *,
        path: str | None = None,
        name: str | None = None,
        label: str | None = None,
        on_new_column: OnNewColumn | None = None,
        advice: str | None = None,
    ) -> None:
        self.spark = spark
        self._advice = advice
        self._on_new_column = on_new_column
        self._detail: Detail | None = None
        self._was_there: bool | None = None
        self.was_missing = self._was_new = False

        """Whether `create` ran, because the table didn't exist. No earlier commit needs to be looked for then."""
        self.keeps_order = False
        """Whether what tells an older change from a newer one is kept: deletes, or sequences. Its sink says so."""
        self.path: str | None = None
        self.name: str | None = None
        if path is not None:
            self.path = absolute(path)
            self.sql = f"delta.{identifier(self.path)}"
            self.label = label or path
        elif name is not None:
            self.sql = ".".join(identifier(part) for part in name_parts(name))
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

    def was_there(self) -> bool:
        """Whether the table was there when this was asked first; ``create`` and ``forget`` have it asked again.

        For what comes before a run makes its table. That nothing is there takes Spark longer to say than what is.
        """
        if self._was_there is None:
            self._was_there = self.detail() is not None
        return self._was_there

    def forget(self) -> None:
        """Read the details again at the next use, because the path may hold another table now."""
        self._detail = self._was_there = None

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
        *place, name = name_parts(self.name)
        return ".".join(identifier(part) for part in [*place, f"{name}_live"])

    @property
    def location(self) -> str:
        """The folder or URI of the table's files. Empty for a table of a catalog that doesn't exist yet."""
        detail = self.detail()
        return detail.location if detail else self.path or ""

    def _ask_detail(self) -> Detail | None:
        from pyspark.errors import AnalysisException

        try:
            with probing():
                described = self.spark.sql(f"DESCRIBE TABLE EXTENDED {self.sql}").collect()
                properties = self.spark.sql(f"SHOW TBLPROPERTIES {self.sql}").collect()
                row = self.spark.sql(f"DESCRIBE DETAIL {self.sql}").first()
        except AnalysisException as error:
            if "DELTA_MISSING_DELTA_TABLE" in str(error):
                if self.path is None or self._holds_files():
                    raise self._not_delta() from None
                return None
            if "TABLE_OR_VIEW_NOT_FOUND" in str(error) or "PATH_NOT_FOUND" in str(error):
                return None
            raise
        except Exception as error:
            if "DELTA_PATH_BASED_ACCESS_TO_CATALOG_MANAGED_TABLE_BLOCKED" not in str(error):
                raise
            raise managed_by_catalog(self.label, "delta.feature.catalogManaged") from None
        # The columns come first and may have any name. Later entries replace them in the dictionary.
        information = {row["col_name"]: row["data_type"] for row in described}
        if information.get("Provider", "").lower() != "delta":
            raise self._not_delta()
        detail = row.asDict() if row is not None and row["format"] == "delta" else {}
        found = Detail(
            information["Location"],
            with_constraints({row["key"]: row["value"] for row in properties}, detail.get("properties") or {}),
            detail.get("id") or "",
            partitions([(row["col_name"], row["data_type"]) for row in described]),
            clusters=[".".join(name_parts(name)) for name in detail.get("clusteringColumns") or ()],
            comment=detail.get("description") or "",
        )
        if found.managed_by:
            raise managed_by_catalog(self.label, found.managed_by)
        return with_generated(found, lambda: DeltaLog(self.spark, information["Location"]).columns())

    def _holds_files(self) -> bool:
        files = self.spark.read.format("binaryFile").option("recursiveFileLookup", "true")
        any_file = if_there(lambda: files.load(twice(no_glob(self.path or ""))).select("path").first())
        return any_file is not None

    def sql_at(self, version: int | None) -> str:
        """SQL, as in FROM, of the table at a version. ``version`` None: the newest one when the query runs."""
        return self.sql if version is None else f"(SELECT * FROM {self.sql} VERSION AS OF {int(version)})"

    def fixed_sql(self) -> str:
        """A query for the rows of the version that is the newest one now."""
        return f"SELECT * FROM {self.sql_at(self.history(1)[0].version)}"

    @property
    def log(self) -> DeltaLog | None:
        """The table's log. None if there is no table yet."""
        detail = self.detail()
        return DeltaLog(self.spark, detail.location) if detail else None

    @property
    def is_new(self) -> bool:
        """Whether this object created the table, and nothing was committed since. Needs no Spark job."""
        log = self.log if self._was_new else None
        if log is None:
            return False
        # Once it has rows it never is new again: Delta removes old versions from the log, and 1 with them.
        self._was_new = log.among(0, 1) == {0}
        return self._was_new

    def committed_after(self, version: int | None) -> bool:
        """Whether the table has a newer version than this one. None: unknown, so it may. Needs no Spark job."""
        log = self.log
        return version is None or log is None or log.has(version + 1)

    def has_log(self) -> bool:
        """Whether the table's own path has a log. Needs no Spark job."""
        return self.path is not None and DeltaLog(self.spark, self.path).exists()

    def _not_delta(self) -> NotADeltaTable:
        return NotADeltaTable(
            f"{self.label!r} holds something that isn't a Delta table.",
            hint="Give the sink a path that is empty or doesn't exist yet, or the path of a Delta table. If a table "
            "was removed there, remove its folder `_lakelock` too.",
        )

    def create(self, schema: StructType, layout: Layout = NO_LAYOUT) -> None:
        """Create the table if it doesn't exist. Two runs may do so at once.

        Raises ConfigurationError if Delta makes no table with this layout, and SinkError where a log without a commit
        is in the way.
        """
        self.was_missing = self._was_new = True
        self._was_there = None
        self._create(schema, layout)
        if self.detail() is None and self.path and (folder := local(self.path)) is not None and cleared(folder):
            self._create(schema, layout)
        if self.detail() is None:
            # Delta then makes no table, and says nothing.
            if self.path and folders(self.spark, f"{self.path.rstrip('/')}/_lakelock"):
                raise self._not_delta()
            raise SinkError(
                f"{self.label!r} has a log without a commit: somebody was interrupted while making the table.",
                hint=f"Remove the folder {self.location}/_delta_log, which holds nothing, and run again.",
            )

    def _create(self, schema: StructType, layout: Layout) -> None:
        try:
            self.spark.sql(layout.create_sql(self.sql, schema))
        except Exception as error:
            if self.detail() is None:
                if "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION" in str(error):
                    raise self._not_delta() from None
                raise layout.refused(self.label, error) or error from None

    def check(
        self,
        detail: Detail,
        wanted: StructType,
        more: Sequence[str] = (),
        *,
        required: Sequence[str] = (),
        added: Sequence[str] = (),
    ) -> None:
        """Raise SchemaMismatch unless the table takes rows of the schema ``wanted`` and keeps its last epoch forever.

        ``more``: further faults for the error; ``required``: columns without which the table's rows mean nothing to the
        pipeline, so that they can't be added later; ``added``: columns that a run adds before its first epoch.
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
        lasting = [name for name in differing.new if name in required]
        new = {name: kind for name, kind in differing.new.items() if name not in (*lasting, *added)}
        faults = [f"column {name} {differing.new[name]} is missing in the table" for name in lasting]
        faults += [f"column {name} {kind} is missing in the table" for name, kind in new.items() if not adds]
        faults += [f"column {name} {how}" for name, how in differing.wider.items() if not adds]
        faults += [
            f"column {name} {how}" for name, how in differing.narrower.items() if self._on_new_column in (None, "fail")
        ]
        faults += [f"column {name} {how}" for name, how in differing.others.items()]
        faults += more
        given = {name.lower() for name in (*wanted.names, *detail.generated, *detail.identities)}
        faults += [
            f"column {field.name} of the table is NOT NULL, and the pipeline has no value for it"
            for field in there
            if not field.nullable and field.name.lower() not in given
        ]
        if not faults:
            return
        hint = "Change value.schema, or the table with ALTER TABLE, until both agree; or write to another table."
        if lasting:
            hint = (
                f"Write to another table: the pipeline couldn't tell what rows without {', '.join(lasting)} stand for, "
                "so it adds no such column to a table that exists."
            )
        elif self._advice is not None:
            hint = self._advice
        elif not adds and (new or any(name not in required for name in differing.wider)):
            hint += " Or have it change with the records: on_new_column: add."
        means = "spark.sql.timestampType"
        if any("timestamp_ntz in the pipe" in each for each in faults) and told(self.spark, means) == "TIMESTAMP_NTZ":
            hint = f"In this session TIMESTAMP means TIMESTAMP_NTZ: set {means} to TIMESTAMP_LTZ. Else: {hint}"
        raise SchemaMismatch(
            f"The table {self.label!r} doesn't take the rows of this pipeline: " + "; ".join(faults) + ".", hint=hint
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

    def add_columns(self, columns: Sequence[StructField]) -> None:
        """Add columns that the table lacks, with NULL in its rows. Two runs may do so at once.

        This is a separate commit, which changes no row. A crash after it does no harm.
        """
        lacking = self._lacking(columns)
        if not lacking:
            return
        added = ", ".join(f"{identifier(each.name)} {sql_type(each.dataType)}" for each in lacking)
        try:
            self.spark.sql(f"ALTER TABLE {self.sql} ADD COLUMNS ({added})")
        except Exception:
            if self._lacking(columns):
                raise

    def _lacking(self, columns: Sequence[StructField]) -> list[StructField]:
        there = {name.lower() for name in self.schema.names}
        return [each for each in columns if each.name.lower() not in there]

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
        rows, columns = self.sql, uncached(self.spark, self.sql).columns
        if "_applied" not in columns and not {"_topic", "_partition", "_offset"} <= set(columns):
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
