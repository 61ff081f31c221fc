"""The audited table: its history, and its rows at one version."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from connector.audit.claim import At, Extent, Metadata, lineage, metadata
from connector.audit.foreign import Foreign
from connector.audit.rows import Earlier
from connector.config import DeltaPlace, PipelineConfig, tables_of_letters
from sinks.errors import ConfigurationError, NotADeltaTable, SinkError
from sinks.spark.sql import identifier, literal

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructField


_CHANGES = "_lakelock/changes"
"""The folder, under the table, of a change log: what of a table that is merged on read isn't in it yet."""
_FILLED = {"delta.generationExpression", "delta.identity.start"}
"""What is said of a column that Delta fills."""
_NO_TABLE = (
    "DELTA_(MISSING_DELTA_)?TABLE|DELTA_INVALID_PARTITION_PATH|TABLE_OR_VIEW_NOT_FOUND|PATH_(NOT_FOUND|DOES_NOT)"
)
"""What Spark says where there is no Delta table. Inside the folder of another one it takes the rest for partitions."""
_FILE_IS_GONE = ("FAILED_READ_FILE", "FILE_NOT_EXIST", "FileNotFound", "DELTA_FILE_NOT_FOUND")
"""What Spark says of a file of an old version that VACUUM has removed."""


class AuditedTable:
    """The table of a pipeline's sink. Its history is read once."""

    def __init__(self, spark: SparkSession, sink: object, option: str) -> None:
        """``option`` names the table. Raises NotADeltaTable if it is missing, ConfigurationError if it is none."""
        if not isinstance(sink, DeltaPlace):
            raise ConfigurationError("The auditor reads Delta tables. This sink isn't one.")
        self._spark = spark
        self._option = option
        self.label = str(sink.path if sink.path is not None else sink.table)
        self._sql = _sql(sink)
        self._history = self._read_history()
        self.newest, self._oldest, self._restored, self._written = self._summary()

    def _read_history(self) -> DataFrame:
        from pyspark.errors import AnalysisException

        try:
            return self._spark.sql(f"DESCRIBE HISTORY {self._sql}").selectExpr(
                "version", "timestamp", "operation", "operationParameters", "operationMetrics", "userName",
                "userMetadata",
            )  # fmt: skip
        except AnalysisException as error:
            if not re.search(_NO_TABLE, str(error)):
                raise
            raise NotADeltaTable(
                f"{self.label!r} holds no Delta table.",
                hint=f"Check {self._option} of the pipeline file; `lakelock run` makes the table.",
            ) from None

    def _summary(self) -> tuple[int, int, list[tuple[int, str | None, str]], list[tuple[str, str]]]:
        """Newest and oldest version; RESTOREs as (version, to version, to timestamp); pipelines and their topics."""
        from pyspark.sql import functions as F

        parameters = "operationParameters['version'] AS target, operationParameters['timestamp'] AS timestamp"
        written = ", ".join(f"get_json_object(userMetadata, '$.{name}') AS {name}" for name in ("pipeline", "topics"))
        row = self._history.agg(
            F.max("version").alias("newest"),
            F.min("version").alias("oldest"),
            F.expr(f"collect_list(IF(operation = 'RESTORE', struct(version, {parameters}), NULL))").alias("restored"),
            F.expr(
                f"collect_set(IF(get_json_object(userMetadata, '$.lakelock') IS NOT NULL, struct({written}), NULL))"
            ).alias("written"),
        ).first()
        if row is None or row["newest"] is None:
            raise SinkError(f"The history of {self.label!r} is empty.")
        return (
            row["newest"],
            row["oldest"],
            [(entry["version"], entry["target"], entry["timestamp"]) for entry in row["restored"]],
            [(entry["pipeline"], entry["topics"]) for entry in row["written"] if entry["pipeline"] and entry["topics"]],
        )

    def property(self, name: str) -> str | None:
        """One of the table's properties, as it is now."""
        found = self._spark.sql(f"SHOW TBLPROPERTIES {self._sql}").where(f"key = {literal(name)}").first()
        return None if found is None else str(found["value"])

    def filled(self) -> frozenset[str] | None:
        """The columns that Delta fills. None: the table may have some, and what is left of its log doesn't tell."""
        from pyspark.errors import PySparkException

        properties = {row["key"]: row["value"] for row in self._spark.sql(f"SHOW TBLPROPERTIES {self._sql}").collect()}
        features = [f"delta.feature.{name}Columns" for name in ("generated", "identity")]
        # Before version 7 the protocol doesn't name its features.
        if not any(name in properties for name in features) and properties.get("delta.minWriterVersion") not in (
            "4", "5", "6",
        ):  # fmt: skip
            return frozenset()
        place = self._spark.sql(f"DESCRIBE DETAIL {self._sql}").first()
        assert place is not None
        log = self._spark.read.schema("metaData STRUCT<schemaString: STRING>")
        folder = re.sub(r"([\\\[\]{}*?])", r"\\\1", place["location"])  # what isn't meant as a pattern

        def newest(files: Callable[[], DataFrame]) -> tuple[str, str] | None:
            try:
                found = files().where("metaData IS NOT NULL")
                row = found.selectExpr("max(struct(_metadata.file_name, metaData.schemaString)) AS newest").first()
            except PySparkException:
                return None
            return None if row is None or row["newest"] is None else (row["newest"][0], row["newest"][1])

        # What last changed the columns may be in checkpoints only. The names of files begin with the version.
        commits = newest(lambda: log.json(f"{folder}/_delta_log/*.json"))
        checkpoints = newest(lambda: log.parquet(f"{folder}/_delta_log/*.checkpoint*.parquet"))
        known = [each for each in (commits, checkpoints) if each is not None]
        if not known:
            return None
        fields = json.loads(max(known)[1])["fields"]
        return frozenset(each["name"] for each in fields if _FILLED & set(each["metadata"]))

    def change_log(self) -> AuditedTable | None:
        """The change log of a table that is merged on read. None: there is none."""
        place = self._spark.sql(f"DESCRIBE DETAIL {self._sql}").first()
        assert place is not None
        try:
            return AuditedTable(self._spark, DeltaPlace(path=f"{place['location']}/{_CHANGES}"), self._option)
        except NotADeltaTable:
            return None

    def restored_after(self, commit: Metadata) -> bool:
        """Whether a RESTORE came after this commit."""
        return any(at > commit.version for at, _, _ in self._restored)

    def pin(self, version: int | None) -> int:
        """The version to audit: the newest unless one is given. Raises ConfigurationError if the history lacks it."""
        if version is None:
            return self.newest
        if not self._oldest <= version <= self.newest:
            raise ConfigurationError(
                f"{self.label!r} has no version {version}: its history goes from {self._oldest} to {self.newest}.",
                hint="Give --version a version of the table, or leave it out for the newest.",
            )
        return version

    def metadata(self, pipeline: str, version: int) -> tuple[Metadata | None, Metadata | None]:
        """The pipeline's commits with the lowest and with the highest epoch, among those that led to ``version``.

        None without any.

        Metadata may be a stale copy that a session left in somebody else's commit. Two things give it away: an epoch
        below the newest one, and a base version from before the last RESTORE.
        """
        from pyspark.sql import functions as F

        def field(name: str) -> str:
            return f"get_json_object(userMetadata, '$.{name}')"

        base = f"try_cast({field('base')} AS BIGINT)"
        ours = " OR ".join(
            f"version > {after} AND version <= {upto} AND coalesce({base} >= {after}, true)"
            for after, upto in lineage(version, self._restores(version))
        )
        row = (
            self._history.where(F.expr(ours))
            .where((F.expr(field("pipeline")) == pipeline) & F.expr(f"{field('lakelock')} IS NOT NULL"))
            .selectExpr(f"try_cast({field('epoch')} AS BIGINT) AS epoch", "version", "userMetadata")
            .agg(
                F.min(F.struct("epoch", "version", "userMetadata")).alias("first"),
                F.max_by(F.struct("version", "userMetadata"), F.struct("epoch", -F.col("version"))).alias("newest"),
            )
            .first()
        )

        def read(name: str) -> Metadata | None:
            entry = row[name] if row is not None else None
            return metadata(entry["userMetadata"], version=entry["version"], pipeline=pipeline) if entry else None

        return read("first"), read("newest")

    def foreign(self, version: int, *, quoted: bool = True) -> list[Foreign]:
        """Commits of no pipeline that led to ``version`` and have removed or changed rows, oldest first.

        ``quoted``: told with the condition of each one, which has values of the rows.
        """
        from pyspark.sql import functions as F

        segments = lineage(version, self._restores(version))
        led = " OR ".join(f"version > {after} AND version <= {upto}" for after, upto in segments)
        overwrites = "(operation LIKE '%REPLACE TABLE%' OR lower(operationParameters['mode']) = 'overwrite')"
        rows = (
            self._history.where(F.expr(led))
            .where(f"operation IN ('DELETE', 'UPDATE', 'MERGE', 'TRUNCATE') OR {overwrites}")
            .where("get_json_object(userMetadata, '$.lakelock') IS NULL AND version > 0")
            .select("version", "operation", "timestamp", "operationParameters", "operationMetrics", "userName")
            .orderBy("version")
            .collect()
        )
        return [Foreign.of(row, quoted=quoted) for row in rows]

    def _restores(self, version: int) -> dict[int, int]:
        """Version of each RESTORE up to ``version`` -> the version that it went back to."""
        return {
            at: int(target) if target is not None else self._at(timestamp, at)
            for at, target, timestamp in self._restored
            if at <= version
        }

    def _at(self, timestamp: str, before: int) -> int:
        """The newest version at this time, by Delta's own rule for ``RESTORE ... TO TIMESTAMP``. Raises SinkError."""
        from pyspark.sql import functions as F

        earlier = self._history.where(f"version < {before}").where(
            F.col("timestamp") <= F.lit(timestamp).cast("timestamp")
        )
        row = earlier.selectExpr("max(version) AS version").first()
        if row is None or row["version"] is None:
            raise SinkError(
                f"{self.label!r} was restored (version {before}) to {timestamp}, and its history doesn't reach back to "
                "then. Nothing says what it claims to hold.",
                hint="Verify a version before the RESTORE, with --version.",
            )
        return int(row["version"])

    def others(self, pipeline: str) -> dict[str, str]:
        """Topics that other pipelines have written to this table -> the name of that pipeline."""
        return {topic: other for other, topics in self._written if other != pipeline for topic in json.loads(topics)}

    def rows(self, version: int) -> DataFrame:
        """The rows at this version."""
        return self._spark.sql(f"SELECT * FROM {self._sql} VERSION AS OF {version}")

    def earlier(self, pipeline: str, first: Metadata | None, version: int, *, any_first: bool = False) -> Earlier:
        """What the table held before the pipeline's first epoch, in the columns of ``version``.

        ``first``: the oldest commit of the pipeline that led to ``version``; None: there is none, and nothing is known
        to be older than the pipeline. ``any_first``: whether the pipeline's first epoch in this table may have any
        number.
        """
        from pyspark.sql import functions as F

        if first is None or first.version == 0:
            return Earlier()
        began = first.epoch == 1 or self._went_back_before(pipeline, version)
        if not began and not (any_first and self._oldest == 0):
            return Earlier(known=False)
        try:
            rows = self.rows(first.version - 1)
            if rows.isEmpty():
                return Earlier()
        except Exception as error:  # the version's files or its log are gone: classic Spark says so in a Py4JError
            return Earlier(known=False, of_others=began and file_is_gone(error))
        there = {name.lower(): name for name in rows.columns}

        def column(part: StructField) -> Column:
            name = there.get(part.name.lower())
            value = F.lit(None) if name is None else F.col(identifier(name))
            return (value if name and rows.schema[name].dataType == part.dataType else value.cast(part.dataType)).alias(
                part.name
            )

        return Earlier(rows.select(*map(column, self.rows(version).schema)), of_others=began)

    def _went_back_before(self, pipeline: str, version: int) -> bool:
        """Whether a RESTORE that led to ``version`` went back to before the pipeline's very first epoch.

        The history has to have that epoch: else it may have lost other epochs that led to the version as well.
        """
        from pyspark.sql import functions as F

        segments = lineage(version, self._restores(version))
        if len(segments) == 1:
            return False
        ours = F.expr("get_json_object(userMetadata, '$.pipeline')") == pipeline
        row = (
            self._history.where(ours & F.expr("get_json_object(userMetadata, '$.lakelock') IS NOT NULL"))
            .selectExpr("version", "try_cast(get_json_object(userMetadata, '$.epoch') AS BIGINT) AS epoch")
            .agg(F.min(F.struct("version", "epoch")).alias("oldest"))
            .first()
        )
        oldest = row["oldest"] if row is not None else None
        return oldest is not None and oldest["epoch"] == 1 and segments[-1].upto < oldest["version"]

    def extents(self, version: int, topics: Sequence[str]) -> Mapping[At, Extent]:
        """The extent of the rows' coordinates, per partition. Empty for an aggregate, whose groups have none."""
        from pyspark.sql import functions as F

        everything = self.rows(version)
        if "_topic" not in everything.columns:
            return {}
        rows = (
            everything.where(
                F.col("_topic").isin(*topics) & F.col("_partition").isNotNull() & F.col("_offset").isNotNull()
            )
            .groupBy("_topic", "_partition")
            .agg(F.min("_offset").alias("first"), (F.max("_offset") + 1).alias("next"))
            .collect()
        )
        return {At(row["_topic"], row["_partition"]): Extent(row["first"], row["next"]) for row in rows}


class LettersTable(AuditedTable):
    """The dead letters of a pipeline, in a table that may hold those of other tables of its name: of a clone, say."""

    def __init__(self, spark: SparkSession, config: PipelineConfig) -> None:
        super().__init__(spark, config.dead_letters, "dead_letters")
        self._own = tables_of_letters(config)

    def open_letters(self, epoch: int) -> DataFrame:
        """The dead letters, without those that had gone through by this epoch in a retry, and those of other tables:
        their epochs have other numbers, and what became of their records doesn't tell what became of them here."""
        letters = self.rows(self.newest)
        if "_table" in letters.columns:
            own = [each for place in self._own if (each := _id(self._spark, place))]
            # Those of no table, and of two, are from before each letter named one.
            named = ", ".join(map(literal, ["", *own]))
            letters = letters.where(f"coalesce(_table IN ({named}), true)") if own else letters
        retried = "_retried_epoch" in letters.columns
        return letters.where(f"coalesce(_retried_epoch > {epoch}, true)") if retried else letters

    def late(self, pipeline: str, epoch: int) -> DataFrame:
        """The open dead letters of rows that arrived after their window was closed: see ``open_letters``."""
        from pyspark.sql import functions as F

        return self.open_letters(epoch).where((F.col("pipeline") == pipeline) & (F.col("reason") == "late"))


def letters_table(config: PipelineConfig, spark: SparkSession) -> LettersTable | None:
    """The dead letters of a pipeline as they are now; None where no table has them, or none yet."""
    if config.dead_letters is None or config.dead_letters.topic is not None:
        return None
    try:
        return LettersTable(spark, config)
    except NotADeltaTable:
        return None


def _id(spark: SparkSession, place: DeltaPlace) -> str:
    """Delta's id of a table. Empty if there is none: one that was added to the file is made by the next run."""
    try:
        row = spark.sql(f"DESCRIBE DETAIL {_sql(place)}").first()
    except Exception as error:  # classic Spark may say so in a Py4JError
        if not re.search(f"{_NO_TABLE}|FileNotFound", str(error)):
            raise
        return ""
    return (row["id"] if row is not None else None) or ""


def _sql(place: DeltaPlace) -> str:
    """SQL of a table, as in FROM."""
    if place.folder is not None:
        return f"delta.{identifier(place.folder)}"
    parts = re.findall(r"`((?:[^`]|``)*)`|([^.`]+)", str(place.table))
    return ".".join(identifier(quoted.replace("``", "`") or plain) for quoted, plain in parts)


def file_is_gone(error: Exception) -> bool:
    """Whether Spark says that a file of an old version isn't there any more."""
    return any(sign in str(error) for sign in _FILE_IS_GONE)
