"""Generated columns are read from the log, and only if the table may have some."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import types as T

from sinks.delta.detail import Detail, with_constraints, with_generated

COLUMNS = T.StructType(
    [
        T.StructField("at", T.TimestampType()),
        T.StructField("day", T.DateType(), metadata={"delta.generationExpression": "CAST(at AS DATE)"}),
        T.StructField("note", T.StringType(), metadata={"CURRENT_DEFAULT": "'new'"}),
        T.StructField("id", T.LongType(), metadata={"delta.identity.start": 1}),
        T.StructField(
            "own", T.LongType(), metadata={"delta.identity.start": 1, "delta.identity.allowExplicitInsert": True}
        ),
    ]
)


def never() -> Any:
    raise AssertionError("the log was read without need")


@pytest.mark.parametrize(
    "properties",
    [
        {"delta.minWriterVersion": "4"},
        {"delta.minWriterVersion": "7", "delta.feature.generatedColumns": "supported"},
        {"delta.minWriterVersion": "7", "delta.feature.identityColumns": "supported"},
        {"delta.minWriterVersion": "7", "delta.feature.allowColumnDefaults": "supported"},
    ],
)
def test_what_delta_generates_is_known_from_the_log(properties: dict[str, str]) -> None:
    detail = with_generated(Detail("t", properties), lambda: COLUMNS)
    assert (detail.generated, list(detail.identities)) == ({"day": "CAST(at AS DATE)"}, ["id"])
    assert detail.defaults == {"note": "'new'"}
    assert detail.numbered == ["id", "own"]
    assert with_generated(Detail("t", properties), lambda: None).generated == {}


@pytest.mark.parametrize(
    "properties",
    [{}, {"delta.minWriterVersion": "3"}, {"delta.minWriterVersion": "7", "delta.feature.variantType": "x"}],
)
def test_the_log_of_most_tables_is_not_read(properties: dict[str, str]) -> None:
    assert with_generated(Detail("t", properties), never).generated == {}


def test_a_constraint_that_spark_hides_is_read_all_the_same() -> None:
    hidden = "*********(redacted)"
    shown = {"delta.constraints.here": hidden, "delta.constraints.small": "n < 100", "owner.url": hidden, "x": "1"}
    stored = {"delta.constraints.here": "url <> ''", "delta.constraints.small": "n < 100", "owner.url": "u", "x": "1"}
    properties = with_constraints(shown, stored)
    assert Detail("t", properties).checks == {"here": "url <> ''", "small": "n < 100"}
    assert properties["owner.url"] == hidden, "what isn't a rule may be a secret"
