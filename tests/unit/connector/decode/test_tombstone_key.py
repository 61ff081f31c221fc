"""A key column of a tombstone has the type that the value's column has."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import types as T

from connector.audit import exact_json
from connector.audit.exact_json import columns_of
from connector.decode.tombstone_key import _from_json, of_tombstone
from sinks.errors import ConfigurationError

DATE_AND_TIME = T.TimestampType()
BY_ITS_TEXT = (T.LongType(), T.DecimalType(20, 0), T.BooleanType(), T.DateType())
NUMBERS = (T.ByteType(), T.IntegerType(), T.LongType(), T.DecimalType(20, 2), T.FloatType(), T.DoubleType())


def of_key(kind: T.DataType, wanted: T.DataType, *, struct: bool) -> str:
    """SQL of the column ``id``, whose value is decoded as ``read``."""
    value: Any = SimpleNamespace(type=T.StructType([T.StructField("id", wanted), T.StructField("n", T.LongType())]))
    sent: Any = SimpleNamespace(type=T.StructType([T.StructField("id", kind)]) if struct else kind)
    return of_tombstone(value, sent, ["id"], "read", "key")["id"]


@pytest.mark.parametrize("struct", [True, False])
def test_a_key_of_another_type_is_cast_to_the_values(struct: bool) -> None:
    """Spark would bring both to one type: of a STRING column and a BIGINT key it would make numbers, 7 of 007."""
    found = "read.`id`" if struct else "read"
    for kind in (*BY_ITS_TEXT, T.StringType(), DATE_AND_TIME, T.ArrayType(T.LongType())):
        assert of_key(kind, kind, struct=struct) == found
    for kind in BY_ITS_TEXT:
        assert of_key(kind, T.StringType(), struct=struct) == f"try_cast({found} AS STRING)"
        assert f"try_cast({found} AS" in of_key(T.StringType(), kind, struct=struct)
    for kind in NUMBERS:
        for wanted in NUMBERS:
            back = f"try_cast(try_cast({found} AS {wanted.simpleString()}) AS {kind.simpleString()}) = {found}"
            assert kind == wanted or back in of_key(kind, wanted, struct=struct)


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        (T.DateType(), DATE_AND_TIME),
        (DATE_AND_TIME, T.DateType()),
        (DATE_AND_TIME, T.TimestampNTZType()),
        (DATE_AND_TIME, T.StringType()),
        (T.BinaryType(), T.StringType()),
        (T.BooleanType(), T.LongType()),
        (T.ArrayType(T.IntegerType()), T.ArrayType(T.LongType())),
        (T.StringType(), T.ArrayType(T.LongType())),
    ],
)
def test_a_key_whose_type_has_no_exact_cast_is_refused(kind: T.DataType, wanted: T.DataType) -> None:
    with pytest.raises(ConfigurationError, match=r"key: the key column id is .* in Kafka's key and .* in the value"):
        of_key(kind, wanted, struct=True)
    assert exact_json.cast(kind, wanted, "read") is None, "the auditor has the same rule"


@pytest.mark.parametrize("name", ["_corrupt_record", "malformed", "id"])
def test_no_key_column_is_taken_for_the_text_that_is_malformed(name: str) -> None:
    """The session names it. A key column of that name would be null, and its delete refused."""
    kind = T.StructType([T.StructField(name, T.StringType())])
    for sql in (_from_json("t", kind), columns_of(kind, "t")):
        named = re.search(r"'columnNameOfCorruptRecord', '(\w+)'", sql)
        assert named is not None
        assert named[1] != name
