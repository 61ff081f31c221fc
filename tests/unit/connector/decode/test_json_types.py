"""Which types JSON can hold: its names are text."""

from __future__ import annotations

import pytest
from pyspark.sql import types as T

from connector.decode.json_lossless import unreadable

OF_INT = T.MapType(T.IntegerType(), T.StringType())
OF_TEXT = T.MapType(T.StringType(), T.IntegerType())


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        (T.IntegerType(), None),
        (OF_TEXT, None),
        (OF_INT, OF_INT),
        (T.ArrayType(OF_INT), OF_INT),
        (T.MapType(T.StringType(), OF_INT), OF_INT),
        (T.StructType([T.StructField("a", OF_TEXT), T.StructField("b", T.ArrayType(OF_INT))]), OF_INT),
    ],
)
def test_a_map_whose_keys_are_no_text_is_found_wherever_it_is(kind: T.DataType, found: T.DataType | None) -> None:
    assert unreadable(kind) == found
