"""Whether a sensitive column is one that records have."""

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from connector.config import parse
from connector.decode.own_columns import OwnColumns
from connector.engine.decoders import _Flow, _refuse_unknown
from sinks.errors import ConfigurationError


def of(*columns: str) -> Any:
    return SimpleNamespace(type=StructType([StructField(name, StringType()) for name in columns]))


@pytest.mark.parametrize(("column", "meant"), [("why", None), ("k", None), ("wyh", "why")])
def test_columns_of_a_schema_of_its_own_are_known_and_no_others(column: str, meant: str | None) -> None:
    config = parse(
        {
            "name": "shop",
            "source": {"topics": ["events"], "kafka": {"bootstrap.servers": "b:1"}},
            "value": {"format": "json", "schema": "kind STRING, k STRING"},
            "sensitive": [column],
            "coordinator": {"path": "lake/_log"},
            "route": {
                "by": "kind",
                "sink": {"type": "delta_append", "path": "lake/{kind}"},
                "overrides": {"refund": {"value": {"schema": "kind STRING, why STRING"}}},
            },
        }
    )
    refund = OwnColumns("refund", of("kind", "why"), (), 0)
    flow = _Flow(config, of("kind", "k"), None, (refund,), ())
    if meant is None:
        _refuse_unknown(config, flow.known)
        return
    with pytest.raises(ConfigurationError, match=f"sensitive: {column} isn't a column of the records; did you mean"):
        _refuse_unknown(config, flow.known)
