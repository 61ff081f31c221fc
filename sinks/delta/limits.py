"""The limits that a table sets to its rows, if a person created or changed it: partitions, lengths, NOT NULL, CHECK.

``of_values`` finds limits on values of single records, which are checked before any write. A row that several records
make is checked later: by Delta, and in two-phase commit by ``refuse_broken`` before the decision, because a decided
epoch must be committed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sinks.delta.table import DeltaTable, Detail
from sinks.delta.upsert_rule import key_sql
from sinks.errors import BadRecord
from sinks.spark.limits import Limit, of_length, of_partition
from sinks.spark.row_errors import raise_sql
from sinks.spark.sql import identifier, literal
from sinks.spark.types import needs_column_mapping

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

HINT = "Have the producer or `transform:` give another value, or drop the constraint with ALTER TABLE."
_WRITTEN = "__CHAR_VARCHAR_TYPE_STRING"
"""The metadata in which Spark keeps a column's declared CHAR or VARCHAR type. Queries see a STRING."""
_CHECK = "delta.constraints."


def faults(detail: Detail, table: StructType, rows: StructType, carried: Sequence[str], *, merged: bool) -> list[str]:
    """The reasons why the table can't hold some rows of the pipeline as they are.

    ``table``: the table's schema; ``rows``: the columns that the pipeline fills; ``carried``: those of them that hold
    values of records; ``merged``: whether the pipeline changes existing rows.
    """
    from pyspark.sql.types import BinaryType, StringType

    reasons = []
    if merged and detail.properties.get("delta.appendOnly", "false").lower() == "true":
        reasons.append("it has delta.appendOnly = true, and the pipeline changes rows")
    filled, as_they_are = _by_lower_case(rows.names), _by_lower_case(carried)
    there = _by_lower_case(table.names)
    for name in rows.names:
        if name.lower() not in there and needs_column_mapping(name) and detail.column_mapping == "none":
            reasons.append(f"column {name} has a name that needs delta.columnMapping.mode = 'name'")
    for field in table:
        if field.name.lower() not in filled:
            continue
        written = field.metadata.get(_WRITTEN, "")
        if written and not of_length(field.name, written):
            reasons.append(f"column {field.name} is {written.upper()}, which pads or cuts text: make it a STRING")
        if field.name.lower() not in _by_lower_case(detail.partitions):
            continue
        if isinstance(field.dataType, BinaryType):
            reasons.append(f"it is partitioned by {field.name}, and a BINARY isn't the name of a folder")
        elif isinstance(field.dataType, StringType) and field.name.lower() not in as_they_are:
            reasons.append(f"it is partitioned by {field.name}, which the pipeline works out: it may be the empty text")
    return reasons


def of_values(detail: Detail, table: StructType, rows: StructType, carried: Sequence[str]) -> list[Limit]:
    """The limits on values of records: the lengths and partition values that the table can't hold.

    ``table``: the table's schema; ``rows``: the rows' schema; ``carried``: their columns with values of records.
    """
    limits: list[Limit] = []
    here, partitions = _by_lower_case(carried), _by_lower_case(detail.partitions)
    for field in table:
        column = here.get(field.name.lower())
        if column is None:
            continue
        if field.name.lower() in partitions:
            # With column mapping, Delta names the folder itself, with 40 characters.
            folder = field.name if detail.column_mapping == "none" else max(field.name, "_" * 40, key=len)
            limits += of_partition(column, rows[column].dataType, folder=folder)
        limits += of_length(column, field.metadata.get(_WRITTEN, ""))
    return limits


def of_rows(detail: Detail, rows: DataFrame, table: StructType | None = None) -> list[Limit]:
    """The limits on whole rows: NOT NULL and CHECK. A CHECK on columns that ``rows`` lack is left out.

    ``table``: the schema with NOT NULL, None for that of ``rows``.
    """
    from pyspark.errors import AnalysisException

    here = _by_lower_case(rows.columns)
    limits = [
        Limit(null, f"its {path} is null, and NOT NULL in the table")
        for field in table or rows.schema
        if field.name.lower() in here
        for path, null in _nulls(here[field.name.lower()], identifier(field.name), field.dataType, field.nullable)
    ]
    for name, condition in checks(detail).items():
        try:
            _ = rows.selectExpr(f"({condition}) AS met").schema
        except AnalysisException:
            continue
        limits.append(
            Limit(f"NOT coalesce(({condition}), false)", f"breaks the table's constraint {name}: {condition}")
        )
    return limits


def demands(table: DeltaTable) -> list[Limit]:
    """The table's NOT NULL and CHECK limits. Most tables have none."""
    detail = table.detail()
    return of_rows(detail, table.spark.table(table.sql)) if detail is not None else []


def checks(detail: Detail) -> Mapping[str, str]:
    """The table's CHECK constraints by name."""
    return {
        name.removeprefix(_CHECK): condition for name, condition in detail.properties.items() if name.startswith(_CHECK)
    }


def _nulls(path: str, value: str, kind: DataType, nullable: bool) -> list[tuple[str, str]]:
    """The columns and fields that must not be NULL. Each comes with SQL that is true if the value is NULL.

    ``path``: the column or field; ``value``: its SQL; ``kind``: its type.
    """
    from pyspark.sql.types import StructType

    nulls = [] if nullable else [(path, f"{value} IS NULL")]
    for field in kind if isinstance(kind, StructType) else ():
        inner = _nulls(f"{path}.{field.name}", f"{value}.{identifier(field.name)}", field.dataType, field.nullable)
        nulls += [(name, f"({value} IS NOT NULL AND {null})") for name, null in inner]
    return nulls


def refuse_broken(rows: DataFrame, limits: Sequence[Limit], key: Sequence[str]) -> None:
    """Fail if a row breaks one of the limits. The error names the limit and the row's ``key`` columns."""
    whens = (
        f"WHEN {limit.broken} THEN {raise_sql('broken', key=key_sql(key), detail=literal(limit.detail))}"
        for limit in limits
    )
    if limits:
        rows.selectExpr(f"count(CASE {' '.join(whens)} END)").collect()


def row_refused(error: BaseException) -> BadRecord | None:
    """The BadRecord for an error in which Delta refuses a row. None for other errors."""
    refusals = ("DELTA_NOT_NULL_CONSTRAINT_VIOLATED", "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES")
    lines = (line.strip() for line in str(error).splitlines())
    said = next((line for line in lines if any(refusal in line for refusal in refusals)), None)
    if said is None:
        return None
    return BadRecord(
        f"A row would break a constraint of its table. Nothing of this epoch was written. Delta says: {said}", hint=HINT
    )


def _by_lower_case(names: Sequence[str]) -> Mapping[str, str]:
    return {name.lower(): name for name in names}
