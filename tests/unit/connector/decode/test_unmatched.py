"""Declared fields that no record has."""

import json
from collections.abc import Sequence

import pytest
from pyspark.sql.types import ArrayType, IntegerType, MapType, StringType, StructField, StructType

from connector.decode.unmatched import IMAGES, WHOLE, Unmatched, has_objects, in_sample

CITY = StructType([StructField("city", StringType())])
ORDERS = StructType(
    [
        StructField("id", IntegerType()),
        StructField("customer", StringType()),
        StructField("address", CITY),
        StructField("stops", ArrayType(CITY)),
        StructField("by_name", MapType(StringType(), CITY)),
    ]
)


def order(**changes: object) -> dict[str, object]:
    there = {"city": "Zug"}
    whole = {"id": 1, "customer": "c", "address": there, "stops": [there], "by_name": {"a": there}} | changes
    return {name: value for name, value in whole.items() if value is not ...}


def found(*values: object, roots: Sequence[tuple[str, ...]] = WHOLE) -> list[Unmatched]:
    return in_sample([json.dumps(value).encode() for value in values], ORDERS, roots)


def test_records_that_have_all_fields_lack_none() -> None:
    assert found(order(), order(extra=1)) == []


def test_without_an_object_a_sample_shows_nothing() -> None:
    """An empty one neither: Kafka may not have answered in time."""
    assert not has_objects([], WHOLE)
    assert not has_objects([None, b"{", b"[1]"], WHOLE)
    assert not has_objects([b'{"op": "m"}'], IMAGES)
    assert has_objects([None, b"{}"], WHOLE)
    assert has_objects([b'{"before": {}}'], IMAGES)


def test_a_field_that_one_record_has_is_there_also_as_null() -> None:
    assert found(order(customer=...), order(customer=None)) == []


def test_a_misspelled_field_is_found_with_the_one_that_is_meant() -> None:
    (one,) = found(*[order(customer=..., custmer="c", colour="red")] * 3)
    assert (one.name, one.among, dict(one.unknown), one.meant) == (
        "customer",
        3,
        {"custmer": 3, "colour": 3},
        "custmer",
    )
    assert one.told("of this epoch") == (
        "no record of this epoch has a field customer; 3 have custmer, which the schema lacks. Did you mean custmer?"
    )


@pytest.mark.parametrize("spelled", ["customer_", "Cus-Tomer", "cust_omer"])
def test_another_convention_for_names_is_recognized(spelled: str) -> None:
    (one,) = found(order(customer=..., **{spelled: "c"}))
    assert one.meant == spelled


def test_without_a_similar_field_the_unknown_ones_are_listed() -> None:
    (one,) = found(order(customer=..., qty=1, at=2))
    assert one.told("of the 1 looked at").endswith("The fields that the schema lacks are at, qty.")


def test_the_case_of_names_does_not_matter() -> None:
    assert found(order(customer=..., CUSTOMER="c")) == []
    assert found(order(address=..., Address={"CITY": "Zug"}, stops=[{"City": "Zug"}])) == []


@pytest.mark.parametrize(
    ("changes", "name", "countable"),
    [
        ({"address": {"town": "Zug"}}, "address.city", True),
        ({"stops": [{"citty": "Zug"}, {"citty": "Bern"}]}, "stops.city", False),
        ({"by_name": {"a": {"town": "Zug"}}}, "by_name.city", False),
    ],
)
def test_fields_of_structs_are_looked_for_where_their_structs_are(
    changes: dict[str, object], name: str, countable: bool
) -> None:
    (one,) = found(order(**changes))
    assert (one.name, one.countable) == (name, countable)


def test_a_struct_that_is_never_there_has_no_fields_to_miss() -> None:
    assert found(order(address=None, stops=[], by_name={})) == []


def test_values_that_are_no_objects_say_nothing() -> None:
    assert in_sample([None, b"", b"[1]", b"{", b"\xff", b"7", b"[" * 100_000], ORDERS, WHOLE) == []


@pytest.mark.parametrize("wrap", [lambda event: event, lambda event: {"schema": {}, "payload": event}])
def test_the_fields_of_a_debezium_row_are_in_its_images(wrap) -> None:  # type: ignore[no-untyped-def]
    created = wrap({"op": "c", "before": None, "After": order(customer=..., custmer="c")})
    deleted = wrap({"op": "d", "before": order(customer=...), "after": None})
    (one,) = found(created, deleted, roots=IMAGES)
    assert (one.name, one.among, one.meant) == ("customer", 2, "custmer")
