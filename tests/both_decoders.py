"""What the pipeline's decoder makes of records, and what the auditor's does."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from json_oracle import BAD
from pyspark.sql.types import StructType

from connector.audit import avro
from connector.audit.avro_schema import Schema, spark_type
from connector.audit.decode import decoded
from connector.audit.formats import Form, Forms
from connector.audit.records import PROBLEM
from connector.decode.format import UNKNOWN, Format, problem_of
from connector.decode.json import Json
from connector.spark.compat import from_ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = Mapping[str, Any]


def has_variant(spark: SparkSession) -> bool:
    return not spark.version.startswith("3.")


def frame_of(spark: SparkSession, texts: Sequence[bytes]) -> DataFrame:
    return spark.createDataFrame([(text, n) for n, text in enumerate(texts)], "value BINARY, n INT").coalesce(1)


def by_pipeline(spark: SparkSession, schema: str, texts: Sequence[bytes], permissive: bool = False) -> list[Row | str]:
    """Each record's columns, or its problem. A VARIANT is its JSON."""
    format = Json(from_ddl(schema), permissive)
    columns = [shown(f"found.`{part.name}`", part.name, part.dataType.typeName()) for part in format.type]
    rows = until_learned(format, frame_of(spark, texts), columns)
    return [row["problem"] or {name: row[name] for name in row.asDict() if name != "problem"} for row in rows]


def until_learned(format: Format, frame: DataFrame, columns: Sequence[str]) -> list[Any]:
    """Rows with these columns of the value ``found``, and its ``problem``, as a run decodes them: until there is
    nothing more to learn from the records."""
    decoded = format.decoded(frame, "value", "found").orderBy("n")
    rows = decoded.selectExpr(f"{problem_of('found')} AS problem", *columns).collect()
    asked = next((row["problem"] for row in rows if (row["problem"] or "").startswith(UNKNOWN)), None)
    if asked is None:
        return rows
    format.resolve([asked.removeprefix(UNKNOWN)], frame.selectExpr("value AS bytes"))
    return until_learned(format, frame, columns)


def shown(column: str, name: str, kind: str) -> str:
    return f"to_json({column}) AS `{name}`" if kind == "variant" else f"{column} AS `{name}`"


def by_auditor(spark: SparkSession, schema: str, texts: Sequence[bytes], permissive: bool = False) -> list[Row | str]:
    """Each record's columns, or ``BAD``."""
    kind = from_ddl(schema)
    assert isinstance(kind, StructType)
    kafka = "CAST(NULL AS BINARY) AS key", "value", "'t' AS topic", "0 AS partition", "CAST(n AS BIGINT) AS offset"
    headers = "CAST(NULL AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS headers"
    records = frame_of(spark, texts).selectExpr(*kafka, "TIMESTAMP'2026-01-01' AS timestamp", headers)
    found = decoded(records, Forms(Form(kind, permissive), None, False, None), (), ruled=True).frame
    rows = found.orderBy("_offset").collect()
    return [BAD if row[PROBLEM] else {name: row[name] for name in kind.names} for row in rows]


def avro_by_auditor(writer: object, reader: object, *values: bytes) -> list[Any]:
    """Each value, or ``BAD``. Needs no JVM."""
    import pyarrow

    parsed = Schema.of((json.dumps(reader),))
    batch = pyarrow.RecordBatch.from_arrays([pyarrow.array(values, pyarrow.binary())], ["value"])
    kind = spark_type(parsed, parsed.root)
    (made,) = avro.decoded([batch], "value", "into", 0, {b"": (json.dumps(writer),)}, parsed, kind, {})
    return [BAD if row is None else row["value"] for row in made.column(1).to_pylist()]
