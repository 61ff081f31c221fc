"""Fields that a table has a column for are read from older records too, and others aren't left out in silence."""

from typing import Any

import pytest
from pyspark.sql.types import ArrayType, LongType, MapType, StringType, StructField, StructType
from registry import registry_server

from connector.config import ConfluentRegistry
from connector.decode.held import held_of_event, holds, lacks, paths
from connector.decode.protobuf import ProtobufOfRegistry
from connector.decode.registry import opened_protobuf
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


def test_only_a_value_is_told_of_the_option() -> None:
    assert lacks([], "it", "value") is None
    assert "on_new_column" in (lacks(["a"], "it", "value") or "")
    assert lacks(["a", "b"], "it", "key") == "has fields that it lacks: a, b"


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
