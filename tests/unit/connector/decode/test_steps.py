"""What steps make of columns, by names and types alone: wrong steps are found before Spark reads a record."""

from __future__ import annotations

import pytest
from pydantic import SecretStr
from pyspark.sql import types as T

from connector.config import Step
from connector.decode.mask import _view, hashed
from connector.decode.steps import planned
from sinks.errors import ConfigurationError

SALT = SecretStr("a salt of the tests")
POINT = T.StructType([T.StructField("lat", T.DoubleType()), T.StructField("note", T.StringType())])
KINDS: dict[str, T.DataType] = {
    "id": T.LongType(),
    "email": T.StringType(),
    "at": T.TimestampType(),
    "place": T.StructType([T.StructField("city", T.StringType()), T.StructField("geo", POINT)]),
    "tags": T.ArrayType(T.StringType()),
    "_op": T.StringType(),
    "_key": T.StringType(),
}


def columns(*steps: Step) -> dict[str, str]:
    """Column -> its type after the steps."""
    selections = [selection for selection in planned(steps, KINDS) if selection.where is None]
    return {made.name: made.kind.simpleString() for made in selections[-1].columns}


def test_steps_follow_each_other_and_columns_keep_their_places() -> None:
    made = columns(
        Step(flatten=("place",)), Step(filter="id > 0"), Step(rename={"place_city": "city", "_key": "source"}),
        Step(drop=("tags", "place_geo_note")), Step(mask=("email", "id"), salt=SALT),
        Step(cast={"place_geo_lat": "DECIMAL(9,6)"}), Step(header={"trace": "x-trace"}),
        Step(add={"region": "eu", "live": True, "version": 2, "share": 0.5}),
    )  # fmt: skip
    assert list(made.items()) == [
        ("id", "string"), ("email", "string"), ("at", "timestamp"), ("city", "string"),
        ("place_geo_lat", "decimal(9,6)"), ("_op", "string"), ("source", "string"), ("trace", "string"),
        ("region", "string"), ("live", "boolean"), ("version", "bigint"), ("share", "double"),
    ]  # fmt: skip


def test_two_columns_swap_their_names() -> None:
    assert columns(Step(rename={"id": "email", "email": "id"}))["email"] == "bigint"


@pytest.mark.parametrize(
    ("step", "says"),
    [
        (Step(drop=("emial",)), "emial isn't a column here; did you mean email?"),
        (Step(cast={"Email": "INT"}), "Email isn't a column here"),
        (Step(drop=("_op",)), "_op is a column of Lakelock's own"),
        (Step(mask=("_offset",), salt=SALT), "_offset is a column of Lakelock's own"),
        (Step(rename={"id": "email"}), "column email is there twice"),
        (Step(add={"EMAIL": "x"}), "column EMAIL is there twice"),
        (Step(header={"_Raw": "x"}), "_Raw is a column of Lakelock's own"),
        (Step(flatten=("email",)), "email is STRING, and has to be a STRUCT"),
        (Step(mask=("place",), salt=SALT), "whose values have no one text to hash"),
        (Step(mask=("at",), salt=SALT), "whose values have no one text to hash"),
        (Step(cast={"at": "STRING"}), "at is TIMESTAMP, and has no exact STRING"),
        (Step(cast={"id": "BOOLEAN"}), "id is BIGINT, and has no exact BOOLEAN"),
        (Step(cast={"tags": "STRING"}), "has no exact STRING"),
    ],
)
def test_a_step_that_does_not_fit_the_columns_is_refused(step: Step, says: str) -> None:
    with pytest.raises(ConfigurationError, match=r"steps\[1\]\.") as caught:
        columns(Step(header={"trace": "x-trace"}), step)
    assert says in str(caught.value)
    assert caught.value.hint is None or SALT.get_secret_value() not in caught.value.hint


def test_a_step_sees_what_the_one_before_has_left() -> None:
    with pytest.raises(ConfigurationError, match=r"steps\[1\]\.mask: email isn't a column here"):
        columns(Step(rename={"email": "mail"}), Step(mask=("email",), salt=SALT))


def test_values_of_the_file_never_become_sql() -> None:
    hostile = "x' OR true OR '"
    for selection in planned([Step(add={"a": hostile}), Step(header={"b": hostile})], KINDS):
        assert all(hostile not in f"{made.sql} {selection.problem}" for made in selection.columns)


def test_the_salt_is_in_no_sql() -> None:
    salt = SALT.get_secret_value()
    (selection,) = planned([Step(mask=("email",), salt=SALT)], KINDS)
    told = f"{selection} {hashed('x', salt)} {_view(salt)}"
    assert salt not in told
    assert salt.encode().hex() not in told.lower()
    assert _view(salt) != _view(salt[::-1])
