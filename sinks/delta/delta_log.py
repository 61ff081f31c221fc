"""Reads single files of a Delta table's log. Delta's history lacks some of them, or needs a Spark job over all."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from sinks.delta.position import Commit, Written
from sinks.spark.files import if_there, no_glob, twice
from sinks.spark.sql import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_TXN = "txn STRUCT<appId: STRING, version: BIGINT>"
_COMMIT_INFO = (
    "commitInfo STRUCT<timestamp: BIGINT, inCommitTimestamp: BIGINT, operation: STRING, "
    "operationMetrics: MAP<STRING, STRING>, userMetadata: STRING>"
)


class DeltaLog:
    """The log of one Delta table."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        """``location``: the table's folder or URI."""
        self._spark = spark
        self._folder = f"{location}/_delta_log"

    def exists(self) -> bool:
        """Whether the table's folder has a log. Needs no Spark job."""
        files = self._spark.read.format("binaryFile")
        return if_there(lambda: files.load(twice(no_glob(self._folder))).schema) is not None

    def has(self, version: int) -> bool:
        """Whether the log has a file of this version. Needs no Spark job.

        Also looks up the version before, which usually exists. If no file matches, PySpark takes 50 ms to report that,
        because it asks the JVM for every part of the error.
        """
        return version in self.among(max(0, version - 1), version)

    def among(self, *versions: int) -> frozenset[int]:
        """The versions of ``versions`` that have a file in the log. Needs no Spark job."""
        if not versions:
            return frozenset()
        names = ",".join(f"{version:020d}" for version in versions)
        files = self._spark.read.format("binaryFile")
        paths = twice(f"{no_glob(self._folder)}/{{{names}}}.json")
        there = if_there(lambda: files.load(paths).inputFiles()) or ()
        return frozenset(int(file.rsplit("/", 1)[-1].removesuffix(".json")) for file in there)

    def commit_with_txn(self, version: int, app: str, number: int) -> Commit | None:
        """The commit of a version if it recorded this txn. None if it didn't, or if the log lacks the version's file.

        Reads one small file, where the history would read all. ``app``, ``number``: appId and version of the txn.
        """
        wanted = f"commitInfo IS NOT NULL OR {_took(app, number)}"
        actions = if_there(lambda: self._actions(version).where(wanted).collect()) or []
        info = next((row["commitInfo"] for row in actions if row["commitInfo"] is not None), None)
        if info is None or all(row["txn"] is None for row in actions):
            return None
        return Commit(
            version,
            utc(info["inCommitTimestamp"] or info["timestamp"]),
            info["operation"],
            {},
            info["userMetadata"],
            written(info["operation"], info["operationMetrics"] or {}),
        )

    def holds_txn(self, version: int, app: str, number: int) -> bool:
        """Whether the commit of a version recorded this txn. ``app``, ``number``: appId and version of the txn."""
        return not self._actions(version).where(_took(app, number)).isEmpty()

    def txns(self, versions: Sequence[int], app: str) -> dict[int, int]:
        """The txn numbers that the commits of these versions recorded for the appId ``app``: version -> number.

        Versions without such a txn are left out. Reads each file once, all in one Spark job.
        """
        paths = [f"{no_glob(self._folder)}/{version:020d}.json" for version in sorted(self.among(*versions))]
        if not paths:
            return {}

        def read() -> dict[int, int]:
            taken = self._spark.read.schema(_TXN).json(paths).where(f"txn.appId = {literal(app)}")
            rows = taken.selectExpr("_metadata.file_name AS name", "txn.version AS number").collect()
            return {int(row["name"].removesuffix(".json")): row["number"] for row in rows}

        return if_there(read) or {}

    def highest_txn(self, app: str) -> int:
        """The highest txn number for the appId ``app`` in the log's commits and checkpoints. 0 if there is none."""
        read = self._spark.read.schema(_TXN)

        def highest(txns: DataFrame) -> int:
            row = txns.where(f"txn.appId = {literal(app)}").selectExpr("max(txn.version) AS highest").first()
            return (row["highest"] if row else None) or 0

        folder = no_glob(self._folder)
        commits = if_there(lambda: highest(read.json(f"{folder}/*.json")))
        checkpoints = if_there(lambda: highest(read.parquet(f"{folder}/*.checkpoint*.parquet")))
        return max(commits or 0, checkpoints or 0)

    def columns(self) -> StructType | None:
        """The table's columns with all their metadata, of which a query shows a part. None: the log doesn't tell.

        Reads the whole log and its checkpoints.
        """
        from pyspark.sql.types import StructType

        read = self._spark.read.schema("metaData STRUCT<schemaString: STRING>")

        def newest(actions: DataFrame) -> tuple[str, str] | None:
            file = "_metadata.file_name"
            row = (
                actions.where("metaData IS NOT NULL")
                .selectExpr(f"{file} AS file", "metaData.schemaString AS columns")
                .selectExpr("max(struct(file, columns)) AS newest")
                .first()
            )
            return tuple(row["newest"]) if row is not None and row["newest"] is not None else None

        folder = no_glob(self._folder)
        commits = if_there(lambda: newest(read.json(f"{folder}/*.json")))
        checkpoints = if_there(lambda: newest(read.parquet(f"{folder}/*.checkpoint*.parquet")))
        # Names of files begin with the version.
        found = max((each for each in (commits, checkpoints) if each is not None), default=None)
        return StructType.fromJson(json.loads(found[1])) if found is not None else None

    def _actions(self, version: int) -> DataFrame:
        path = f"{no_glob(self._folder)}/{version:020d}.json"
        return self._spark.read.schema(f"{_COMMIT_INFO}, {_TXN}").json(path)


def _took(app: str, number: int) -> str:
    return f"(txn.appId = {literal(app)} AND txn.version = {int(number)})"


def utc(millis: int) -> datetime:
    """The time in UTC. ``millis``: milliseconds since 1970."""
    return datetime.fromtimestamp(millis / 1000, tz=timezone.utc)


_PARTS = {"read": "materializeSourceTimeMs", "match": "scanTimeMs", "write": "rewriteTimeMs"}


def written(operation: str, metrics: Mapping[str, str]) -> Written:
    """The rows and bytes that a commit wrote. ``metrics``: the operation metrics from Delta's history."""
    numbers = {name: int(value) for name, value in metrics.items() if value.isdecimal()}
    if operation != "MERGE":
        return Written(numbers.get("numOutputRows"), numbers.get("numOutputBytes"))
    changed = sum(numbers.get(f"numTargetRows{what}", 0) for what in ("Updated", "Deleted"))
    rows = numbers.get("numTargetRowsInserted", 0) + changed
    source = numbers.get("numSourceRows")
    # A truncate changes rows that aren't in the source.
    unchanged = max(0, source - rows) if source is not None else None
    seconds = {part: numbers[name] / 1000 for part, name in _PARTS.items() if name in numbers}
    return Written(rows, numbers.get("numTargetBytesAdded"), unchanged, changed, seconds)
