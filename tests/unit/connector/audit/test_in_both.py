"""What of the records' columns and of a table's the auditor compares: what a run takes, it takes too."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

from connector.audit.compare import _in_both
from connector.audit.formats import Form, Forms
from connector.audit.in_both import _fits, brought, in_the_order_of
from connector.audit.in_both import in_both as both
from connector.audit.records import Records
from connector.config import parse
from sinks.errors import SchemaMismatch

INT, LONG, TEXT = IntegerType(), LongType(), StringType()


def columns(**kinds: Any) -> StructType:
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        (INT, LONG),
        (ShortType(), INT),
        (FloatType(), DoubleType()),
        (DecimalType(10, 2), DecimalType(12, 4)),
        (DecimalType(10, 2), DecimalType(12, 2)),
    ],
)
def test_what_loses_nothing(narrow: DataType, wide: DataType) -> None:
    assert _fits(narrow, wide)
    assert not _fits(wide, narrow)


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        (INT, DoubleType()),
        (LONG, FloatType()),
        (TEXT, LONG),
        (LONG, TEXT),
        (DecimalType(10, 2), DecimalType(10, 4)),
        (DecimalType(12, 4), DecimalType(14, 2)),
    ],
)
def test_what_stays_different(narrow: DataType, wide: DataType) -> None:
    assert not _fits(narrow, wide)


AT = columns(zip=INT, city=TEXT, x=TEXT)


def test_fields_are_found_by_name_at_any_depth_and_numbers_are_as_wide_as_they_need() -> None:
    made = columns(id=LONG, at=AT, n=INT, many=ArrayType(columns(a=INT, b=INT)), by=MapType(TEXT, columns(c=INT)))
    there = columns(
        By=MapType(TEXT, columns(d=INT, c=LONG)), many=ArrayType(columns(B=LONG)), n=LONG,
        at=columns(City=TEXT, zip=INT), id=INT, more=TEXT, _offset=LONG,
    )  # fmt: skip
    found = both(made.fields, there, {"_offset"})
    assert StructType(found.columns) == columns(
        id=LONG, at=columns(zip=INT, city=TEXT), n=LONG, many=ArrayType(columns(b=LONG)),
        by=MapType(TEXT, columns(c=LONG)),
    )  # fmt: skip
    assert found.only_made == ["at.x", "many.element.a"]
    assert found.only_there == ["by.value.d", "more"]
    assert found.other_types == []


def test_what_is_no_wider_number_stays_another_type() -> None:
    found = both(columns(a=INT, b=columns(c=TEXT)).fields, columns(a=TEXT, b=columns(c=LONG)))
    assert found.other_types == [
        "column a is string in the table, int in the pipeline",
        "column b.c is bigint in the table, string in the pipeline",
    ]


def test_a_float_of_the_table_is_compared_as_a_float() -> None:
    """The DOUBLE that a record's digits make isn't the FLOAT that a run has made of them."""
    float_, double = FloatType(), DoubleType()
    assert both(columns(x=double).fields, columns(x=float_)).columns[0].dataType == float_
    assert both(columns(x=float_).fields, columns(x=double)).columns[0].dataType == double


def test_a_value_is_brought_to_the_fields_in_common() -> None:
    assert brought("`at`", AT, AT) == "`at`"
    assert brought("`n`", INT, LONG) == "CAST(`n` AS bigint)"
    assert brought("`at`", columns(Zip=INT, city=TEXT), columns(city=TEXT, zip=LONG)) == (
        "CASE WHEN `at` IS NOT NULL THEN named_struct('city', `at`.`city`, 'zip', CAST(`at`.`Zip` AS bigint)) END"
    )
    assert brought("m", MapType(TEXT, ArrayType(INT)), MapType(TEXT, ArrayType(LONG))) == (
        "transform_values(m, (key0, each0) -> transform(each0, each1 -> CAST(each1 AS bigint)))"
    )


def compared(made: StructType, there: StructType, **options: Any) -> tuple[list[str], list[str]]:
    """The columns that are compared, and the notes."""
    config = parse(
        {
            "name": "p", "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "localhost:1"}},
            "value": {"format": "json", "schema": "id BIGINT"}, "sinks": [{"type": "delta_append", "path": "/tmp/t"}],
            **options,
        }
    )  # fmt: skip
    more: list[str] = []
    rows: Any = SimpleNamespace(schema=there, columns=there.names, selectExpr=lambda *names: more.extend(names))
    records = Records(rows, made)
    found, _, notes, _ = _in_both(config, records, rows, Forms(Form(made), None, False, None))
    assert more == [] or (more[0] == "*" and options["on_new_column"] == "add")
    return found.columns.names, [*notes, *more[1:]]


def test_a_column_that_the_table_lacks_is_named_where_a_run_goes_on_without_it() -> None:
    made, there = columns(id=LONG, b=TEXT), columns(id=LONG, own=TEXT, _offset=LONG)
    own = "The records say nothing of these columns of the table: own."
    assert compared(made, there, on_new_column="ignore") == (
        ["id"],
        [own, "The table has no column for these fields, which aren't compared: b."],
    )
    for says in (None, "fail"):
        with pytest.raises(SchemaMismatch, match=r"with the topic: the table has no column b\."):
            compared(made, there, on_new_column=says)


def test_a_column_that_a_run_would_have_added_is_null_in_the_table() -> None:
    """With the first record that has a value there. A row of such a record differs from it."""
    made = columns(id=LONG, b=TEXT, at=columns(zip=INT, city=TEXT))
    assert compared(made, columns(id=LONG, at=columns(city=TEXT)), on_new_column="add") == (
        ["id", "b", "at"],
        ["CAST(NULL AS string) AS `b`"],
    )
    found = both(made.fields, columns(id=LONG, at=columns(city=TEXT)), adds=True)
    assert StructType(found.columns) == made
    assert brought("at", columns(city=TEXT), columns(zip=INT, city=TEXT)) == (
        "CASE WHEN at IS NOT NULL THEN named_struct('zip', CAST(NULL AS int), 'city', at.`city`) END"
    )


def test_a_table_without_the_key_or_without_any_column_cannot_be_compared() -> None:
    upsert = {"type": "delta_upsert", "path": "/tmp/t", "key": "id"}
    with pytest.raises(SchemaMismatch, match=r"the table has no column id\."):
        compared(columns(id=LONG, b=TEXT), columns(b=TEXT), on_new_column="ignore", sinks=[upsert])
    with pytest.raises(SchemaMismatch, match="no column in common"):
        compared(columns(id=LONG), columns(b=TEXT), on_new_column="ignore")


UPSERT: dict[str, Any] = {"type": "delta_upsert", "path": "/tmp/t", "key": "id"}


@pytest.mark.parametrize(
    ("sink", "there", "told"),
    [
        ({**UPSERT, "except_column_list": ["b"]}, {"b": TEXT}, "The file leaves out these columns of"),
        ({**UPSERT, "column_list": ["id"]}, {"b": TEXT}, "The file leaves out these columns of"),
        ({**UPSERT, "deletes": "soft"}, {"b": TEXT, "_deleted": INT, "_deleted_by": INT}, ": _deleted_by."),
        (UPSERT, {"b": TEXT, "_sequence": INT, "_columns": INT}, ": _sequence, _columns."),
        ({**UPSERT, "sequence_by": "b"}, {"b": TEXT, "_sequence": INT}, None),
        ({**UPSERT, "type": "delta_history"}, {"b": TEXT, "__START_AT": INT, "__END_AT": INT, "_state": INT},
         ": _state."),
        ({**UPSERT, "type": "delta_history", "stored_as_scd_type": "bitemporal", "sequence_by": "b"},
         {"b": TEXT, "__START_AT": TEXT, "__END_AT": TEXT, "__SYSTEM_START_AT": INT, "__SYSTEM_END_AT": INT}, None),
        ({"type": "delta_append", "path": "/tmp/t"}, {"b": TEXT, "_key": TEXT, "_headers": TEXT}, ": _key, _headers."),
        ({"type": "delta_aggregate", "path": "/tmp/t", "group_by": ["id"], "aggregates": {"n": "count(*)"}},
         {"n": INT, "old": INT, "_state": TEXT}, "of the table: old."),
    ],
)  # fmt: skip
def test_every_column_that_is_not_compared_is_named(sink: Any, there: dict[str, Any], told: str | None) -> None:
    all_there = columns(id=LONG, **there, _topic=TEXT, _partition=INT, _offset=LONG, _timestamp=LONG)
    for more in ({}, {"transform": "SELECT id, b FROM records"}):
        _, notes = compared(columns(id=LONG, b=TEXT), all_there, sinks=[sink], **more)
        assert told in notes[0] if told is not None else notes == []


def test_rows_of_one_record_are_ordered_by_the_columns_that_the_table_lacks_too() -> None:
    """As a run orders them, which leaves these columns out only when it writes."""
    config = parse(
        {
            "name": "p", "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "localhost:1"}},
            "value": {"format": "json", "schema": "id BIGINT"}, "on_new_column": "ignore",
            "sinks": [{**UPSERT, "except_column_list": ["no"]}],
        }
    )  # fmt: skip
    made, rows = columns(id=LONG, no=LONG, more=TEXT, b=TEXT), columns(id=LONG, b=TEXT)
    table: Any = SimpleNamespace(schema=rows, columns=rows.names)
    found, _, _, _ = _in_both(config, Records(table, made), table, Forms(Form(made), None, False, None))
    assert found.tied == ["id", "more", "b"]


@pytest.mark.parametrize(
    ("kind", "says"),
    [("delta_upsert", "ignore"), ("delta_upsert", "add"), ("delta_upsert", None), ("delta_history", "ignore")],
)
def test_a_key_is_compared_by_all_its_fields_or_not_at_all(kind: str, says: Any) -> None:
    less, more = columns(id=LONG), columns(id=LONG, Region=TEXT)
    sink = {"type": kind, "path": "/tmp/t", "key": ["_key"], "sequence_by": "at.id"}
    options: Any = {"sinks": [sink], "key": {"format": "json", "schema": "id BIGINT"}}
    for made, there, told in (
        (more, less, r"the table has no _key\.Region, a part of the key"),
        (less, more, r"the records have no _key\.Region, a part of the key"),
    ):
        with pytest.raises(SchemaMismatch, match=told):
            compared(columns(_key=made, at=less), columns(_Key=there, at=less), on_new_column=says, **options)
        same = columns(_key=made, at=more), columns(_key=made, at=less)
        assert compared(*same, on_new_column="ignore", **options)[0] == ["_key", "at"]


def test_the_fields_of_a_group_may_come_in_another_order() -> None:
    made = columns(at=columns(a=INT, b=TEXT), more=columns(a=INT), wide=columns(a=LONG, b=TEXT), same=columns(a=INT))
    there = columns(
        At=columns(B=TEXT, a=INT), more=columns(b=TEXT, a=INT), wide=columns(b=TEXT, a=INT), same=columns(a=INT)
    )
    changed: dict[str, Any] = {}
    rows: Any = SimpleNamespace(schema=there, withColumns=changed.update)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pyspark.sql.functions.expr", lambda sql: sql)
        in_the_order_of(made, rows, ["at", "more", "wide", "same"])
        assert changed == {"At": "CASE WHEN `At` IS NOT NULL THEN named_struct('a', `At`.`a`, 'b', `At`.`B`) END"}
        assert in_the_order_of(made, rows, ["same"]) is rows
        assert in_the_order_of(made, rows, []) is rows, "a column that says no group"
