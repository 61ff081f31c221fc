"""Dead letters: every record of the claim is either a letter or in the table, never both and never neither.

The auditor judges a second time what is wrong with a record. A good record belongs into the table, and a letter of it
is a fault. Only for records that can't be decoded it believes the letter: the pipeline refuses every value that it
would have to change, a time with nanoseconds for instance, and the auditor doesn't look that closely.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from connector.audit.claim import Bounds
from connector.audit.counted import counted
from connector.audit.records import PLACE, PROBLEM, PROBLEMS, RAW, Records, beyond, digest
from connector.audit.rows import check_columns, placed
from connector.config import PipelineConfig
from sinks.spark.sql import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_COLUMNS = {
    "pipeline": "string", "sink": "string", "reason": "string", "key": "binary", "value": "binary",
    "headers": "array<struct<key:string,value:binary>>", "_topic": "string", "_partition": "int", "_offset": "bigint",
    "_timestamp": "timestamp",
}  # fmt: skip
_JUDGED = ("tombstone", "rule", "route", "no_key", "no_sequence")
"""Reasons that the auditor can judge for sure."""
JUDGED_WITHOUT_A_SINK = ("rule", "route")
"""Of them, those that say nothing of a table."""


def no_letters(spark: SparkSession) -> DataFrame:
    """An empty frame of letters, for a pipeline whose table of letters isn't there yet."""
    return spark.range(0).selectExpr(*(f"CAST(NULL AS {kind}) AS {name}" for name, kind in _COLUMNS.items()))


def topic_of_letters(config: PipelineConfig) -> str | None:
    """The topic that has the dead letters. They aren't audited."""
    return config.dead_letters.topic if config.dead_letters is not None else None


def told_apart(
    every: Records,
    made: Records,
    letters: DataFrame,
    config: PipelineConfig,
    cut: Sequence[Bounds],
    judged: Sequence[str] = _JUDGED,
) -> tuple[Records, list[dict[str, Any]]]:
    """The rows that belong into the table, and the counts of records and letters as ``counted`` gives them.

    ``every``: all records with their problems, also those that the sink has with them. ``made``: the rows of those
    without one. ``letters``: the whole table of letters. ``judged``: the reasons that aren't believed. Raises
    SchemaMismatch.
    """
    check_columns(letters, _COLUMNS)
    theirs = _theirs(letters, config, judged)
    believed = theirs.where("believed").selectExpr(*(f"r{name} AS {name}" for name in PLACE))
    rows = made.frame.join(believed, list(PLACE), "left_anti")
    records = _with_believed(every, believed)
    return replace(made, frame=rows), _counts(records, placed(theirs, cut, every.shown), cut, judged)


def _with_believed(every: Records, believed: DataFrame) -> DataFrame:
    """All records, but of those that a filter has taken out only the ones with a letter that is believed: what is wrong
    with a record the pipeline may have found before the filter."""
    from pyspark.sql import functions as F

    if every.left_out is None:
        return every.frame
    columns = [name for name in (*PLACE, PROBLEM, PROBLEMS, RAW) if name in every.frame.columns]
    beside = every.left_out.join(believed, list(PLACE), "left_semi").withColumn(PROBLEM, F.lit(None).cast("string"))
    return every.frame.select(*columns).unionByName(beside, allowMissingColumns=True)


def _theirs(letters: DataFrame, config: PipelineConfig, judged: Sequence[str]) -> DataFrame:
    """Per record, in r_*: how many ``letters`` this pipeline has of it for this sink, their ``reasons``, the digests of
    what they hold, and whether one has to be ``believed``. Letters of late rows aren't among them.
    """
    from pyspark.sql import functions as F

    if judged == _JUDGED and config.clock is not None:
        judged = (*judged, "no_time")
    ours = letters.where(f"pipeline = {literal(config.name)} AND NOT reason <=> 'late'")
    ours = of_the_sink(ours, config)
    believed = ~F.coalesce(F.col("reason").isin(*judged), F.lit(False))
    return ours.groupBy(*(F.col(name).alias(f"r{name}") for name in PLACE)).agg(
        F.count(F.lit(1)).alias("letters"),
        F.collect_set("reason").alias("reasons"),
        F.collect_set(digest("_timestamp")).alias("digests"),
        F.max(believed).alias("believed"),
    )


def of_the_sink(letters: DataFrame, config: PipelineConfig) -> DataFrame:
    """The letters of this sink, or of all sinks.

    A letter names its sink as the file did when it was written, and the table may have been moved since. The tables of
    a route have one name together.
    """
    from pyspark.sql import functions as F

    if len(config.places) == 1 or config.route is not None:
        return letters
    named = [row["sink"] for row in letters.where("sink IS NOT NULL").select("sink").distinct().collect()]
    mine = [name for name in named if named_sink(name, config.places) == config.sinks[0].place]
    return letters.where(F.col("sink").isNull() | F.col("sink").isin(mine))


def named_sink(name: str, places: Sequence[str]) -> str | None:
    """Which of the ``places`` of sinks a letter means that names its sink so: the one whose path or table name ends
    like it for the longest. None: no place does, or several."""
    if name in places:
        return name
    alike = {place: _alike_at_the_end(name, place) for place in places}
    longest = max(alike.values())
    found = [place for place, length in alike.items() if length == longest]
    return found[0] if longest and len(found) == 1 else None


def _alike_at_the_end(one: str, other: str) -> int:
    """How many of the last parts of two paths, or names of tables, are the same."""
    pairs = zip(*(reversed(re.split("[/.]", place.rstrip("/"))) for place in (one, other)), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def late_letters(letters: DataFrame) -> DataFrame:
    """The pipeline's letters of late records, which are this sink's, whatever its table was called: a pipeline has one
    sink with a window. Raises SchemaMismatch."""
    check_columns(letters, _COLUMNS)
    return letters


def _counts(
    every: DataFrame, theirs: DataFrame, cut: Sequence[Bounds], judged_reasons: Sequence[str]
) -> list[dict[str, Any]]:
    from pyspark.sql import functions as F

    records = every.where(f"NOT {beyond(cut, *PLACE)}").select(
        *(F.col(name).alias(f"e{name}") for name in PLACE),
        F.col(PROBLEM).alias("problem"),
        F.expr(PROBLEMS if PROBLEMS in every.columns else "CAST(NULL AS ARRAY<STRING>)").alias("problems"),
        F.col(RAW).alias("digest"),
    )
    same = " AND ".join(f"e{name} = r{name}" for name in PLACE)
    joined = records.join(theirs, F.expr(same), "full").withColumns(
        {
            "is_record": F.expr("e_offset IS NOT NULL"),
            "is_letter": F.expr("letters IS NOT NULL"),
            "unfounded": F.expr("e_offset IS NOT NULL AND problem IS NULL AND believed IS FALSE"),
            "same": F.expr("coalesce(array_contains(digests, digest), false)"),
            "at": F.expr(
                "IF(e_offset IS NOT NULL, struct(true AS claimed, e_topic AS topic, e_partition AS `partition`, "
                "e_offset AS offset), struct(claim IS NOT NULL AS claimed, r_topic AS topic, "
                "r_partition AS `partition`, r_offset AS offset))"
            ),
        }
    )
    alone = "NOT is_record AND is_letter"
    nowhere = "claim IS NULL OR r_offset IS NULL"
    without = f"{nowhere} OR (r_zone = 'checked' AND NOT r_compacted)"
    conditions = {
        "records": "is_record",
        "letters": "is_record AND is_letter AND same AND NOT unfounded",
        "letters_lost": "is_record AND NOT is_letter AND problem IS NOT NULL",
        "letters_altered": "is_record AND is_letter AND NOT same AND NOT unfounded",
        "letters_unexpected": f"unfounded OR ({alone} AND ({without}))",
        "letters_unconfirmed": "is_record AND is_letter AND problem IS NULL AND NOT unfounded",
        "letters_unchecked": f"{alone} AND (r_zone = 'unchecked' OR (r_zone = 'checked' AND r_compacted))",
        "letters_ahead": f"{alone} AND r_zone = 'ahead'",
    }
    counts = {kind: f"CAST(coalesce({condition}, false) AS BIGINT)" for kind, condition in conditions.items()}
    # Letters of an epoch that isn't committed, or from before the claim, aren't judged.
    judged = f"is_record OR r_zone IN ('checked', 'unchecked') OR {nowhere}"
    # Of several rows of one record, each reason has a letter.
    missing = "IF(believed OR unfounded, 0, coalesce(size(array_except(problems, reasons)), 0))"
    counts["letters_lost"] += f" + IF(is_record AND is_letter, {missing}, 0L)"
    believed = f"reason NOT IN ({', '.join(map(literal, judged_reasons))})"
    own = f"size(filter(reasons, reason -> array_contains(problems, reason) OR ({believed})))"
    once = f"IF(problems IS NULL, 1, greatest({own}, 1))"
    counts["letters_duplicated"] = f"IF(is_letter AND ({judged}), greatest(letters - {once}, 0L), 0L)"
    return counted(joined, counts, dict.fromkeys(counts, "at"))
