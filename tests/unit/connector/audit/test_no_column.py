"""Values of records for which the table has no column: by the SQL that finds them, without Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import ArrayType, DataType, IntegerType, LongType, MapType, StringType, StructField, StructType

from connector.audit.claim import At, Bounds
from connector.audit.no_column import given, values_without_column
from connector.audit.records import Records
from connector.audit.values import Default
from connector.config import PipelineConfig, parse

LONG, INT, TEXT = LongType(), IntegerType(), StringType()
REGISTRY = {"registry": {"url": "http://localhost:1"}}
CUT = [Bounds(At("t", 0), 0, 0, 9, 9, False)]


def columns(**kinds: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


AT = columns(city=TEXT, zip=INT)
MADE = columns(
    id=LONG, amount=INT, at=AT, many=ArrayType(columns(a=INT)), by=MapType(TEXT, columns(c=INT))
)  # fmt: skip


def pipeline(format: str = "avro", **changes: Any) -> PipelineConfig:
    return parse(
        {
            "name": "p", "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "localhost:1"}},
            "value": {"format": format, **REGISTRY}, "sinks": [{"type": "delta_append", "path": "/tmp/t"}], **changes,
        }
    )  # fmt: skip


def asked(config: PipelineConfig, *missing: str, found: bool = True) -> tuple[list[str], list]:
    """What is said, and the SQL that was asked. ``found``: whether records have the values."""
    sql: list[str] = []
    frame: Any = SimpleNamespace(first=lambda: {f"g{index}": found for index in range(len(missing))})
    frame.where = lambda _: frame
    frame.selectExpr = lambda *texts: sql.extend(texts) or frame
    return values_without_column(config, Records(frame, MADE), missing, CUT, None), sql


@pytest.mark.parametrize("format", ["avro", "protobuf", "json"])
@pytest.mark.parametrize("says", [None, "fail"])
def test_a_value_without_a_column_is_not_exact_and_the_way_out_is_named(format: str, says: Any) -> None:
    (told,), _ = asked(pipeline(format, on_new_column=says), "amount", "at.zip")
    assert told.startswith("Records have values in these fields, for which the table has no column: amount, at.zip.")
    assert "--set on_new_column=ignore" in told


def test_a_schema_that_has_grown_without_values_in_the_claim_says_nothing() -> None:
    assert asked(pipeline(), "amount", found=False)[0] == []


def test_nothing_is_asked_where_a_run_leaves_fields_out_or_a_record_may_be_a_dead_letter() -> None:
    for config in (pipeline(on_new_column="ignore"), pipeline(on_new_column="add")):
        assert asked(config, "amount") == ([], [])
    letters = {"on_bad_record": "dead_letter", "dead_letters": {"topic": "letters"}}
    assert asked(pipeline(**letters), "amount") == ([], [])
    assert asked(pipeline()) == ([], [])


@pytest.mark.parametrize(
    ("path", "zeros", "sql"),
    [
        ("amount", False, "(`amount` IS NOT NULL)"),
        ("amount", True, "coalesce(`amount` <> 0, false)"),
        ("at.zip", False, "(`at`.`zip` IS NOT NULL)"),
        ("at", True, "(coalesce(`at`.`city` <> '', false) OR coalesce(`at`.`zip` <> 0, false))"),
        ("many", True, "coalesce(size(`many`) > 0, false)"),
        ("many.element.a", False, "coalesce(exists(`many`, each0 -> (each0.`a` IS NOT NULL)), false)"),
        ("by.value.c", True, "coalesce(exists(map_values(`by`), each0 -> coalesce(each0.`c` <> 0, false)), false)"),
        ("none", False, None),
    ],
)
def test_which_values_count(path: str, zeros: bool, sql: str | None) -> None:
    """An absent field of Protobuf is read as zero."""
    assert given(Records(SimpleNamespace(), MADE), path, zeros=zeros) == sql  # type: ignore[arg-type]


def test_the_default_of_a_field_that_a_record_lacks_is_no_value() -> None:
    nothing: Any = SimpleNamespace()
    made = Records(nothing, MADE, defaults={"at.zip": Default("at.zip", "{}"), "id": Default("id", "{}")})
    lacks = "arrays_overlap(coalesce(lakelock_lacks, array()), array('at.zip'))"
    assert given(made, "at.zip", zeros=False) == f"((`at`.`zip` IS NOT NULL) AND NOT {lacks})"
    assert given(made, "at", zeros=False) == "(`at` IS NOT NULL)"  # its other fields may have values
    assert given(made, "amount", zeros=False) == "(`amount` IS NOT NULL)"
