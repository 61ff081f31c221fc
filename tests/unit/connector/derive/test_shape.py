"""Which options of a pipeline shape the rows of its table."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest
from pydantic import SecretStr
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from connector.config import parse
from connector.derive.shape import shape
from connector.state.aggregates import aggregate
from connector.state.sketches import hashed_as
from sinks.delta.shape import ZONE, Shape

COORDINATES = {
    "_topic": StringType(),
    "_partition": IntegerType(),
    "_offset": LongType(),
    "_timestamp": TimestampType(),
}
AT = {"k": StringType(), "at": TimestampType()}
NO_TIME = {"k": StringType(), "n": IntegerType()}
AVRO = {"format": "avro", "schema_file": "a.avsc"}
JSON = {"format": "json", "schema": "k STRING, n INT"}
UPSERT = {"type": "delta_upsert", "key": "k"}
COUNT = {"type": "delta_aggregate", "group_by": "k", "aggregates": {"c": "count(*)"}}


def struct(columns: dict[str, DataType]) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def of(
    sink: dict[str, Any],
    rows: dict[str, DataType] = NO_TIME,
    columns: dict[str, DataType] | None = None,
    *,
    zone: str = "Europe/Berlin",
    types: Mapping[str, str] = MappingProxyType({}),
    **options: Any,
) -> Shape:
    config = parse(
        {
            "name": "p",
            "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "localhost:9092"}},
            "value": JSON,
            "sinks": [{"path": "t", **sink}],
            **options,
        }
    )
    rows = {**rows, **COORDINATES}
    return shape(config, struct(rows), struct(rows if columns is None else columns), zone=zone, types=types)


@pytest.mark.parametrize(
    ("sink", "texts"),
    [
        ({"type": "delta_append"}, {}),
        (UPSERT, {"key": ["k"], "filled": ["n"]}),
        ({**UPSERT, "ignore_null_updates": True}, {"key": ["k"], "filled": []}),
        ({**UPSERT, "ignore_null_updates": ["n"]}, {"key": ["k"], "filled": []}),
        ({**UPSERT, "key": ["k", "n"], "sequence_by": "n"}, {"key": ["k", "n"], "sequence_by": "n", "filled": []}),
        (
            {**UPSERT, "apply_as_deletes": "n = 1", "except_column_list": "n", "deletes": "hard"},
            {"key": ["k"], "filled": []},
        ),
        (
            {"type": "delta_history", "key": "k"},
            {"key": ["k"], "track_history_column_list": None, "track_history_except_column_list": None,
             "tracked": ["n"]},
        ),
        (
            {"type": "delta_history", "key": "k", "track_history_column_list": "n"},
            {"key": ["k"], "track_history_column_list": ["n"], "track_history_except_column_list": None},
        ),
        (
            {"type": "delta_history", "key": "k", "sequence_by": "n", "stored_as_scd_type": "bitemporal"},
            {"key": ["k"], "sequence_by": "n", "system_sequence_by": "_timestamp", "track_history_column_list": None,
             "track_history_except_column_list": None, "tracked": ["n"]},
        ),
        (COUNT, {"group_by": ["k"], "aggregates.c": "count(*)"}),
        (
            {**COUNT, "window": {"size": "60 minutes", "late": "add", "allowed_lateness": "1 day"}},
            {"group_by": ["k"], "aggregates.c": "count(*)", "window.time": "_timestamp", "window.size": "1 hour",
             "window.slide": "1 hour"},
        ),
        (
            {**COUNT, "window": {"gap": "1 minute", "time": "at"}},
            {"group_by": ["k"], "aggregates.c": "count(*)", "window.time": "at", "window.gap": "1 minute"},
        ),
    ],
)  # fmt: skip
def test_the_options_by_which_records_go_together_shape_the_rows(sink: dict[str, Any], texts: dict[str, Any]) -> None:
    together = [*texts.get("key", ()), *texts.get("group_by", ())]
    if sink["type"] == "delta_history":
        texts = {**texts, "stored_as_scd_type": sink.get("stored_as_scd_type", "2")}
    assert of(sink).texts == {**texts, "type": sink["type"], **{f"steps.mask.{column}": None for column in together}}


TWO = {"k": StringType(), "n": IntegerType(), "b": StringType()}


@pytest.mark.parametrize("kind", [{}, {"sequence_by": "n", "stored_as_scd_type": "bitemporal"}])
def test_a_history_remembers_which_columns_tell_its_versions_apart(kind: dict[str, Any]) -> None:
    history = {"type": "delta_history", "key": "k", **kind}
    before = of(history, TWO)
    assert before.texts["tracked"] == ["n", "b"]
    assert of(history).differences(before.texts).keys() == {"tracked"}, "value.schema, steps or transform"
    assert of({**history, "except_column_list": "b"}, TWO).differences(before.texts).keys() == {"tracked"}
    assert before.differences(of(history).texts) == {}, "a column that comes is compared from now on"
    assert of(history).option("tracked") == "the versions of sinks[0] were told apart by"


def test_columns_that_a_history_does_not_compare_or_lists_are_not_remembered_once_more() -> None:
    history = {"type": "delta_history", "key": "k"}
    assert of({**history, "track_history_except_column_list": "b"}, TWO).texts["tracked"] == ["n"]
    assert "tracked" not in of({**history, "track_history_column_list": "n"}, TWO).texts


SALT, OTHER = ({"salt": SecretStr(text)} for text in ("0123456789abcdef", "fedcba9876543210"))


def test_the_salt_of_a_masked_key_is_remembered_and_not_told() -> None:
    def masked(salt: dict[str, Any]) -> Shape:
        return of(UPSERT, steps=[{"mask": ["email", "n"], **salt}, {"rename": {"email": "K"}}])

    one, other = masked(SALT), masked(OTHER)
    assert one.texts.keys() == {"type", "key", "filled", "steps.mask.k"}
    assert "0123456789abcdef" not in str(one.texts)
    assert one.differences(one.texts) == {}
    assert other.differences(one.texts).keys() == {"steps.mask.k"}
    assert one.option("steps.mask.k") == "steps.mask.k"


@pytest.mark.parametrize("sink", [UPSERT, COUNT, {"type": "delta_history", "key": "k"}], ids=lambda sink: sink["type"])
def test_a_mask_that_a_key_gets_or_loses_is_another_one(sink: dict[str, Any]) -> None:
    plain = of(sink)
    before = of(sink, steps=[{"mask": ["email"], **SALT}, {"rename": {"email": "k"}}])
    after = of(sink, steps=[{"rename": {"email": "k"}}, {"mask": ["K"], **SALT}])
    twice = of(sink, steps=[{"mask": ["k"], **SALT}, {"mask": ["k"], **SALT}])
    salted = before.texts["steps.mask.k"]
    assert plain.differences(before.texts) == {"steps.mask.k": (salted, None)}
    assert before.differences(plain.texts) == {"steps.mask.k": (None, salted)}
    assert after.differences(before.texts) == {}, "a mask is the same before a rename and after it"
    assert twice.differences(before.texts).keys() == {"steps.mask.k"}
    assert of(sink, steps=[{"mask": ["n"], **SALT}]).differences(plain.texts) == {}, "no column of the key"


@pytest.mark.parametrize("steps", [[], [{"mask": ["k"], **SALT}]])
def test_a_table_that_remembers_nothing_of_masks_takes_any(steps: list[dict[str, Any]]) -> None:
    """As one of an earlier release. One that remembers the salt notices that the mask is gone."""
    assert of(UPSERT, steps=steps).differences({"key": ["k"]}) == {}
    masked = of(UPSERT, steps=[{"mask": ["k"], **SALT}]).texts
    assert bool(of(UPSERT, steps=steps).differences(masked)) is (steps == [])


EMAILS = {"k": StringType(), "email": StringType(), "n": IntegerType()}


def emails(sink: dict[str, Any], salt: dict[str, Any] | None, kept: str = "email") -> Shape:
    return of(sink, EMAILS, steps=[] if salt is None else [{"mask": [kept], **salt}])


@pytest.mark.parametrize(
    "text",
    ["approx_count_distinct(email)", "collect_set(EMAIL, 10)", "count(CASE WHEN email < '8' THEN 1 END)",
     "sum(CAST(conv(left(`email`, 2), 16, 10) AS INT))"],
)  # fmt: skip
def test_a_mask_of_what_an_aggregate_counts_is_remembered(text: str) -> None:
    sink = {**COUNT, "aggregates": {"c": text}}
    before = emails(sink, SALT).texts
    for salt in (OTHER, None):
        assert emails(sink, salt).differences(before).keys() == {"steps.mask.email"}
    assert emails(sink, SALT).differences(emails(sink, None).texts).keys() == {"steps.mask.email"}
    earlier = {name: kept for name, kept in before.items() if name != "steps.mask.email"}
    assert emails(sink, OTHER).differences(earlier) == {}, "a table of an earlier release doesn't say"
    assert emails(sink, SALT, "n").differences(emails(sink, OTHER, "n").texts) == {}, "no column of the aggregate"


@pytest.mark.parametrize("text", ["count(email)", "count(*)", "last(email, n)", "min_by(email, n)"])
def test_a_mask_of_values_that_are_not_added_up_may_change(text: str) -> None:
    sink = {**COUNT, "aggregates": {"c": text}}
    assert emails(sink, OTHER).differences(emails(sink, SALT).texts) == {}


@pytest.mark.parametrize("tracks", [{}, {"track_history_column_list": "email"}])
def test_another_salt_of_what_a_history_tracks_is_another_one(tracks: dict[str, Any]) -> None:
    """Each key would begin a version, and nothing has changed. A mask that comes or goes shows in the file."""
    history = {"type": "delta_history", "key": "k", **tracks}
    before = emails(history, SALT).texts
    assert emails(history, OTHER).differences(before).keys() == {"steps.mask.email"}
    assert emails(history, SALT).differences(before) == {}
    assert emails(history, None).differences(before) == {}
    assert emails(history, OTHER).differences(emails(history, None).texts) == {}
    untracked = {"type": "delta_history", "key": "k", "track_history_except_column_list": "email"}
    assert emails(untracked, OTHER).differences(emails(untracked, SALT).texts) == {}


def test_the_salt_of_a_column_with_the_name_of_a_type_is_not_that_of_the_order() -> None:
    steps = [{"mask": ["date", "n"], "salt": SecretStr("0123456789abcdef")}, {"rename": {"n": "m"}}]
    made = of({**UPSERT, "sequence_by": "CAST(at AS DATE)"}, steps=steps)
    assert made.texts.keys() == {"type", "key", "sequence_by", "filled", "steps.mask.k"}


KINDS: list[dict[str, Any]] = [
    {"type": "delta_append"},
    UPSERT,
    {"type": "delta_history", "key": "k"},
    {"type": "delta_history", "key": "k", "sequence_by": "n", "stored_as_scd_type": "bitemporal"},
    COUNT,
]


@pytest.mark.parametrize("after", range(len(KINDS)))
@pytest.mark.parametrize("before", range(len(KINDS)))
def test_another_kind_of_table_is_another_shape(before: int, after: int) -> None:
    """A table of every record isn't one of the latest per key, also where both have the same columns."""
    differences = of(KINDS[after]).differences(of(KINDS[before]).texts)
    assert bool(differences) is (before != after)
    kinds = tuple(KINDS[each]["type"] for each in (before, after))
    assert kinds[0] == kinds[1] or differences["type"] == kinds
    # As a table that remembers its key only.
    without = {name: text for name, text in of(KINDS[before]).texts.items() if name in ("key", "group_by")}
    assert of({"type": "delta_append"}).differences(without).keys() == without.keys()


def test_the_type_by_which_values_are_hashed_is_remembered() -> None:
    """A sketch has hashes of the values, and the hash of 1 as an INT isn't that of 1 as a BIGINT."""
    sink = {**COUNT, "aggregates": {"u": "approx_count_distinct(n)"}}

    def counted(kind: str) -> Shape:
        known = aggregate("approx_count_distinct(n)").typed(lambda _: kind)
        return of(sink, types={"u": known.depends_on} if known.depends_on else {})

    before, after = counted("INT"), counted("BIGINT")
    assert after.differences(before.texts) == {"types.u": ("INT", "BIGINT")}
    assert after.option("types.u") == "the type of what sinks[0].aggregates.u counts"
    assert counted("SMALLINT").differences(before.texts) == {}, "Spark hashes both alike"
    earlier = {name: text for name, text in before.texts.items() if name != "types.u"}
    assert after.differences(earlier) == {}, "a table of an earlier release doesn't say"
    assert after.over(earlier)["types.u"] == "BIGINT"


@pytest.mark.parametrize(
    ("kind", "hashed"),
    [
        ("TINYINT", "INT"), ("INT", "INT"), ("BIGINT", "BIGINT"), ("FLOAT", "FLOAT"), ("STRING", "STRING"),
        ("DECIMAL(10,2)", "DECIMAL(18,2)"), ("DECIMAL(18,2)", "DECIMAL(18,2)"), ("DECIMAL(19,2)", "DECIMAL(38,2)"),
        ("ARRAY<int>", "ARRAY<int>"), ("VOID", ""), ("STRUCT<`a`: int>", ""),
    ],
)  # fmt: skip
def test_types_whose_values_have_the_same_hashes_are_one(kind: str, hashed: str) -> None:
    assert hashed_as(kind) == hashed


def test_messages_name_the_option_by_its_path_in_the_file() -> None:
    assert of(COUNT).option("aggregates.c") == "sinks[0].aggregates.c"


@pytest.mark.parametrize(
    ("sink", "rows", "columns", "options"),
    [
        ({"type": "delta_append"}, AT, None, {}),
        ({"type": "delta_append"}, {"all": ArrayType(struct({"at": TimestampType()}))}, None, {}),
        (UPSERT, AT, None, {}),
        ({**UPSERT, "sequence_by": "to_timestamp(k)"}, NO_TIME, {"_sequence": TimestampType()}, {}),
        ({"type": "delta_history", "key": "k", "sequence_by": "n", "stored_as_scd_type": "bitemporal",
          "system_sequence_by": "to_timestamp(k)"}, NO_TIME, {"__SYSTEM_START_AT": TimestampType()}, {}),
        ({"type": "delta_history", "key": "k", "sequence_by": "to_timestamp(k)"}, NO_TIME,
         {"__START_AT": TimestampType()}, {}),
        (COUNT, AT, NO_TIME, {}),
        ({**COUNT, "aggregates": {"c": "max(to_timestamp(k))"}}, NO_TIME, {"c": TimestampType()}, {}),
        (COUNT, NO_TIME, None, {"transform": "SELECT date_format(_timestamp, 'yyyy-MM-dd') AS k FROM records"}),
        (UPSERT, NO_TIME, None, {"transform": "SELECT * FROM records WHERE `_timestamp` > '2026-01-01'"}),
        ({**COUNT, "aggregates": {"c": "count(CASE WHEN hour(_timestamp) < 6 THEN 1 END)"}}, NO_TIME, None, {}),
        ({**UPSERT, "sequence_by": "date_format(_timestamp, 'yyyyMMddHHmmss')"}, NO_TIME,
         {"_sequence": StringType()}, {}),
        ({**UPSERT, "sequence_by": "CAST(at AS STRING)"}, AT, {"_sequence": StringType()}, {"value": AVRO}),
        (UPSERT, {"k": DateType()}, None, {"transform": "SELECT CAST(_timestamp AS DATE) AS k FROM records"}),
        ({"type": "delta_append"}, AT, None,
         {"value": AVRO, "transform": "SELECT to_timestamp(k) AS at FROM records"}),
        ({"type": "delta_append"}, AT, None, {"value": AVRO, "steps": [{"cast": {"at": "TIMESTAMP"}}]}),
        ({**UPSERT, "sequence_by": "at"}, AT, None, {"value": AVRO, "steps": [{"cast": {"at": "TIMESTAMP"}}]}),
        ({**UPSERT, "key": "at"}, AT, None, {"value": AVRO}),
        ({**UPSERT, "key": "at"}, AT, None, {"value": AVRO, "key": {"format": "json", "schema": "at TIMESTAMP"}}),
        ({"type": "delta_append"}, {"_key": struct({"at": TimestampType()})}, None,
         {"value": AVRO, "key": {"format": "json", "schema": "at TIMESTAMP"}}),
    ],
)  # fmt: skip
def test_the_zone_is_remembered_where_it_may_have_made_a_time(
    sink: dict[str, Any], rows: dict[str, DataType], columns: dict[str, DataType] | None, options: dict[str, Any]
) -> None:
    assert of(sink, rows, columns, **options).texts[ZONE] == "Europe/Berlin"


@pytest.mark.parametrize(
    ("sink", "rows", "columns", "options"),
    [
        ({"type": "delta_append"}, NO_TIME, None, {}),
        ({"type": "delta_append"}, {"at": TimestampNTZType(), "day": DateType()}, None, {}),
        ({**UPSERT, "sequence_by": "_timestamp"}, NO_TIME, {"_sequence": TimestampType()}, {}),
        ({**COUNT, "window": {"size": "1 hour"}}, NO_TIME, {"window_start": TimestampType(), "c": LongType()}, {}),
        ({**UPSERT, "sequence_by": "struct(_timestamp, n)"}, NO_TIME, {"_sequence": LongType()}, {}),
        ({**COUNT, "aggregates": {"c": "last(n, _timestamp)"}}, NO_TIME, {"c": LongType()}, {}),
        (UPSERT, NO_TIME, None, {"transform": "SELECT upper(k) AS k, n, records._timestamp FROM records"}),
        (UPSERT, NO_TIME, None, {"transform": "SELECT k, n, _timestamp AS _timestamp FROM records"}),
        ({"type": "delta_append"}, AT, None, {"value": AVRO}),
        (UPSERT, AT, None, {"value": AVRO, "steps": [{"rename": {"a": "at"}}]}),
        ({**UPSERT, "key": "at"}, AT, None, {"value": AVRO, "key": AVRO}),
        ({**UPSERT, "sequence_by": "unix_micros(nvl(_timestamp, _timestamp))"}, NO_TIME, {"_sequence": LongType()}, {}),
        (UPSERT, NO_TIME, None, {"transform": "SELECT (k), n, named_struct('at', _timestamp) AS s FROM records"}),
    ],
)
def test_the_zone_is_not_remembered_where_no_text_became_a_time(
    sink: dict[str, Any], rows: dict[str, DataType], columns: dict[str, DataType] | None, options: dict[str, Any]
) -> None:
    assert ZONE not in of(sink, rows, columns, **options).texts


@pytest.mark.parametrize("zone", ["UTC", "Etc/UTC", "GMT", "Z", "+00:00", "Etc/GMT+0", "zulu"])
def test_all_names_of_utc_are_one_zone(zone: str) -> None:
    assert of({"type": "delta_append"}, AT, zone=zone).texts[ZONE] == "UTC"


@pytest.mark.parametrize("zone", ["Europe/London", "UTC+1", "+01:00", "Etc/GMT+1"])
def test_another_zone_is_another_one(zone: str) -> None:
    assert of({"type": "delta_append"}, AT, zone=zone).texts[ZONE] == zone


@pytest.mark.parametrize(
    ("sink", "keeping"),
    [
        (UPSERT, []),
        ({**UPSERT, "ignore_null_updates": ["n"]}, ["n"]),
        ({**UPSERT, "ignore_null_updates": True}, ["n"]),
        ({"type": "delta_append"}, []),
    ],
)
def test_columns_that_keep_an_older_value_are_known_as_such(sink: dict[str, Any], keeping: list[str]) -> None:
    assert of(sink).keeping == keeping
