"""Counts, per partition, rows and records that are joined side by side. Only the counts leave the executors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from connector.audit.verdict import COUNTS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ROW_AT = "struct(claim IS NOT NULL AS claimed, r_topic AS topic, r_partition AS `partition`, r_offset AS offset)"
RECORD_AT = "struct(true AS claimed, e_topic AS topic, e_partition AS `partition`, e_offset AS offset)"
_NO_COORDINATES = (
    "struct(false AS claimed, CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS `partition`, "
    "CAST(NULL AS BIGINT) AS offset)"
)
_EXCUSED = ("ahead", "doubtful", "moved", "unchecked", "unreadable")
_KINDS_OF_ROWS = ("right", "altered", "stale", "resurrected", "unexpected", "held_before", *_EXCUSED)


def one_each(
    joined: DataFrame, names: Sequence[str], *, within: Sequence[str] = (), coordinates: bool = True
) -> list[dict[str, Any]]:
    """The counts for tables with one row per key: at most one row of a key is right, and further ones are copies.

    ``joined`` has the columns g*: the key's columns, which are shown by their ``names``; ``within``: further columns
    that identify a row, if a key has several; ``kind``: the kind of the row, null without a row; ``wanted``: whether
    the record should have a row; ``sure``: whether a missing row is a fault, else it is doubtful; and what ``ROW_AT``
    and ``RECORD_AT`` need, unless rows have no ``coordinates``. Rows of the kind unreadable count with their records. A
    key of the kind moved counts with its records, and has that kind also without a row.
    """
    from pyspark.sql import functions as F

    row_at, record_at = (
        (F.expr(ROW_AT), F.expr(RECORD_AT)) if coordinates else (F.expr(_NO_COORDINATES), F.expr(_NO_COORDINATES))
    )
    keys = [f"g{index}" for index in range(len(names))]
    groups = joined.groupBy(*keys, *within).agg(
        F.coalesce(F.max("wanted"), F.lit(False)).alias("wanted"),
        F.coalesce(F.max("sure"), F.lit(True)).alias("sure"),
        F.min(F.when(F.col("wanted"), record_at)).alias("at_wanted"),
        F.min(F.when(F.col("kind").isin("right", "altered", "stale", *_EXCUSED), row_at)).alias("at_copy"),
        *(F.count(F.when(F.col("kind") == kind, 1)).alias(f"n_{kind}") for kind in _KINDS_OF_ROWS),
        *(
            F.min(F.when(F.col("kind") == kind, record_at if kind == "moved" else row_at)).alias(f"at_{kind}")
            for kind in _KINDS_OF_ROWS[1:]
        ),
    )
    # With soft deletes, a row that should be marked as deleted and isn't stands for the expected row.
    revived = "IF(wanted, n_resurrected, 0L)"
    standing = f"n_right + n_altered + n_stale + {revived}"
    excused = " + ".join(f"n_{kind}" for kind in _EXCUSED)
    doubtful = "n_doubtful > 0 OR (wanted AND NOT sure)"
    counts = {
        # A newer update of the key may lie beyond the claim, or where Kafka can't show it.
        "expected": f"CAST(wanted AND ({standing} > 0 OR (sure AND {excused} = 0)) AS BIGINT)",
        "found": "CAST(n_right > 0 AS BIGINT)",
        "lost": f"CAST(wanted AND sure AND {standing} + {excused} = 0 AS BIGINT)",
        "duplicated": f"greatest({standing} + {excused} - 1, 0L)",
        "stale": f"CAST(n_right + n_altered + {revived} = 0 AND n_stale > 0 AS BIGINT)",
        "resurrected": "IF(wanted, CAST(n_right + n_altered = 0 AND n_resurrected > 0 AS BIGINT), n_resurrected)",
        "altered": "CAST(n_right = 0 AND n_altered > 0 AS BIGINT)",
        "unexpected": "n_unexpected",
        "held_before": "n_held_before",
        "ahead": f"CAST({standing} = 0 AND n_ahead > 0 AS BIGINT)",
        "unchecked": f"CAST({standing} + n_ahead = 0 AND n_unchecked > 0 AS BIGINT)",
        "doubtful": f"CAST({standing} + {excused} - n_doubtful = 0 AND ({doubtful}) AS BIGINT)",
        "moved": "CAST(n_moved > 0 AS BIGINT)",
    }
    places = dict.fromkeys(("expected", "found", "lost"), "at_wanted")
    places |= {"duplicated": "at_copy", "doubtful": "coalesce(at_doubtful, at_wanted)"}
    named = (F.col(ours).alias(name) for ours, name in zip(keys, names, strict=True))
    shown = F.to_json(F.struct(*named), {"ignoreNullFields": "false"})
    return counted(groups, counts, {kind: places.get(kind, f"at_{kind}") for kind in counts}, shown)


def counted(
    groups: DataFrame, counts: Mapping[str, str], places: Mapping[str, str], key: Column | None = None
) -> list[dict[str, Any]]:
    """One entry per kind and topic-partition: kind, topic, partition, count, first {topic, partition, offset, key}.

    ``counts``: SQL over the ``groups``, by kind. ``places``: SQL of a struct like ``ROW_AT``. ``key``: the key as JSON.
    """
    from pyspark.sql import functions as F

    nothing = F.lit(None).cast("string")
    findings = F.array(
        *(
            F.struct(
                F.lit(kind).alias("kind"),
                F.expr(counts[kind]).alias("count"),
                F.expr(places[kind]).alias("at"),
                (
                    nothing if key is None or kind in ("expected", "found") else F.when(F.expr(counts[kind]) > 0, key)
                ).alias("key"),
            )
            for kind in COUNTS
            if kind in counts
        )
    )
    summed = (
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
    return [row.asDict(recursive=True) for row in summed.collect()]
