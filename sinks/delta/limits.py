"""The limits that a table sets to its rows, if a person created or changed it: partitions, lengths, NOT NULL, CHECK,
generated columns.

``of_records`` finds the limits on what single records hold. They are checked before any write. A row that several
records make is checked later: by Delta, and in two-phase commit by ``refuse_broken`` before the decision, because a
decided epoch must be committed.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sinks.delta.detail import Detail
from sinks.delta.table import DeltaTable
from sinks.delta.upsert_rule import key_sql
from sinks.spark.limits import Limit, of_length, of_partition, shows_an_hour_twice, told_of_hours
from sinks.spark.probes import probing
from sinks.spark.row_errors import raise_sql
from sinks.spark.sql import identifier, literal
from sinks.spark.types import needs_column_mapping, sql_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructField, StructType

_WRITTEN = "__CHAR_VARCHAR_TYPE_STRING"
"""The metadata in which Spark keeps a column's declared CHAR or VARCHAR type. Queries see a STRING."""


@dataclass(frozen=True)
class Records:
    """What a sink makes of its records, as far as the limits on single records depend on it."""

    carried: Sequence[str] = ()
    """The columns that hold values of the records, as they are."""
    updates: str = "true"
    """SQL over the records: whether a record's values become a row's. A delete's don't."""
    marked: Sequence[str] = ()
    """Of the carried columns, those that a row holds of a delete too."""
    patched: Sequence[tuple[str, str]] = ()
    """Of the carried columns, those that may keep the value of an earlier record. Each with SQL: whether a record has a
    value of its own."""


def faults(
    detail: Detail, table: StructType, rows: StructType, carried: Sequence[str], *, zone: str = "UTC"
) -> list[str]:
    """The reasons why the table can't hold some rows of the pipeline as they are.

    ``table``: the table's schema; ``rows``: the columns that the pipeline fills; ``carried``: those of them that hold
    values of records; ``zone``: the session's time zone.
    """
    from pyspark.sql.types import BinaryType, StringType, TimestampType

    reasons = []
    filled, as_they_are = _by_lower_case(rows.names), _by_lower_case(carried)
    there = _by_lower_case(table.names)
    hours_come_twice = bool(detail.partitions) and shows_an_hour_twice(zone)
    for name in rows.names:
        if name.lower() not in there and needs_column_mapping(name) and detail.column_mapping == "none":
            reasons.append(f"column {name} has a name that needs delta.columnMapping.mode = 'name'")
    for name in detail.identities:
        if name.lower() in filled:
            reasons.append(f"column {name} is GENERATED ALWAYS AS IDENTITY, and the pipeline has values for it")
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
            reasons.append(f"it is partitioned by {field.name}, which the pipeline works out: {_MAY_BE_EMPTY}")
        elif isinstance(field.dataType, TimestampType) and not as_they_are.get(field.name.lower()) and hours_come_twice:
            reasons.append(f"it is partitioned by {field.name}, {told_of_hours(zone)}")
    return reasons


def faults_of_sql(
    detail: Detail, table: DeltaTable, rows: StructType, records: Records, *, zone: str = "UTC"
) -> list[str]:
    """The reasons why the table's own SQL keeps it from taking rows of the pipeline: a rule that Spark can't read, or a
    partition column that Delta fills with what no single record tells.

    ``rows``: the columns that the pipeline fills; ``zone``: the session's time zone.
    """
    from pyspark.sql.types import BinaryType, StringType, TimestampType

    if not (detail.checks or detail.generated or detail.partitions):
        return []  # most tables; this one needn't be read
    held = table.spark.table(table.sql)
    rules = {f"constraint {name}": condition for name, condition in detail.checks.items()}
    rules |= {f"generated column {name}": made for name, made in detail.generated.items()}
    reasons = [f"its {rule} can't be read: {sql}" for rule, sql in rules.items() if not _fits(sql, held)]
    carried, patched = _by_lower_case(records.carried), {name.lower() for name, _ in records.patched}
    of_records = _without(held, {name for name in held.columns if name.lower() not in carried})
    for field, made in _made_partitions(detail, held.schema, rows.names):
        used = _columns_of(made, of_records) if _fits(made, of_records) else None
        # A row that keeps an older value of one column and takes a new one of another is made of two records.
        of_one = used is not None and (len(used) == 1 or patched.isdisjoint(name.lower() for name in used))
        if isinstance(field.dataType, BinaryType):
            reasons.append(f"it is partitioned by {field.name}, and a BINARY isn't the name of a folder")
        elif isinstance(field.dataType, StringType) and not of_one:
            reasons.append(f"it is partitioned by {field.name}, made of what the pipeline works out: {_MAY_BE_EMPTY}")
        elif isinstance(field.dataType, TimestampType) and not of_one and shows_an_hour_twice(zone):
            reasons.append(f"it is partitioned by {field.name}, {told_of_hours(zone)}")
    return reasons


_MAY_BE_EMPTY = "it may be the empty text"


def of_records(detail: Detail, table: StructType, rows: DataFrame, records: Records) -> list[Limit]:
    """The limits on single records: those on columns that hold values of one record.

    ``table``: the table's schema; ``rows``: the decoded records. Limits on columns that the sink works out, or that the
    pipeline doesn't fill, aren't among them.
    """
    if not detail.partitions and not told(detail, table):
        return []  # most tables; the rows needn't be analyzed
    carried = _by_lower_case(records.carried)
    values = rows.select(*(identifier(name) for name in rows.columns if name.lower() in carried))
    marked = _by_lower_case(records.marked)
    limits: list[Limit] = []
    named = bool(records.marked or records.patched)
    for limit in [*of_values(detail, table, values), *of_rows(detail, values, table, named=named)]:
        used = {name.lower() for name in limit.columns}
        of_deletes_too = bool(used) and used <= marked.keys()
        conditions = [f"({records.updates})"] if records.updates != "true" and not of_deletes_too else []
        # Where the record has no value, the row keeps an older one.
        conditions += [f"({there})" for name, there in records.patched if name.lower() in used]
        limits.append(replace(limit, broken=f"({' AND '.join([*conditions, f'({limit.broken})'])})"))
    return [*limits, *_of_made_partitions(detail, table, values, records)]


def _of_made_partitions(detail: Detail, table: StructType, rows: DataFrame, records: Records) -> list[Limit]:
    """The limits on partition columns that Delta fills: with what it generates from ``rows``, or with a default.

    ``table``: the table's schema; ``rows``: the columns that hold values of the records.
    """
    limits: list[Limit] = []
    marked = _by_lower_case(records.marked)
    for field, made in _made_partitions(detail, table, rows.columns):
        if not _fits(made, rows):
            continue
        used, value = _columns_of(made, rows), made
        if marked:
            # The row of a delete holds NULL where one of an update holds a value. A lambda's variable hides the column.
            of_delete = f"({made})"
            for name in used:
                if name.lower() not in marked:
                    null = f"CAST(NULL AS {sql_type(rows.schema[name].dataType)})"
                    of_delete = f"element_at(transform(array({null}), {identifier(name)} -> {of_delete}), 1)"
            value = f"IF({records.updates}, {made}, {of_delete})"
        value = f"CAST(({value}) AS {sql_type(field.dataType)})"
        for limit in of_partition(field.name, field.dataType, folder=_folder(detail, field.name), made=value):
            counts = "true" if marked else records.updates
            limits.append(replace(limit, broken=f"(({counts}) AND ({limit.broken}))", columns=tuple(used)))
    return limits


def _made_partitions(detail: Detail, table: StructType, filled: Sequence[str]) -> Iterator[tuple[StructField, str]]:
    """The partition columns that Delta fills, each with the SQL of its value. ``filled``: those that the pipeline has
    values for."""
    made = {name.lower(): sql for name, sql in {**detail.defaults, **detail.generated}.items()}
    delta_fills = _by_lower_case(detail.partitions).keys() & made.keys() - _by_lower_case(filled).keys()
    return ((field, made[field.name.lower()]) for field in table if field.name.lower() in delta_fills)


def _folder(detail: Detail, column: str) -> str:
    """What the folders of a partition column are called."""
    # With column mapping, Delta names the folder itself, with 40 characters.
    return column if detail.column_mapping == "none" else max(column, "_" * 40, key=len)


def of_values(detail: Detail, table: StructType, rows: DataFrame) -> list[Limit]:
    """The limits on single values: the lengths and partition values that the table can't hold.

    ``table``: the table's schema; ``rows``: rows with those of its columns that are to be checked.
    """
    limits: list[Limit] = []
    here, partitions = _by_lower_case(rows.columns), _by_lower_case(detail.partitions)
    for field in table:
        column = here.get(field.name.lower())
        if column is None:
            continue
        found: list[Limit] = []
        if field.name.lower() in partitions:
            found += of_partition(column, rows.schema[column].dataType, folder=_folder(detail, field.name))
        found += of_length(column, field.metadata.get(_WRITTEN, ""))
        limits += [replace(limit, columns=(column,)) for limit in found]
    return limits


def of_rows(detail: Detail, rows: DataFrame, table: StructType | None = None, *, named: bool = False) -> list[Limit]:
    """The limits on whole rows: NOT NULL, CHECK, and what generated columns have to hold. Those on columns that
    ``rows`` lack are left out.

    ``table``: the schema with NOT NULL, None for that of ``rows``; ``named``: whether the limits of conditions name
    their columns, which takes a few analyses for each.
    """
    here = _by_lower_case(rows.columns)
    limits = [
        Limit(null, f"its {path} is null, and NOT NULL in the table", (field.name,))
        for field in table or rows.schema
        if field.name.lower() in here
        for path, null in _nulls(here[field.name.lower()], identifier(field.name), field.dataType, field.nullable)
    ]
    rules = {
        condition: f"breaks the table's constraint {name}: {condition}" for name, condition in detail.checks.items()
    }
    rules |= {
        f"{identifier(name)} <=> ({made})": f"its {name} isn't what the table generates: {made}"
        for name, made in detail.generated.items()
    }
    for condition, detail_of in rules.items():
        if _fits(condition, rows):
            used = _columns_of(condition, rows) if named else ()
            limits.append(Limit(f"NOT coalesce(({condition}), false)", detail_of, tuple(used)))
    return limits


def _fits(condition: str, rows: DataFrame) -> bool:
    """Whether ``rows`` has the columns that a condition uses."""
    from pyspark.errors import AnalysisException

    try:
        with probing():
            _ = rows.selectExpr(f"({condition}) AS met").schema
    except AnalysisException:
        return False
    return True


def _columns_of(condition: str, rows: DataFrame) -> Sequence[str]:
    """The columns of ``rows`` that a condition uses: those that it can't do without. Parses no SQL."""
    text = condition.lower().replace("``", "`")
    named = [name for name in rows.columns if name.lower() in text]
    return [name for name in named if len(rows.columns) == 1 or not _fits(condition, _without(rows, {name}))]


def _without(rows: DataFrame, names: Container[str]) -> DataFrame:
    return rows.select(*(identifier(name) for name in rows.columns if name not in names))


def demands(table: DeltaTable, given: Sequence[str]) -> list[Limit]:
    """The limits on rows that a write may break: NOT NULL, CHECK, lengths. Most tables have none.

    ``given``: the columns that the pipeline fills. What the table demands of the numbers that Delta gives is left to
    Delta: nobody else knows them.
    """
    detail = table.detail()
    if detail is None:
        return []
    numbered = {name.lower() for name in detail.numbered} - _by_lower_case(given).keys()
    every = table.spark.table(table.sql)
    rows = _without(every, {name for name in every.columns if name.lower() in numbered})
    lengths = [limit for field in rows.schema for limit in of_length(field.name, field.metadata.get(_WRITTEN, ""))]
    return [*of_rows(detail, rows), *lengths]


def as_stored(rows: DataFrame, table: DeltaTable, given: Sequence[str]) -> DataFrame:
    """New rows as the table will hold them: with the default, or NULL, in columns that they lack, and with what Delta
    generates.

    ``given``: the columns that the pipeline fills.
    """
    detail = table.detail()
    filled = _by_lower_case(given)
    made = {name: sql for name, sql in (detail.generated if detail else {}).items() if name.lower() not in filled}
    defaults = {name.lower(): sql for name, sql in (detail.defaults if detail else {}).items()}
    base = _without(rows, {name for name in rows.columns if name.lower() in _by_lower_case(list(made))})
    here = _by_lower_case([*base.columns, *made])
    lacking = {
        field.name: f"CAST(({defaults.get(field.name.lower(), 'NULL')}) AS {sql_type(field.dataType)})"
        for field in table.schema
        if field.name.lower() not in here
    }
    return base.selectExpr("*", *(f"{sql} AS {identifier(name)}" for name, sql in {**lacking, **made}.items()))


def told(detail: Detail, table: StructType) -> list[str]:
    """The table's own rules in words, a line each. ``table``: its schema."""
    nulls = [path for field in table for path, _ in _nulls(field.name, "", field.dataType, field.nullable)]
    lines = [f"CHECK {name}: {condition}" for name, condition in sorted(detail.checks.items())]
    lines += [f"NOT NULL: {', '.join(nulls)}"] if nulls else []
    lines += [
        f"{field.name} is {field.metadata[_WRITTEN].upper()}"
        for field in table
        if of_length(field.name, field.metadata.get(_WRITTEN, ""))
    ]
    lines += [f"{name} is generated: {made}" for name, made in detail.generated.items()]
    return lines


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


def _by_lower_case(names: Sequence[str]) -> Mapping[str, str]:
    return {name.lower(): name for name in names}
