"""Fields with a default that a later version of an Avro schema has: which records lack them, and what stands there."""

from __future__ import annotations

import json
from typing import Any

import pyarrow
import pytest
from avro_bytes import encoded, field, record
from pyspark.sql.types import ArrayType, IntegerType, MapType, StringType, StructField, StructType

from connector.audit import avro
from connector.audit.avro import Avro
from connector.audit.avro_schema import Schema, grown, lacking
from connector.audit.decode import _STAR_INSIDE
from connector.audit.formats import of_registry
from connector.audit.records import Records
from connector.audit.registries import OfFile
from connector.audit.steps import _defaults
from connector.audit.values import Default, defaults_of
from connector.config import ConfluentRegistry
from connector.config.steps import Step

ID, N = field("id", "long"), field("n", ["int", "null"], default=0)


def parsed(schema: object) -> Schema:
    return Schema.of((json.dumps(schema),))


def event(*fields: object) -> dict[str, Any]:
    row = record(*fields, name="Value")
    return record(
        field("before", ["null", row], default=None), field("after", ["null", "Value"], default=None),
        field("op", "string"), field("source", record(ID, *([N] if len(fields) > 1 else []), name="Source")),
        name="Envelope",
    )  # fmt: skip


def nested(*fields: object) -> dict[str, Any]:
    inner = record(*fields, name="In")
    return record(
        ID, field("at", ["null", inner]), field("many", {"type": "array", "items": ["null", "In"]}),
        field("by", {"type": "map", "values": "In"}),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("older", "newer", "paths"),
    [
        (record(ID), record(ID, N), ["n"]),
        (record(ID), record(ID, field("n", ["null", "int"], default=None)), []),
        (record(ID, field("m", "int")), record(ID, {**N, "aliases": ["m"]}), []),
        (nested(ID), nested(ID, N), ["at.n", "many.element.n", "by.value.n"]),
        (event(ID), event(ID, N), ["before.n", "after.n", "source.n"]),
        (["null", record(ID)], record(ID, N), ["n"]),
        ("string", record(ID, N), []),
    ],
)
def test_what_an_older_schema_lacks_is_found_at_any_depth(older: Any, newer: Any, paths: list[str]) -> None:
    reader = grown([parsed(older), parsed(newer)])
    assert list(lacking(reader, parsed(older))) == paths
    assert lacking(reader, parsed(newer)) == {}


def test_the_defaults_of_events_are_those_of_their_columns() -> None:
    versions = [parsed(event(ID)), parsed(event(ID, N))]
    found = Avro(OfFile(("",)), grown(versions), versions, of_event=True)
    assert found.defaults == {"n": '{"v": 0}', "_source.n": '{"v": 0}'}
    assert list(found._lacks((json.dumps(event(ID)),))) == ["n", "_source.n"]
    assert list(found._lacks((json.dumps(event(ID, N)),))) == []


def test_every_record_says_what_its_own_schema_lacks() -> None:
    old, new = record(ID), record(ID, N)
    reader = parsed(new)
    values = [b"1" + encoded(old, {"id": 1}), b"2" + encoded(new, {"id": 2, "n": None}), b"3"]
    batch = pyarrow.RecordBatch.from_arrays([pyarrow.array(values, pyarrow.binary())], ["value"])
    writers = {b"1": (json.dumps(old),), b"2": (json.dumps(new),)}
    kind = Avro(OfFile(("",)), reader).type
    (made,) = avro.decoded([batch], "value", "into", 1, writers, reader, kind, {b"1": ["n"], b"2": []})
    assert made.column(1).to_pylist() == [
        {"value": {"id": 1, "n": 0}, "lacks": ["n"], "control": None},
        {"value": {"id": 2, "n": None}, "lacks": [], "control": None}, None,
    ]  # fmt: skip


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}
FIXED = {"type": "fixed", "name": "Four", "size": 4}


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        (DECIMAL, ""),
        (DECIMAL, "123456"),
        ({"type": "array", "items": DECIMAL}, [""]),
        (record(field("a", DECIMAL, default=""), name="In"), {}),
        ("int", 2**31),
        ({"type": "array", "items": "int"}, ["x"]),
        ({"type": "map", "values": "bytes"}, {"a": 1}),
        (record(field("a", "bytes"), name="In"), {}),
        (record(field("a", ["int", "null"]), name="In"), {"a": "x"}),
        ({"type": "long", "logicalType": "timestamp-millis"}, 2**63 - 1),
        ({"type": "long", "logicalType": "timestamp-micros"}, 2**63 - 1),
        ({"type": "int", "logicalType": "date"}, 2**31 - 1),
    ],
)
def test_a_default_that_is_no_value_hides_no_other(kind: object, default: object) -> None:
    versions = [parsed(record(ID)), parsed(record(ID, field("r", kind, default=default), N))]
    assert Avro(OfFile(("",)), grown(versions), versions).defaults == {"n": '{"v": 0}'}


@pytest.mark.parametrize(
    ("kind", "default", "read"),
    [
        (DECIMAL, "\u0001\u00c8", "4.56"),
        ({**FIXED, **DECIMAL, "type": "fixed"}, "", "0.00"),
        (FIXED, "\u00ff", "/wAAAA=="),
        (FIXED, "abcdef", "YWJjZA=="),
        ("bytes", "\u20ac", "Pw=="),
        (record(field("a", [FIXED, "null"]), name="In"), {"a": "abcd"}, {"a": "YWJjZA=="}),
    ],
)
def test_bytes_of_a_default_are_those_that_java_makes_of_it(kind: object, default: object, read: object) -> None:
    versions = [parsed(record(ID)), parsed(record(ID, field("r", kind, default=default)))]
    found = Avro(OfFile(("",)), grown(versions), versions).defaults
    assert json.loads(found["r"]) == {"v": read}


@pytest.mark.parametrize(
    ("kind", "default", "there"),
    [(DECIMAL, "", b"\1"), (record(field("a", "bytes"), name="In"), {}, {"a": b""}), ("int", 2**31, 5)],
)
def test_a_field_that_a_record_lacks_is_null_if_its_type_cannot_hold_the_default(
    kind: object, default: object, there: object
) -> None:
    old, new = record(ID), record(ID, field("r", kind))
    reader = parsed(record(ID, field("r", kind, default=default)))
    values = [b"1" + encoded(old, {"id": 1}), b"2" + encoded(new, {"id": 2, "r": there})]
    batch = pyarrow.RecordBatch.from_arrays([pyarrow.array(values, pyarrow.binary())], ["value"])
    writers = {b"1": (json.dumps(old),), b"2": (json.dumps(new),)}
    kind_of_all = Avro(OfFile(("",)), reader).type
    (made,) = avro.decoded([batch], "value", "into", 1, writers, reader, kind_of_all, {b"1": [], b"2": []})
    lacking_it, having_it = made.column(1).to_pylist()
    assert lacking_it == {"value": {"id": 1, "r": None}, "lacks": [], "control": None}
    assert having_it["value"]["r"] is not None


class Registry:
    """Of schemas by the number before a value; or one that shows no versions."""

    header = 1

    def __init__(self, *versions: object) -> None:
        self._texts = [(json.dumps(each),) for each in versions]

    def of(self, header: bytes) -> Any:
        return self._texts[int(header)]

    def versions(self, topic: str) -> Any:
        assert topic == "t"
        return self._texts


def test_a_given_schema_is_compared_with_the_versions_of_the_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connector.audit.formats.schemas_of", lambda *_: Registry(record(ID), {"type": "nothing"}))
    given = (json.dumps(record(ID, N)),)
    registry = ConfluentRegistry(url="http://there")
    assert of_registry("value", registry, ["t"], given, lambda _: True).defaults == {"n": '{"v": 0}'}


def test_the_paths_of_kafkas_key_are_those_of_its_column() -> None:
    assert defaults_of({"n": "1"}, {"n": "2"}) == {"n": Default("n", "1"), "_key.n": Default("_key.n", "2")}
    assert defaults_of(None, None) == {}


@pytest.mark.parametrize(
    ("step", "paths"),
    [
        ({"rename": {"at": "there"}}, {"n": "n", "there.n": "at.n"}),
        ({"drop": ["n"]}, {"at.n": "at.n"}),
        ({"flatten": ["at"]}, {"n": "n", "at_n": "at.n"}),
        ({"cast": {"n": "STRING"}}, {"n": "n", "at.n": "at.n"}),
        ({"add": {"x": 1}}, {"n": "n", "at.n": "at.n"}),
    ],
)
def test_defaults_follow_their_columns_through_the_steps(step: dict[str, Any], paths: dict[str, str]) -> None:
    nothing: Any = None
    columns = StructType(
        [StructField("n", IntegerType()), StructField("at", StructType([StructField("n", IntegerType())]))]
    )
    every = Records(nothing, columns, defaults=defaults_of({"n": '{"v": 0}', "at.n": '{"v": 0}'}, None))
    found = _defaults(Step(**step), every)
    assert {path: default.path for path, default in found.items()} == paths


def test_a_flat_column_has_the_default_of_its_field_and_of_the_fields_around_it() -> None:
    inner = StructType([StructField("n", IntegerType()), StructField("none", StringType())])
    tags = ArrayType(StructType([StructField("x", IntegerType()), StructField("element", StringType())]))
    at = StructType(
        [StructField("in", inner), StructField("tags", tags), StructField("by", MapType(StringType(), inner))]
    )
    whole = {"v": {"in": {"n": 1, "none": None}, "tags": [{"x": 2}], "by": {}}}
    given = {"at": json.dumps(whole), **dict.fromkeys(("at.in.n", "at.tags.element.x", "at.by.value.n"), '{"v": 0}')}
    nothing: Any = None
    every = Records(nothing, StructType([StructField("at", at)]), defaults=defaults_of(given, None))
    assert _defaults(Step(flatten=("at",)), every) == {
        "at_in_n": Default("at", '{"v": 1}', (Default("at.in.n", '{"v": 0}'),)),
        "at_tags": Default("at", '{"v": [{"x": 2}]}'),
        "at_by": Default("at", '{"v": {}}'),
        "at_tags.element.x": Default("at.tags.element.x", '{"v": 0}'),
        "at_by.value.n": Default("at.by.value.n", '{"v": 0}'),
    }


@pytest.mark.parametrize(
    ("sql", "inside"),
    [
        ("SELECT to_json(struct(*)) AS text, id FROM records", True),
        ("SELECT named( records.* ) FROM records", True),
        ("SELECT * FROM records", False),
        ("SELECT r.*, n * (2) AS m FROM records r", False),
    ],
)
def test_a_star_that_makes_one_value_of_all_columns_is_known(sql: str, inside: bool) -> None:
    assert bool(_STAR_INSIDE.search(sql)) == inside
