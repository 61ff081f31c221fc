"""A schema with the fields that only records have, and one with names as a text spells them."""

from pyspark.sql.types import ArrayType, DataType, IntegerType, MapType, StringType, StructField, StructType

from connector.decode.json_names import spelled_as
from connector.decode.json_new_fields import grown


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
