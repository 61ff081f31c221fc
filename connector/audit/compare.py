"""The one query: records of Kafka against rows of the table, on the executors, counted per partition.

Every row of the table counts as exactly one of found, duplicated, stale, resurrected, altered, unexpected, ahead,
unchecked; every expected record as exactly one of found, lost, stale, altered. Only these counts, and the first
coordinates of each, leave the executors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from connector.audit.claim import Bounds
from connector.audit.values import comparable_values
from sinks.errors import SchemaMismatch
from sinks.raised import identifier

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

_BOUNDS = (
    "array<struct<topic: string, `partition`: int, since: bigint, begin: bigint, stop: bigint, `end`: bigint, "
    "compacted: boolean, lost: array<struct<start: bigint, `end`: bigint>>>>"
)
_NO_RECORDS = {
    "key": "binary", "value": "binary", "topic": "string", "partition": "int", "offset": "bigint",
    "timestamp": "timestamp",
}  # fmt: skip
_COORDINATES = {"_topic": "string", "_partition": "int", "_offset": "bigint", "_timestamp": "timestamp"}


def expected_records(spark: SparkSession, kafka: Mapping[str, str], cut: Sequence[Bounds]) -> DataFrame:
    """The records of these bounds. ``kafka``: options by Kafka's names, secrets in clear. Fails where any is gone."""
    from pyspark.sql import functions as F

    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for part in cut:
        if part.begin < part.stop:
            starts.setdefault(part.at.topic, {})[str(part.at.partition)] = part.begin
            ends.setdefault(part.at.topic, {})[str(part.at.partition)] = part.stop
    if not starts:
        empty = (F.lit(None).cast(kind).alias(name) for name, kind in _NO_RECORDS.items())
        return spark.range(0).select(*empty)
    reader = spark.read.format("kafka")
    for name, value in kafka.items():
        # Spark would join the group; it reads by offsets.
        if name != "group.id":
            reader = reader.option(f"kafka.{name}", value)
    records = (
        reader.option("kafka.isolation.level", "read_committed")
        .option("assign", json.dumps({topic: [int(part) for part in parts] for topic, parts in starts.items()}))
        .option("startingOffsets", json.dumps(starts))
        .option("endingOffsets", json.dumps(ends))
        .option("failOnDataLoss", "true")
        .load()
    )
    for gap in (gap for part in cut for gap in part.lost if gap.end > part.begin):
        records = records.where(
            (F.col("topic") != gap.topic)
            | (F.col("partition") != gap.partition)
            | ~F.col("offset").between(gap.start, gap.end - 1)
        )
    return records


def check_columns(rows: DataFrame, schema: StructType) -> None:
    """Raises SchemaMismatch unless every column of the value, and the coordinates, are there in their types."""
    there = {field.name.lower(): field.dataType.simpleString().lower() for field in rows.schema}
    wanted = {field.name: field.dataType.simpleString().lower() for field in schema} | _COORDINATES
    faults = [
        f"column {name} is {there[name.lower()]} in the table, {kind} in the pipeline"
        if name.lower() in there
        else f"the table has no column {name}"
        for name, kind in wanted.items()
        if there.get(name.lower()) != kind
    ]
    if faults:
        raise SchemaMismatch(
            "The table can't be compared with the topic: " + "; ".join(faults) + ".",
            hint="Verify with the value.schema that the table was written with.",
        )


def compare(
    spark: SparkSession,
    *,
    records: DataFrame,
    rows: DataFrame,
    schema: StructType,
    key: Sequence[str] | None,
    cut: Sequence[Bounds],
    committed_later: bool,
    leave_out: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """One entry per kind and topic-partition: kind, topic, partition, count, first {topic, partition, offset, key}.

    ``key`` makes it an upsert: the newest record per key is expected, else every record. ``committed_later``: rows
    beyond the claim are no fault. ``leave_out``: topics whose rows are somebody else's. Topic and partition are None
    for rows from nowhere in the claim.
    """
    check_columns(rows, schema)
    keys = list(key or ())
    found = _rows(spark, rows, schema, keys, cut, leave_out)
    expected = _records(records, schema, keys)
    if not keys:
        return _counted(_appended(expected, found, committed_later), width=3, key=None)
    newest = _newest(expected, len(keys))
    return _counted(_upserted(newest, found, len(keys), committed_later), width=len(keys), key=keys)


def _rows(
    spark: SparkSession,
    rows: DataFrame,
    schema: StructType,
    key: Sequence[str],
    cut: Sequence[Bounds],
    leave_out: Sequence[str],
) -> DataFrame:
    """r_*: coordinates, comparable values, the key, and where in the claim the row's coordinates lie."""
    from pyspark.sql import functions as F

    text = json.dumps(
        [
            {
                "topic": part.at.topic, "partition": part.at.partition, "since": part.since, "begin": part.begin,
                "stop": part.stop, "end": part.end, "compacted": part.compacted,
                "lost": [{"start": gap.start, "end": gap.end} for gap in part.lost],
            }
            for part in cut
        ]
    )  # fmt: skip
    limits = spark.range(1).select(F.inline(F.from_json(F.lit(text), _BOUNDS)))
    limits = limits.select(F.struct(*limits.columns).alias("claim"))
    mine = rows.select(
        F.col("_topic").alias("r_topic"),
        F.col("_partition").alias("r_partition"),
        F.col("_offset").alias("r_offset"),
        comparable_values(schema, lambda name: F.col(identifier(name)), F.col("_timestamp")).alias("r_values"),
        *(F.col(identifier(name)).alias(f"r_k{index}") for index, name in enumerate(key)),
    )
    if leave_out:
        mine = mine.where(~F.coalesce(F.col("r_topic").isin(*leave_out), F.lit(False)))
    placed = mine.join(F.broadcast(limits), F.expr("r_topic = claim.topic AND r_partition = claim.`partition`"), "left")
    zone = F.expr(
        "CASE WHEN claim IS NULL OR r_offset IS NULL THEN 'nowhere' "
        "WHEN r_offset >= claim.`end` THEN 'ahead' "
        "WHEN r_offset < claim.since THEN 'nowhere' "
        "WHEN exists(claim.lost, gap -> r_offset >= gap.start AND r_offset < gap.`end`) THEN 'lost' "
        "WHEN r_offset < claim.begin OR r_offset >= claim.stop THEN 'unchecked' ELSE 'checked' END"
    )
    return placed.withColumns({"r_zone": zone, "r_compacted": F.expr("coalesce(claim.compacted, false)")})


def _records(records: DataFrame, schema: StructType, key: Sequence[str]) -> DataFrame:
    """e_*: coordinates, comparable values, whether they could be decoded; the key's columns; Kafka's key."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType, StructField, StructType

    taken, bad = {name.lower() for name in schema.names}, "malformed"
    while bad in taken:
        bad += "_"
    parsed = records.withColumn(
        "parsed",
        F.from_json(
            F.col("value").cast("string"),
            StructType([*schema.fields, StructField(bad, StringType())]),
            {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": bad},
        ),
    )

    def field(name: str) -> Column:
        return F.col(f"parsed.{identifier(name)}")

    decoded = F.col("value").isNotNull() & F.col("parsed").isNotNull() & field(bad).isNull()
    return parsed.select(
        F.col("topic").alias("e_topic"),
        F.col("partition").alias("e_partition"),
        F.col("offset").alias("e_offset"),
        decoded.alias("e_decoded"),
        F.col("value").isNull().alias("e_tombstone"),
        F.col("key").alias("e_key"),
        comparable_values(schema, field, F.col("timestamp")).alias("e_values"),
        *(F.when(decoded, field(name)).alias(f"e_k{index}") for index, name in enumerate(key)),
    )


def _newest(records: DataFrame, width: int) -> DataFrame:
    """The newest record per key, and whether a tombstone for its Kafka key came after it."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    columns = [f"e_k{index}" for index in range(width)]
    # Records without a Kafka key can't be deleted: spread, or all of them would be one group.
    spread = F.when(F.col("e_key").isNull(), F.xxhash64(*columns))
    place = ["e_topic", "e_partition", "e_key", "spread"]
    reduced = (
        records.withColumn("spread", spread)
        .groupBy(*place, *columns)
        .agg(
            F.max_by(F.struct("e_topic", "e_partition", "e_offset", "e_values"), "e_offset").alias("newest"),
            F.max(F.when(F.col("e_tombstone") & F.col("e_key").isNotNull(), F.col("e_offset"))).alias("deleted_at"),
        )
        .withColumn("deleted_at", F.max("deleted_at").over(Window.partitionBy(*place)))
    )
    return (
        reduced.where(reduce(lambda some, more: some & more, (F.col(name).isNotNull() for name in columns)))
        .groupBy(*columns)
        .agg(F.max_by(F.struct("newest", "deleted_at"), "newest.e_offset").alias("last"))
        .select(
            *columns,
            "last.newest.*",
            F.expr("coalesce(last.deleted_at > last.newest.e_offset, false)").alias("e_deleted"),
        )
    )


def _outside(committed_later: bool) -> str:
    """SQL: kinds of rows whose coordinates aren't among those that Kafka should show."""
    beyond, gone = ("ahead", "unchecked") if committed_later else ("unexpected", "unexpected")
    return (
        f"WHEN r_zone = 'nowhere' THEN 'unexpected' WHEN r_zone = 'ahead' THEN '{beyond}' "
        f"WHEN e_offset IS NULL AND r_zone = 'lost' THEN '{gone}' "
        "WHEN e_offset IS NULL AND (r_zone = 'unchecked' OR r_compacted) THEN 'unchecked' "
        "WHEN e_offset IS NULL THEN 'unexpected' "
    )


def _appended(records: DataFrame, rows: DataFrame, committed_later: bool) -> DataFrame:
    """Records and rows side by side by coordinates, every row with its kind."""
    from pyspark.sql import functions as F

    same = F.expr("e_topic = r_topic AND e_partition = r_partition AND e_offset = r_offset")
    kind = F.expr(
        f"CASE WHEN r_zone IS NULL THEN NULL {_outside(committed_later)}"
        "WHEN NOT e_decoded OR e_values <=> r_values THEN 'right' ELSE 'altered' END"
    )
    coordinates = {
        f"g{index}": F.expr(f"coalesce(e_{name}, r_{name})")
        for index, name in enumerate(("topic", "partition", "offset"))
    }
    joined = records.join(rows, same, "full")
    return joined.withColumns({"kind": kind, "e_deleted": F.lit(False), **coordinates})


def _upserted(records: DataFrame, rows: DataFrame, width: int, committed_later: bool) -> DataFrame:
    """Newest records and rows side by side by key (of ``width`` columns), every row with its kind."""
    from pyspark.sql import functions as F

    same = F.expr(" AND ".join(f"e_k{index} = r_k{index}" for index in range(width)))
    no_key = " OR ".join(f"r_k{index} IS NULL" for index in range(width))
    kind = F.expr(
        f"CASE WHEN r_zone IS NULL THEN NULL WHEN {no_key} THEN 'unexpected' {_outside(committed_later)}"
        # Offsets of two partitions can't be compared.
        "WHEN e_topic <> r_topic OR e_partition <> r_partition THEN 'unexpected' "
        "WHEN e_deleted THEN 'resurrected' "
        "WHEN r_offset < e_offset THEN 'stale' "
        "WHEN r_offset > e_offset THEN IF(r_zone = 'unchecked' OR r_compacted, 'unchecked', 'unexpected') "
        "WHEN e_values <=> r_values THEN 'right' ELSE 'altered' END"
    )
    keys = {f"g{index}": F.expr(f"coalesce(e_k{index}, r_k{index})") for index in range(width)}
    return records.join(rows, same, "full").withColumns({"kind": kind, **keys})


_KINDS_OF_ROWS = ("right", "altered", "stale", "resurrected", "unexpected", "ahead", "unchecked")


def _counted(joined: DataFrame, *, width: int, key: Sequence[str] | None) -> list[dict[str, Any]]:
    """Per coordinates or key (columns g0 to ``width``) at most one row is right, and further ones are copies."""
    from pyspark.sql import functions as F

    at = F.struct(
        F.expr("claim IS NOT NULL").alias("claimed"),
        F.col("r_topic").alias("topic"),
        F.col("r_partition").alias("partition"),
        F.col("r_offset").alias("offset"),
    )
    wanted = F.expr("struct(true AS claimed, e_topic AS topic, e_partition AS `partition`, e_offset AS offset)")
    copies = ["right", "altered", "stale", "unchecked", *(["ahead"] if key else [])]
    groups = joined.groupBy(*(f"g{index}" for index in range(width))).agg(
        F.coalesce(F.max(F.expr("e_offset IS NOT NULL AND NOT e_deleted")), F.lit(False)).alias("alive"),
        F.min(F.when(F.col("e_offset").isNotNull(), wanted)).alias("at_wanted"),
        F.min(F.when(F.col("kind").isin(*copies), at)).alias("at_copy"),
        *(F.count(F.when(F.col("kind") == kind, 1)).alias(f"n_{kind}") for kind in _KINDS_OF_ROWS),
        *(F.min(F.when(F.col("kind") == kind, at)).alias(f"at_{kind}") for kind in _KINDS_OF_ROWS[1:]),
    )
    standing, excused = "n_right + n_altered + n_stale", "n_unchecked + n_ahead" if key else "n_unchecked"
    counts = {
        # Beyond the claim, or where Kafka can't show it, a newer update has taken the key's place.
        "expected": (f"CAST(alive AND ({standing} > 0 OR {excused} = 0) AS BIGINT)", "at_wanted"),
        "found": ("CAST(n_right > 0 AS BIGINT)", "at_wanted"),
        "lost": (f"CAST(alive AND {standing} + {excused} = 0 AS BIGINT)", "at_wanted"),
        "duplicated": (f"greatest({standing} + {excused} - 1, 0L)", "at_copy"),
        "stale": ("CAST(n_right + n_altered = 0 AND n_stale > 0 AS BIGINT)", "at_stale"),
        "resurrected": ("n_resurrected", "at_resurrected"),
        "altered": ("CAST(n_right = 0 AND n_altered > 0 AS BIGINT)", "at_altered"),
        "unexpected": ("n_unexpected", "at_unexpected"),
        "ahead": (f"CAST({standing} = 0 AND n_ahead > 0 AS BIGINT)" if key else "n_ahead", "at_ahead"),
        "unchecked": (
            f"CAST({standing} + {'n_ahead' if key else '0'} = 0 AND n_unchecked > 0 AS BIGINT)",
            "at_unchecked",
        ),
    }
    named = (F.col(f"g{index}").alias(name) for index, name in enumerate(key or ()))
    shown = F.to_json(F.struct(*named), {"ignoreNullFields": "false"}) if key else F.lit(None).cast("string")
    findings = F.array(
        *(
            F.struct(
                F.lit(kind).alias("kind"),
                F.expr(count).alias("count"),
                F.col(place).alias("at"),
                (
                    F.lit(None).cast("string") if kind in ("expected", "found") else F.when(F.expr(count) > 0, shown)
                ).alias("key"),
            )
            for kind, (count, place) in counts.items()
        )
    )
    counted = (
        groups.select(F.inline(F.filter(findings, lambda finding: finding["count"] > 0)))
        .groupBy(
            "kind",
            F.expr("IF(at.claimed, at.topic, NULL)").alias("topic"),
            F.expr("IF(at.claimed, at.`partition`, NULL)").alias("partition"),
        )
        .agg(
            F.sum("count").alias("count"),
            F.min(F.struct("at.topic", "at.partition", "at.offset", "key")).alias("first"),
        )
    )
    return [row.asDict(recursive=True) for row in counted.collect()]
