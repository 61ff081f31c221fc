"""Avro schemas: references filled in, and what can be read as what."""

import json
import re
from typing import Any

import pytest
from avro_bytes import encoded
from avro_cases import BAD
from both_decoders import avro_by_auditor

from connector.decode.avro_evolution import unrounded
from connector.decode.avro_resolution import misfit
from connector.decode.avro_schema import parse
from sinks.errors import UnusableSchema


def record(name: str = "R", **fields: Any) -> dict[str, Any]:
    """``fields``: a type, or a field without its name."""
    whole = {
        key: kind if isinstance(kind, dict) and "name" not in kind else {"type": kind} for key, kind in fields.items()
    }
    return {"type": "record", "name": name, "fields": [{"name": key, **field} for key, field in whole.items()]}


def fits(writer: Any, reader: Any) -> str | None:
    written, read = parse(json.dumps(writer)), parse(json.dumps(reader))
    return misfit(written, unrounded(read, written))


def decimal(precision: int, scale: int) -> dict[str, Any]:
    return {"type": {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}}


def timestamp(unit: str) -> dict[str, Any]:
    return {"type": {"type": "long", "logicalType": f"timestamp-{unit}"}}


def test_names_are_in_full_and_what_says_nothing_of_the_data_is_left_out() -> None:
    text = json.dumps(
        {
            "type": "record",
            "name": "shop.Order",
            "doc": "x",
            "fields": [
                {"name": "a", "type": {"type": "fixed", "name": "F", "size": 2}, "doc": "x"},
                {"name": "b", "type": ["null", "F"], "default": None},
                {"name": "c", "type": {"type": "string", "avro.java.string": "String"}},
            ],
        }
    )
    fixed = {"type": "fixed", "name": "F", "namespace": "shop", "size": 2}
    assert parse(text).root == {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "a", "type": fixed},
            {"name": "b", "type": ["null", "shop.F"], "default": None},
            {"name": "c", "type": {"type": "string"}},
        ],
    }
    assert parse(text).docs == {"a": "x"}


def test_a_reference_is_filled_in_where_it_stands_first_and_keeps_its_namespace() -> None:
    city = parse('{"type": "enum", "name": "City", "symbols": ["A"]}')
    address = parse(json.dumps(record("geo.Address", city="City")), [city])
    order = parse(json.dumps(record("shop.Order", to="geo.Address", other="geo.Address", city="City")), [address])
    to, other, of_city = (field["type"] for field in order.root["fields"])
    assert to["fields"][0]["type"] == {"type": "enum", "name": "City", "namespace": "", "symbols": ["A"]}
    assert (other, of_city) == ("geo.Address", "City")


@pytest.mark.parametrize("text", ["string", '"string"', '{"type": "string"}', '{"type": {"type": "string"}}'])
def test_a_primitive_may_stand_alone(text: str) -> None:
    assert misfit(parse(text), parse('"string"')) is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", '"" isn\'t JSON'),
        ("{", '"{" isn\'t JSON'),
        ('{"type": "int", "x": NaN}', "NaN isn't a number of JSON"),
        ("nonsense", 'it names the type "nonsense", which nothing defines'),
        ("5", "5 isn't a type"),
        ("{}", "{} isn't a type"),
        ("[1]", "1 isn't a type"),
        ("[]", "the union [] has to hold at least one type"),
        ('["int", "int"]', "each type once"),
        ('["int", ["string"]]', "and no other union"),
        ('["int", {"type": ["string"]}]', "and no other union"),
        ('{"type": "record", "name": "R"}', "has no 'fields'"),
        ('{"type": "record", "name": "R", "fields": 5}', 'the fields of "R" are 5, which isn\'t a list'),
        ('{"type": "record", "name": "R", "fields": [5]}', "5 has no 'name'"),
        ('{"type": "record", "name": "R", "fields": [{"name": "a"}]}', "has no 'type'"),
        ('{"type": "record", "name": "R", "fields": [{"name": 5, "type": "int"}]}', "the name of"),
        ('{"type": "record", "name": "R", "fields": [{"name": "a-b", "type": "int"}]}', '"a-b" can\'t be the name'),
        (json.dumps({**record(a="int"), "fields": record(a="int")["fields"] * 2}), 'has the field "a" twice'),
        ('{"type": "record", "name": 5, "fields": []}', "the name of"),
        ('{"type": "record", "name": "int", "fields": []}', '"int" can\'t be the name of a type'),
        ('{"type": "record", "name": "R", "namespace": 5, "fields": []}', 'the namespace of "R" is 5'),
        ('{"type": "record", "name": "R", "aliases": "A", "fields": []}', 'the aliases of "R" are "A"'),
        ('{"type": "enum", "name": "E"}', "has no 'symbols'"),
        ('{"type": "enum", "name": "E", "symbols": ["A", "A"]}', 'the symbols of "E"'),
        ('{"type": "enum", "name": "E", "symbols": [5]}', 'the symbols of "E"'),
        ('{"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}', 'the default of "E" is "B"'),
        ('{"type": "fixed", "name": "F", "size": "2"}', 'the size of "F" is "2", which isn\'t a number of bytes'),
        ('{"type": "array"}', "has no 'items'"),
        ('{"type": "map", "values": null}', "null isn't a type"),
        ('{"type": "what"}', 'it names the type "what", which nothing defines'),
    ],
)
def test_what_is_no_schema_is_refused(text: str, why: str) -> None:
    with pytest.raises(UnusableSchema, match=f"^The Avro schema is malformed: .*{re.escape(why)}") as caught:
        parse(text)
    assert caught.value.hint


def within(kind: Any, levels: int) -> Any:
    for _ in range(levels):
        kind = {"type": "array", "items": kind}
    return kind


@pytest.mark.parametrize(
    "text",
    [
        "[" * 10_000 + "]" * 10_000,
        '{"type": ' * 10_000 + '"int"' + "}" * 10_000,
        '{"type": ' * 450 + '"int"' + "}" * 450,
        json.dumps(within("int", 101)),
        json.dumps({**record(a="int"), "fields": [{"name": "a", "type": "int", "default": within(0, 600)}]}),
        # A chain of names is as deep as it would be if each type were written in its place.
        json.dumps(record(**{f"f{n}": record(f"R{n}", of=f"R{n - 1}" if n else "int") for n in range(300)})),
    ],
)
def test_what_is_nested_too_deeply_is_refused(text: str) -> None:
    with pytest.raises(UnusableSchema, match="The Avro schema is nested too deeply: more than 100 levels of types"):
        parse(text)


def test_a_hundred_levels_are_read() -> None:
    deep = json.dumps(within("int", 99))
    assert misfit(parse(deep), parse(deep)) is None
    assert parse(parse(deep).text) == parse(deep)


@pytest.mark.parametrize(
    "logical",
    [
        {"logicalType": 5},
        {"logicalType": "decimal"},
        {"logicalType": "decimal", "precision": "10", "scale": 2},
        {"logicalType": "decimal", "precision": 2, "scale": 3},
        {"logicalType": "decimal", "precision": True},
    ],
)
def test_an_invalid_logical_type_has_no_effect(logical: dict[str, Any]) -> None:
    assert parse(json.dumps({"type": "bytes", **logical})).root == {"type": "bytes"}


def test_a_type_that_holds_itself_is_recognised() -> None:
    node = record("x.Node", value="int", next=["null", "Node"])
    assert parse(json.dumps(node)).recursive == "x.Node"
    assert misfit(parse(json.dumps(node)), parse(json.dumps(record("x.Node", value="int")))) is None
    twice = record("Pair", a=record("N", n="int"), b="N")
    assert parse(json.dumps(twice)).recursive is None


@pytest.mark.parametrize(
    ("writer", "reader"),
    [
        (record(a="int"), record(a="long")),
        (record(a="long", gone="string"), record(a="double")),
        (record(a="int"), record(a="int", b={"type": "string", "default": "x"})),
        (record(old="int"), record(new={"type": "int", "aliases": ["old"]})),
        (record(a="string"), record(a=["null", "string"])),
        (record(a=["null", "string"]), record(a="string")),
        (record(a="int"), record(a=["null", "double"])),
        (record(a=decimal(10, 2)), record(a=decimal(12, 2))),
        (record(a="long"), record(a=timestamp("millis"))),
        (record(a={"type": {"type": "array", "items": "int"}}), record(a={"type": {"type": "array", "items": "long"}})),
        (record("A", a="int"), record("B", a="int")),
        ("string", ["null", "string"]),
    ],
)
def test_a_schema_that_evolved_can_be_read(writer: Any, reader: Any) -> None:
    assert fits(writer, reader) is None


@pytest.mark.parametrize(
    ("writer", "reader", "why"),
    [
        (record(a="string"), record(a="int"), "a is string, which can't be read as int"),
        (record(a="int"), record(b="int"), "b isn't in it, and has no default in the reader's schema"),
        (record(a=record("S", b="long")), record(a=record("S", b="int")), "a.b is long, which can't be read as int"),
        (record(a=["null", "string"]), record(a="int"), "a is null, which can't be read as int"),
        (
            record(a=decimal(10, 2)),
            record(a=decimal(12, 4)),
            "a is decimal(10,2), which Avro would misread as decimal(12,4)",
        ),
        (
            record(a=timestamp("millis")),
            record(a=["null", timestamp("micros")["type"]]),
            "a is timestamp-millis, which Avro would misread as timestamp-micros",
        ),
        (
            record(a="string"),
            record(a=decimal(18, 2)),
            "a is string, which Avro would misread as decimal(18,2)",
        ),
        (
            record(a=["null", decimal(10, 2)["type"]]),
            record(a=["null", "string"]),
            "a is decimal(10,2), of which Avro would take the bytes for the text; a schema_file with the type as it "
            "was sent reads these records, dead_letters keeps them aside",
        ),
        (
            record(a="int"),
            record(a=["null", timestamp("millis")["type"]]),
            "a is int, which Avro would misread as timestamp-millis",
        ),
        (
            {"type": "fixed", "name": "F", "size": 2},
            {"type": "fixed", "name": "F", "size": 3},
            "the value has 2 bytes, which can't be read as 3",
        ),
    ],
)
def test_one_that_never_fits_or_would_be_misread_is_found(writer: Any, reader: Any, why: str) -> None:
    assert fits(writer, reader) == why


@pytest.mark.parametrize(
    ("reader", "writer", "found"),
    [
        (record(a="double", b="float"), record(a="long", b="int"), record(a="long", b="int")),
        (record(a="double"), record(a="int"), record(a="double")),
        (record(a="double"), record(a="float"), record(a="double")),
        (record(a=["null", "double"]), record(a="long"), record(a=["null", "long"])),
        (record(a={"type": "double", "default": 0.5}), record(a=["null", "long"]), record(a="long")),
        (record(a={"type": ["double", "null"], "default": 0.5}), record(a="long"), record(a=["long", "null"])),
        (record(new={"type": "double", "aliases": ["old"]}), record(old="long"),
         record(new={"type": "long", "aliases": ["old"]})),
        (record(one=record("In", x="double"), two="In"), record(one=record("In", x="long"), two="In"),
         record(one=record("In", x="long"), two="In")),
        ({"type": "array", "items": {"type": "map", "values": "float"}},
         {"type": "array", "items": {"type": "map", "values": "long"}},
         {"type": "array", "items": {"type": "map", "values": "long"}}),
        ("double", "long", "long"),
    ],
)  # fmt: skip
def test_a_whole_number_is_read_as_one_where_avro_would_round_it(reader: Any, writer: Any, found: Any) -> None:
    read, written = parse(json.dumps(reader)), parse(json.dumps(writer))
    exact = unrounded(read, written)
    assert exact.text == parse(json.dumps(found)).text
    assert (exact == read) == (reader == found)
    assert misfit(written, exact) is None


@pytest.mark.parametrize(
    ("writer", "reader"),
    [
        (record(a=["string", "long"]), record(a=["string", "double"])),
        (record(a=["int", "long"]), record(a="double")),
        (record(a="long"), record(a=["string", "float"])),
    ],
)
def test_what_would_be_rounded_in_a_union_of_several_types_is_refused(writer: Any, reader: Any) -> None:
    assert re.search("a is long, which Avro would round as (double|float)", fits(writer, reader) or "")


def test_in_a_union_the_type_that_avro_takes_counts() -> None:
    assert fits(record(a="long"), record(a=["double", "long"])) is None


def named(name: str, kind: str = "long", **more: Any) -> dict[str, Any]:
    """A type as Kafka Connect writes it, in a record that may lack the value."""
    of = {"type": kind, "connect.version": 1, "connect.name": name, **more}
    return {"type": "record", "name": "Value", "fields": [{"name": "at", "type": ["null", of], "default": None}]}


PLAIN = {"type": "record", "name": "Value", "fields": [{"name": "at", "type": ["null", "long"], "default": None}]}
DAYS = named("io.debezium.time.Date", "int")
MILLIS, MICROS = named("io.debezium.time.Timestamp"), named("io.debezium.time.MicroTimestamp")
OF_CONNECT = named("org.apache.kafka.connect.data.Timestamp", logicalType="timestamp-millis")


@pytest.mark.parametrize(
    ("writer", "reader", "refused"),
    [
        (MILLIS, MICROS, True), (MICROS, MILLIS, True), (MICROS, OF_CONNECT, True), (OF_CONNECT, MICROS, True),
        (DAYS, MILLIS, True), (named("io.debezium.time.Time", "int"), named("io.debezium.time.MicroTime"), True),
        # The same numbers under another name, or where one side has none: they have always been what they are called.
        (MILLIS, MILLIS, False), (MILLIS, OF_CONNECT, False), (OF_CONNECT, MILLIS, False),
        (PLAIN, MICROS, False), (MICROS, PLAIN, False), (DAYS, PLAIN, False),
        (named("com.shop.Number"), MICROS, False), (named("com.shop.A"), named("com.shop.B"), False),
    ],
)  # fmt: skip
def test_a_unit_that_only_connects_name_tells_is_not_taken_for_another(writer: Any, reader: Any, refused: bool) -> None:
    why = fits(writer, reader)
    assert (why is not None and "schema_file" in why) is refused, why
    sent = encoded(writer, {"at": None}), encoded(PLAIN, {"at": 20_000})
    found = avro_by_auditor(writer, reader, *sent)
    assert ([each == BAD for each in found] == [True, True]) is refused, "the auditor has the same rule"


def test_connects_names_are_nothing_that_tells_two_schemas_apart() -> None:
    """Topics of one table may have a name each, or none, and Avro itself gets none."""
    one, other = (parse(json.dumps(each)) for each in (MICROS, named("com.shop.Number")))
    assert one.text == other.text
    assert one != other
    assert parse(json.dumps(one.root)) == one
