"""The SQL of a message's key."""

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import types as T

from sinks.spark.sql import in_utc
from sinks.topic.messages import _key


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (T.TimestampType(), in_utc("`at`")),  # the session's text of an instant is that of another one, in autumn
        (T.TimestampNTZType(), "`at`"),
        (T.DateType(), "`at`"),
        (T.StringType(), "`at`"),
    ],
)
def test_the_text_of_a_key_is_the_same_in_sessions_of_all_zones(kind: T.DataType, text: str) -> None:
    rows: Any = SimpleNamespace(schema=T.StructType([T.StructField("at", kind)]))
    assert _key(rows, ["at"]) == f"CAST(try_cast({text} AS STRING) AS BINARY)"
