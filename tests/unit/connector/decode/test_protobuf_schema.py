"""Protobuf schemas: compiled from a registry's sources, read from a descriptor file, and as columns."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from protobuf_bytes import SHOP, compiled
from pyspark.sql import types as T
from registry import RegistryServer, registry_server

from connector.config.registry import ConfluentRegistry
from connector.decode.protobuf_columns import columns_of
from connector.decode.protobuf_plan import MessagePlan, Misfit
from connector.decode.protobuf_schema import Messages, ProtobufSchema, of_file, parse
from connector.decode.registry import PROTOBUF
from connector.decode.registry.confluent import Confluent
from connector.decode.registry.registry import Reference
from sinks.errors import ConfigurationError, UnusableSchema
from sinks.spark.types import ddl

EDITION = """
edition = "2023";
package e;
message A { int32 here = 1; int32 always = 2 [features.field_presence = IMPLICIT]; Inner in = 3; }
message Inner { string x = 1; }
"""


def source(text: str, syntax: str = "proto3") -> ProtobufSchema:
    return parse(f'syntax = "{syntax}"; {text}', [], "subject t")


def columns(text: str, name: str = "A") -> str:
    return ddl(columns_of(source(text).message(name))).replace("`", "")


def test_each_type_has_a_column_that_holds_all_of_its_values() -> None:
    assert ddl(columns_of(Messages(compiled(SHOP)).of("shop.Order"))).replace("`", "") == (
        "id bigint, customer string, large decimal(20,0), status string, at timestamp, "
        "items ARRAY<STRUCT<sku: string, count: bigint, price: double, tags: ARRAY<string>>>, stock MAP<string, int>, "
        "card string, voucher bigint, swap STRUCT<sku: string, count: bigint, price: double, tags: ARRAY<string>>, "
        "discount int, note string, deltas ARRAY<int>, raw binary, rate float, express boolean, past ARRAY<string>, "
        "gift STRUCT<sku: string, count: bigint, price: double, tags: ARRAY<string>>, crate bigint, shelf bigint, "
        "far bigint, shelves MAP<bigint, STRUCT<sku: string, count: bigint, price: double, tags: ARRAY<string>>>, "
        "small int"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("message A { B b = 1; } message B { repeated A a = 1; }", "field b.a is the message A, which contains itself"),
        ("message A { map<string, A> a = 1; }", "field a is the message A, which contains itself"),
        ('import "google/protobuf/struct.proto"; message A { google.protobuf.Struct s = 1; }',
         "field s.fields.struct_value is the message google.protobuf.Struct, which contains itself"),
        ("message A { int32 a = 1; int32 A = 2; }", "field A has the name of the field a but for its case"),
        ("message A { B b = 1; } message B {}", "field b is the message B, which has no fields"),
        ("message A {}", "It is the message A, which has no fields"),
        ("message A { int32 _topic = 1; }", "field _topic has the name of a column that Lakelock itself uses"),
    ],
)  # fmt: skip
def test_a_field_that_no_column_can_hold_is_named(text: str, said: str) -> None:
    with pytest.raises(UnusableSchema) as caught:
        columns(text)
    assert said in caught.value.message
    assert "schema" in caught.value.hint


def test_a_duration_and_any_are_what_they_hold() -> None:
    imports = "".join(f'import "google/protobuf/{name}.proto"; ' for name in ("duration", "any"))
    assert columns(f"{imports}message A {{ google.protobuf.Duration d = 1; google.protobuf.Any a = 2; }}") == (
        "d STRUCT<seconds: bigint, nanos: int>, a STRUCT<type_url: string, value: binary>"
    )


def one(name: str, kind: T.DataType, nullable: bool = True) -> T.StructType:
    return T.StructType([T.StructField(name, kind, nullable)])


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (one("name", T.IntegerType()), "field name is string, which can't be read as INT"),
        (one("count", T.FloatType()), "field count is int32, which can't be read as FLOAT"),
        (one("count", T.DecimalType(10, 0)), "field count is int32, which can't be read as DECIMAL(10,0)"),
        (one("count", T.ArrayType(T.LongType())), "field count is int32, which can't be read as ARRAY<BIGINT>"),
        (one("many", T.IntegerType()), "field many is repeated, which can't be read as INT"),
        (one("many", T.ArrayType(T.StringType())), "field many is int64, which can't be read as STRING"),
        (one("at", T.DateType()), "field at is the message google.protobuf.Timestamp, which can't be read as DATE"),
        (one("m", T.StringType()), "field m is a map, which can't be read as STRING"),
        (one("old", one("x", T.IntegerType())), "field old is a group, which Lakelock doesn't read"),
        (one("other", T.IntegerType(), nullable=False), "A has no field other, whose column is NOT NULL"),
        (one("COUNT", T.VarcharType(3)), "field count is int32, which can't be read as VARCHAR(3)"),
    ],
)
def test_a_column_that_a_field_does_not_fit_is_named(column: T.StructType, said: str) -> None:
    text = (
        'import "google/protobuf/timestamp.proto"; message A { required string name = 1; optional int32 count = 2; '
        "repeated int64 many = 3; optional google.protobuf.Timestamp at = 4; map<string, int32> m = 5; "
        "optional group Old = 6 { optional int32 x = 1; } }"
    )
    with pytest.raises(Misfit) as caught:
        MessagePlan(source(text, "proto2").message("A"), column)
    assert str(caught.value) == said


def test_columns_without_a_field_are_found_at_any_depth() -> None:
    message = source("message A { B b = 1; repeated B all = 2; } message B { int32 x = 1; }").message("A")
    inner = T.StructType().add("x", "integer").add("y", "integer")
    columns = T.StructType().add("B", inner).add("all", T.ArrayType(one("z", T.LongType()))).add("c", "integer")
    assert MessagePlan(message, columns).missing == ["c", "b.y", "all.z"]


def test_a_source_that_cannot_be_used_is_explained() -> None:
    for text, said in {
        "message A { B b = 1; }": 'protoc doesn\'t take it: 1:32: "B" is not defined',
        'import "no.proto"; message A {}': '1:20: Import "no.proto" was not found or had errors',
        "": "defines no message",
    }.items():
        with pytest.raises(UnusableSchema) as caught:
            _ = source(text).messages
        assert said in caught.value.message
        assert caught.value.message.startswith("The Protobuf schema in subject t")


@pytest.mark.parametrize("name", ["", "/etc/x.proto", "../x.proto", "a/../../x.proto", "a\\b.proto"])
def test_a_reference_leads_to_no_file_of_this_machine(name: str, tmp_path: Path) -> None:
    schema = parse('syntax = "proto3"; message A {}', [Reference(name, source("message B {}"))], "subject t")
    with pytest.raises(UnusableSchema, match="which isn't the path of an import"):
        _ = schema.messages


def test_two_versions_of_one_import_are_refused() -> None:
    references = [Reference("b.proto", source(f"message B {{ int32 x{n} = 1; }}")) for n in (1, 2)]
    with pytest.raises(UnusableSchema, match=r"refers to two versions of b\.proto"):
        parse("", references, "subject t")


def test_sources_are_compiled_with_those_that_the_registry_says_they_import() -> None:
    with registry_server() as server:
        server.register("inner", 3, 'syntax = "proto3"; message C { int32 x = 1; }', "PROTOBUF")
        middle = 'syntax = "proto3"; package b; import "c/c.proto"; message B { C c = 1; }'
        server.register("middle", 4, middle, "PROTOBUF", [{"name": "c/c.proto", "subject": "inner", "version": 1}])
        outer = 'syntax = "proto3"; import "b.proto"; message No {} message A { b.B b = 1; message In { b.B b = 1; } }'
        server.register("t-value", 5, outer, "PROTOBUF", [{"name": "b.proto", "subject": "middle", "version": 1}])
        found = registry(server).latest("t", "value").schema
        assert found.messages.paths == {"0": "No", "1": "A", "1.0": "A.In"}
        assert ddl(columns_of(found.message("A"))) == "`b` STRUCT<`c`: STRUCT<`x`: int>>"
        # A record's schema defines its message itself.
        assert (found.message("b.B"), found.message("X")) == (None, None)


def registry(server: RegistryServer) -> Confluent[ProtobufSchema]:
    return Confluent(ConfluentRegistry(url=(server.url,)), PROTOBUF, attempts=1)


def test_fields_of_editions_say_themselves_whether_they_are_sent() -> None:
    message = parse(EDITION, [], "x").message("e.A")
    assert [field.has_presence for field in message.fields] == [True, False, True]
    assert ddl(columns_of(message)) == "`here` int, `always` int, `in` STRUCT<`x`: string>"


def test_a_descriptor_file_that_cannot_be_used_is_explained(tmp_path: Path) -> None:
    for content, said in {
        None: "No such file or directory",
        b"\xff": "it holds no descriptors",
        FileDescriptorSet(file=FileDescriptorSet.FromString(compiled(SHOP)).file[-1:]).SerializeToString(): (
            "main.proto imports google/protobuf/timestamp.proto, which isn't in it"
        ),
    }.items():
        file = tmp_path / "x.desc"
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(ConfigurationError, match=said) as caught:
            of_file("value", str(file))
        assert "value.descriptor_file" in caught.value.message
        assert "--include_imports" in caught.value.hint


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "x.desc"
    file.write_bytes(compiled(SHOP))
    monkeypatch.setitem(sys.modules, "google.protobuf.descriptor_pool", None)
    with pytest.raises(ConfigurationError) as caught:
        of_file("value", str(file))
    assert "lakelock[protobuf]" in caught.value.hint
    monkeypatch.setattr("connector.decode.protobuf_schema.find_spec", lambda _: None)
    with pytest.raises(ConfigurationError, match="grpcio-tools, which isn't installed") as caught:
        _ = source("message NotYetCompiled {}").messages
    assert "lakelock[protobuf]" in caught.value.hint
