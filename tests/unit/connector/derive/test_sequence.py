"""Which values are no place in an order: the pipeline's SQL and the auditor's, run in SQLite."""

from __future__ import annotations

import itertools
import json
import re
import sqlite3

import pytest
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from connector.audit.refused import whole
from connector.derive.sequence import has_null, named_twice

STEP = StructType([StructField("n", LongType()), StructField("of", StringType())])
SEQUENCE = StructType([StructField("day", LongType()), StructField("step", STEP)])


STEPS = [None, *({"n": n, "of": of} for n, of in itertools.product((None, 1), (None, "a")))]
SEQUENCES = [None, *({"day": day, "step": step} for day, step in itertools.product((None, 1), STEPS))]
WHOLE = [{"day": 1, "step": {"n": 1, "of": "a"}}]


def in_sqlite(sql: str) -> str:
    """SQLite has no structs: they are JSON there."""
    return re.sub(r"value((?:\.`\w+`)+)", lambda path: f"json_extract(value, '${path[1].replace('`', '')}')", sql)


def test_a_struct_is_a_place_only_if_nothing_in_it_is_null() -> None:
    run = sqlite3.connect(":memory:").execute
    lacks, there = in_sqlite(has_null("value", SEQUENCE)), in_sqlite(whole("value", SEQUENCE))
    values = [value and json.dumps(value) for value in SEQUENCES]
    found = [run(f"SELECT {lacks}, {there} FROM (SELECT ? AS value)", [value]).fetchone() for value in values]
    assert [value for value, (no, _) in zip(SEQUENCES, found, strict=True) if not no] == WHOLE
    assert all(no + yes == 1 for no, yes in found)


def test_an_array_is_judged_by_its_elements() -> None:
    assert has_null("at", ArrayType(LongType())) == "at IS NULL OR coalesce(exists(at, each -> each IS NULL), false)"


@pytest.mark.parametrize(
    ("kind", "twice"),
    [
        (LongType(), None),
        (SEQUENCE, None),
        (StructType([StructField("n", LongType()), StructField("N", LongType())]), "n"),
        (ArrayType(StructType([StructField("at", StructType([*STEP, *STEP]))])), "n"),
    ],
)
def test_fields_of_one_name_are_found(kind: StructType, twice: str | None) -> None:
    assert named_twice(kind) == twice
