"""A schema with the fields that only records have, and one with names as a text spells them."""

import random
import re
from decimal import Decimal

import pytest
from pyspark.sql.types import ArrayType, DataType, IntegerType, MapType, StringType, StructField, StructType

from connector.decode.json_names import spelled_as
from connector.decode.json_new_fields import LONG, as_ddl, grown


def of(**fields: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields.items()])


TEXT, WHOLE = StringType(), IntegerType()
KNOWN = of(k=TEXT, at=of(city=TEXT), stops=ArrayType(of(city=TEXT)), by_name=MapType(TEXT, of(city=TEXT)))


def test_new_fields_are_added_where_they_are() -> None:
    found = of(
        At=of(City=WHOLE, zip=TEXT), stops=ArrayType(of(zip=TEXT)), by_name=of(a=of(x=TEXT), b=of(y=TEXT)), n=WHOLE
    )
    assert grown(KNOWN, found) == of(
        k=TEXT, at=of(city=TEXT, zip=TEXT), stops=ArrayType(of(city=TEXT, zip=TEXT)),
        by_name=MapType(TEXT, of(city=TEXT, x=TEXT, y=TEXT)), n=WHOLE,
    )  # fmt: skip
    assert grown(KNOWN, of(at=TEXT, k=of(x=TEXT))) == KNOWN


def test_what_is_not_taken_is_not_added() -> None:
    refused = []

    def takes(field: StructField, at: tuple[str, ...]) -> bool:
        refused.append((*at, field.name))
        return False

    assert grown(KNOWN, of(at=of(zip=TEXT), n=WHOLE), takes) == KNOWN
    assert refused == [("at", "zip"), ("n",)]


def test_names_are_spelled_as_a_text_has_them_in_the_same_order() -> None:
    assert spelled_as(KNOWN, '[["At"],["at","CITY"],["by_name","City"]]') == of(
        k=TEXT, At=of(CITY=TEXT), stops=ArrayType(of(city=TEXT)), by_name=MapType(TEXT, of(City=TEXT))
    )
    assert spelled_as(KNOWN, "[]") == KNOWN


@pytest.mark.parametrize(
    ("variant", "fractions", "wholes", "ddl"),
    [
        ("DECIMAL(15,2)", True, True, "DOUBLE"),
        ("DECIMAL(21,11)", True, False, "STRING"),
        ("DECIMAL(16,4)", False, True, "DOUBLE"),  # no number of it is so long: 100000000000.0 and 0.0001
        ("DECIMAL(21,1)", False, False, "DOUBLE"),  # 5 and 1.5
        ("DECIMAL(21,1)", False, True, "STRING"),  # 9007199254740993 and 1.5
        ("DECIMAL(21,1)", True, False, "STRING"),
        ("DECIMAL(22,0)", True, True, "DECIMAL(38,0)"),
        ("DOUBLE", False, False, "DOUBLE"),  # 1e3
        ("DOUBLE", True, False, "STRING"),
        ("DOUBLE", False, True, "STRING"),
        ("BIGINT", True, True, "BIGINT"),
        ("OBJECT<`DECIMAL(9,1)`: ARRAY<DECIMAL(30,9)>, DOUBLE: VOID, VOID: OBJECT<>>", True, False,
         "STRUCT<`DECIMAL(9,1)`: ARRAY<STRING>, DOUBLE: STRING, VOID: STRING>"),
    ],
)  # fmt: skip
def test_a_number_that_no_double_holds_becomes_a_text(variant: str, fractions: bool, wholes: bool, ddl: str) -> None:
    assert as_ddl(variant, fractions=fractions, wholes=wholes) == ddl


@pytest.mark.parametrize(
    ("text", "fractions", "wholes"),
    [
        ('{"a": 1234567890.12345678901}', True, False),
        ('{"a": 0.12345678901234567}', True, False),
        ('{"a": 1234567890123456e3}', True, False),
        ('{"a": 1.234567890123456e3}', True, False),
        ('{"a": 1.5, "b": [123456789012.345]}', False, False),
        ('{"a": 1793500000000000, "at": "2026-11-27T10:00:00.123456"}', False, False),
        ('{"a": 9007199254740993}', False, True),
        ('{"a":-12345678901234567}', False, True),
        ('{"a": 1e300, "b": 1.5e-7}', False, False),
    ],
)
def test_a_text_shows_numbers_that_no_double_may_hold(text: str, fractions: bool, wholes: bool) -> None:
    assert {name: bool(re.search(pattern, text)) for name, pattern in LONG.items()} == {
        "fractions": fractions, "wholes": wholes
    }  # fmt: skip


def test_every_number_that_a_double_changes_shows_in_its_text() -> None:
    chance = random.Random(7)
    for _ in range(5_000):
        digits = str(chance.randrange(1, 10)) + "".join(chance.choices("0123456789", k=chance.randrange(24)))
        point = chance.randrange(len(digits) + 1)
        number = f"{digits[:point] or '0'}.{digits[point:]}" if point < len(digits) else digits
        number += chance.choice(["", "", "e5"])
        changed = Decimal(repr(float(number))) != Decimal(number)
        assert not changed or any(re.search(pattern, f'{{"a":{number}}}') for pattern in LONG.values()), number
