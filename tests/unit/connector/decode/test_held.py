"""Fields that a table has a column for are read from older records too, and others aren't left out in silence."""

import json
from pathlib import Path
from typing import Any, cast

import pytest
from avro_bytes import field, record
from avro_schemas import Schemas
from pyspark.sql.types import ArrayType, LongType, MapType, StringType, StructField, StructType
from registry import registry_server

from connector.config import OWN_COLUMNS, AvroFormat, ConfluentRegistry, DebeziumFormat
from connector.decode import record_format, refuse_own_names
from connector.decode.avro import AvroOfRegistry
from connector.decode.avro_schema import parse
from connector.decode.held import ROWS_OF_EVENT, held_of_event, holds, is_own, lacks, paths, row_of_event, taken_names
from connector.decode.protobuf import ProtobufOfRegistry
from connector.decode.registry import opened_protobuf
from sinks.errors import ConfigurationError
from sinks.spark.schema_changes import OnNewColumn


def columns(**kinds: Any) -> StructType:
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


AT = columns(Zip=StringType())


def test_the_paths_of_fields_go_through_arrays_and_maps() -> None:
    table = columns(K=LongType(), stops=ArrayType(AT), by=MapType(StringType(), ArrayType(AT)))
    assert list(paths(table)) == ["k", "stops", "stops.zip", "by", "by.zip"]
    assert holds({"stops.zip"}, AT["Zip"], ("Stops",))
    assert not holds({"stops.zip"}, AT["Zip"], ())


def test_of_a_databases_event_the_row_is_before_and_after() -> None:
    found = held_of_event({"k", "at.zip", "_source", "_source.lsn", "_op"})
    assert {"before.k", "after.k", "before.at.zip", "after.at.zip", "source.lsn"} <= found
    assert "op" not in found


@pytest.mark.parametrize("name", [*OWN_COLUMNS, "_SOURCE"])
def test_no_field_becomes_a_column_of_lakelocks_own(name: str) -> None:
    row, event = columns(id=LongType(), **{name: StringType()}), columns(op=StringType(), _source=StringType())
    with pytest.raises(ConfigurationError, match=f"value: the Avro schema has a field {name}") as caught:
        refuse_own_names("value", row, "Rename it.")
    assert caught.value.hint == "Rename it."
    with pytest.raises(ConfigurationError, match=f"a field {name}"):
        refuse_own_names("value", row_of_event(columns(after=row, op=StringType())), "")
    refuse_own_names("value", row_of_event(columns(after=columns(id=LongType()), **{name: StringType()})), "")
    refuse_own_names("value", columns(at=row), "")
    assert row_of_event(event) is event
    assert not holds({name.lower()}, row[name], ())
    assert holds({f"at.{name.lower()}"}, row[name], ("at",))
    assert (is_own(name), is_own(f"at.{name}"), is_own(f"after.{name}", ROWS_OF_EVENT)) == (True, False, True)
    assert not is_own(name, ROWS_OF_EVENT)


def test_avro_with_such_a_field_is_refused_wherever_its_schema_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row, nothing = columns(id=LongType(), _op=StringType()), cast("Any", None)
    schema = record(field("id", "long"), field("_op", "string"))
    (tmp_path / "row.avsc").write_text(json.dumps(schema))
    monkeypatch.setattr("connector.decode.opened", lambda _: Schemas({"1": schema}))
    registry = {"url": "http://there"}
    file = AvroFormat(format="avro", schema_file=str(tmp_path / "row.avsc"))
    for value, kind in (
        (file, row),
        (AvroFormat(format="avro", registry=registry), row),
        (DebeziumFormat(format="debezium", registry=registry), columns(before=row, after=row, op=StringType())),
    ):
        monkeypatch.setattr("connector.decode.avro._type", lambda *_, kind=kind: kind)
        with pytest.raises(ConfigurationError, match="value: the Avro schema has a field _op"):
            record_format("value", value, nothing, ["t"])
    monkeypatch.setattr("connector.decode.avro._type", lambda *_: row)
    assert record_format("key", file, nothing, ["t"]).type == row


def test_records_with_such_a_field_are_not_read_without_it() -> None:
    why = "has fields with names of columns that Lakelock itself uses: after._op"
    assert (taken_names([]), taken_names(["after._op"])) == (None, why)


@pytest.mark.parametrize(
    ("option", "held", "taken"),
    [(None, {"id", "_op"}, []), ("ignore", {"id", "_op"}, ["1"]), ("add", set(), []), ("add", {"id", "_op"}, [])],
)
def test_a_version_with_such_a_field_adds_no_column(
    option: OnNewColumn | None, held: set[str], taken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connector.decode.avro._type", lambda *_: LongType())
    nothing: Any = None
    older, newest = record(field("id", "long"), field("_op", "string")), record(field("id", "long"))
    made = AvroOfRegistry(nothing, Schemas({"1": older, "2": newest}), ["t"], "value", None, option, held)
    assert (made.schemas.taken, made._reader) == ([*taken, "2"], parse(json.dumps(newest)))
    if not taken:
        assert "_op" in made.schemas._refused["1"]
    of_key = AvroOfRegistry(nothing, Schemas({"1": older, "2": newest}), ["t"], "key", None, "add")
    assert of_key.schemas.taken == ["1", "2"]


def test_only_a_value_is_told_of_the_option_and_a_key_of_its_schema() -> None:
    assert lacks([], "it", "value") is None
    assert "on_new_column" in (lacks(["a"], "it", "value") or "")
    said = lacks(["a", "b"], "it", "key") or ""
    assert said.startswith("has fields that it lacks: a, b; the key's schema_file, schema or descriptor_file says")


PROTO = 'syntax = "proto3"; message Row { int64 k = 1; %s }'


@pytest.mark.parametrize(
    ("held", "option", "names", "taken"),
    [
        ({"k", "discount", "gone"}, None, ["k", "discount", "gone"], ["1", "2"]),
        ({"k", "discount"}, None, ["k"], ["2"]),
        ({"k", "discount"}, "fail", ["k"], ["2"]),
        ({"k", "discount"}, "ignore", ["k", "discount"], ["1", "2"]),
        (set(), "add", ["k", "discount", "gone"], ["1", "2"]),
        (set(), None, ["k"], ["2"]),
    ],
)
def test_no_field_of_an_older_schema_is_left_out_unless_the_file_says_so(
    held: set[str], option: OnNewColumn | None, names: list[str], taken: list[str]
) -> None:
    with registry_server() as server:
        server.register("t-value", 1, PROTO % "int64 discount = 2; string gone = 3;", "PROTOBUF")
        server.register("t-value", 2, PROTO % "", "PROTOBUF")
        registry = opened_protobuf(ConfluentRegistry(url=server.url))
        format = ProtobufOfRegistry(registry, ["t"], "value", None, None, option, held)
        declared = ProtobufOfRegistry(registry, ["t"], "value", None, columns(k=LongType()), option, held)
    assert format.type.names == names
    assert format._schemas.taken == taken
    assert (declared.type.names, declared._schemas.taken) == (["k"], ["1", "2"])
