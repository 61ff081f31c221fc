"""Unions of several records in Avro: a value is read as the type that it was written as, or not at all."""

import json
from typing import Any

import pytest
from avro_bytes import encoded, field, record
from both_decoders import avro_by_auditor
from hypothesis import given, settings
from hypothesis import strategies as st
from json_oracle import BAD

from connector.audit.avro_schema import Schema, same_record
from connector.decode.avro_apart import told_apart
from connector.decode.avro_evolution import moved
from connector.decode.avro_resolution import misfit
from connector.decode.avro_schema import AvroSchema, full_name, parse
from connector.decode.avro_unions import aliases, record_of
from sinks.errors import UnusableSchema


def of(schema: Any) -> AvroSchema:
    return parse(json.dumps(schema))


PLACED = record(field("id", "long"), field("at", "long"), name="shop.Placed")
CANCELLED = record(field("id", "long"), field("why", "string"), name="shop.Cancelled")
REFUNDED = record(field("id", "long"), field("at", "long"), field("amount", "long"), name="shop.Refunded")
OLD, NEW = {"id": 1, "at": 2}, {"id": 1, "at": 2, "amount": 3}


def event(*types: Any) -> dict[str, Any]:
    return record(field("event", list(types)), name="shop.Event")


def named(name: str, **more: Any) -> dict[str, Any]:
    return {**PLACED, "name": name, **more}


@pytest.mark.parametrize(
    ("writer", "reader", "unread", "found"),
    [
        # Of a type that the reader's lacks. The first of its branches has the fields for it.
        ([PLACED, CANCELLED, REFUNDED], [PLACED, CANCELLED], ["shop.Refunded"], BAD),
        ([PLACED, CANCELLED, REFUNDED], ["null", PLACED, CANCELLED], ["shop.Refunded"], BAD),
        ([PLACED, REFUNDED], ["null", PLACED], ["shop.Refunded"], BAD),
        (["null", PLACED, REFUNDED], [PLACED], ["shop.Refunded"], BAD),
        # By the name that it has, or had.
        ([PLACED, REFUNDED], [PLACED, REFUNDED], [], {"member0": None, "member1": NEW}),
        ([PLACED, REFUNDED], [REFUNDED, PLACED], [], {"member0": NEW, "member1": None}),
        (
            [PLACED, REFUNDED],
            [PLACED, named("shop.Returned", aliases=["Refunded"])],
            [],
            {"member0": None, "member1": OLD},
        ),
        # In another namespace, where no second has the name.
        ([PLACED, REFUNDED], [named("new.Placed"), {**REFUNDED, "name": "new.Refunded"}], [],
         {"member0": None, "member1": NEW}),
        ([PLACED, {**REFUNDED, "name": "old.Placed"}], [PLACED, CANCELLED], ["old.Placed"], BAD),
        ([CANCELLED, REFUNDED], [CANCELLED, named("a.Refunded"), named("b.Refunded")], ["shop.Refunded"], BAD),
        # One record: its fields tell, as Avro has it. So is what the writer's records have in common.
        (["null", REFUNDED], ["null", PLACED], [], OLD),
        ([CANCELLED, REFUNDED], [record(field("id", "long"), name="Any")], [], {"id": 1}),
    ],
)  # fmt: skip
def test_a_record_is_read_as_the_type_of_its_name(writer: Any, reader: Any, unread: list[str], found: Any) -> None:
    written, read = event(*writer), event(*reader)
    content = encoded(written, {"event": ("old.Placed" if "old.Placed" in unread else "shop.Refunded", NEW)})
    assert avro_by_auditor(written, read, content) == [BAD if found is BAD else {"event": found}]
    assert misfit(of(written), of(read)) is None
    apart, others = told_apart(of(written), of(read))
    assert others == unread
    kinds = [kind["type"] if isinstance(kind, dict) else kind for kind in apart.root["fields"][0]["type"]]
    assert kinds.count("fixed") == len(unread)
    assert (apart == of(written)) is not bool(unread)


def test_a_schema_all_of_whose_types_the_union_lacks_is_refused() -> None:
    for writer, reader in (
        (event(REFUNDED), event(PLACED, CANCELLED)),
        (record(field("event", REFUNDED), name="shop.Event"), event("null", PLACED, CANCELLED)),
    ):
        why = misfit(of(writer), of(reader))
        assert why == "event is the record shop.Refunded, which the reader's schema doesn't have there"
        value: Any = {"event": NEW}
        assert avro_by_auditor(writer, reader, encoded(writer, value)) == [BAD]


def test_types_are_told_apart_wherever_the_union_is() -> None:
    lists = {"type": "array", "items": [PLACED, CANCELLED, REFUNDED]}
    writer = record(
        field("ignored", {"type": "map", "values": REFUNDED}),
        field("events", ["null", {"type": "map", "values": {**lists, "items": [PLACED, CANCELLED, "shop.Refunded"]}}]),
        field("again", ["null", "shop.Refunded"]),
        field("inner", [record(field("one", ["shop.Refunded"]), name="In"), "null"]),
    )
    reader = record(
        field("events", ["null", {"type": "map", "values": {**lists, "items": [PLACED, CANCELLED]}}]),
        field("again", ["null", REFUNDED]),
        field("inner", ["null", record(field("one", ["shop.Placed", "shop.Cancelled"]), name="In")]),
    )
    assert misfit(of(writer), of(reader)) is None
    apart, others = told_apart(of(writer), of(reader))
    assert others == ["shop.Refunded", "shop.In"]
    ignored, events, again, inner = (each["type"] for each in apart.root["fields"])
    assert ignored["values"]["name"] == "Refunded", "what is skipped is defined where it is first"
    items = events[1]["values"]["items"]
    assert [items[0]["name"], items[1]["name"], items[2]["name"]] == ["Placed", "Cancelled", "lakelock_unread_2"]
    assert again == ["null", "shop.Refunded"]
    assert inner[0]["type"] == "fixed"


def test_a_type_that_is_read_as_two_is_refused() -> None:
    """In one of them all of its union is read, in the other one a part: no schema of the writer's says both."""
    part = record(field("event", [PLACED, CANCELLED, REFUNDED]), name="Part")
    writer = record(field("all", part), field("some", "shop.Part"), field("skipped", "shop.Part"))
    all_of_it = record(field("event", [PLACED, CANCELLED, REFUNDED]), name="All")
    some = record(field("event", ["shop.Placed", "shop.Cancelled"]), name="Some")
    with pytest.raises(UnusableSchema, match=r"has shop\.Part in several places"):
        told_apart(of(writer), of(record(field("all", all_of_it), field("some", some))))
    right = of(record(field("all", all_of_it)))
    assert told_apart(of(writer), right) == (of(writer), [])


NAMES = st.sampled_from(["a.X", "b.X", "c.X", "a.Y", "b.Y", "a.Z"])
UNIONS = st.lists(NAMES, min_size=1, unique=True)


@settings(max_examples=500)
@given(UNIONS, UNIONS, st.dictionaries(NAMES, st.lists(NAMES | st.sampled_from("XY"), max_size=2)))
def test_pipeline_and_auditor_take_the_same_record_of_a_union(
    sent: list[str], there: list[str], former: dict[str, list[str]]
) -> None:
    writer = [record(name=name) for name in sent]
    reader = [{**record(name=name), "aliases": former.get(name, [])} for name in there]
    ours = of(reader).root, of(writer).root
    theirs = [Schema.of((json.dumps(union),)).root for union in (reader, writer)]
    for mine, audited in zip(ours[1], theirs[1], strict=True):
        found, again = record_of(mine, ours[1], ours[0]), same_record(audited, theirs[1], theirs[0])
        assert (full_name(found) if found else None) == (again["name"] if again else None)
        if len(there) > 1 and found:
            name = full_name(found)
            assert full_name(mine) in (name, *aliases(found)) or name.split(".")[1] == full_name(mine).split(".")[1]


@pytest.mark.parametrize(
    ("older", "newest", "found"),
    [
        (["null", "Card", "Cash"], ["null", "Cash", "Card"], ["pay"]),
        (["null", "Card", "Cash"], ["null", "Bank", "Card", "Cash"], ["pay"]),
        (["Card", "Cash", "Bank"], ["Card", "Bank"], ["pay"]),
        (["Card", "Cash"], ["Card", "Bank"], ["pay"]),
        (["null", "Card"], ["null", "Card", "Cash"], ["pay"]),
        (["null", "Card", "Cash"], ["Card", "Cash", "null", "Bank"], []),
        (["Card", "Cash"], ["null", "Card", "Cash"], []),
        (["null", "Card"], ["Cash"], []),
        (["null", "Card", "Cash", "Bank"], ["null", "Card", "Cash"], []),
    ],
)
def test_a_type_of_a_union_with_another_number_is_found(older: list[str], newest: list[str], found: list[str]) -> None:
    """A table's member1 would hold two types, and nothing would tell which."""

    def of(names: list[str], items: bool = False) -> Any:
        fields = [{"name": "no", "type": "string"}, {"name": "amount", "type": "long"}]
        union = [name if name == "null" else {"type": "record", "name": name, "fields": fields} for name in names]
        kind = {"type": "array", "items": union} if items else union
        return parse(json.dumps({"type": "record", "name": "Order", "fields": [{"name": "pay", "type": kind}]}))

    assert moved(of(newest), of(older)) == found
    assert moved(of(newest, items=True), of(older, items=True)) == found
    assert moved(of(newest), of(newest)) == []


def test_a_number_of_a_union_that_got_wider_is_where_it_was() -> None:
    older, newest = (parse(json.dumps(["null", number, "string"])) for number in ("int", "long"))
    assert moved(newest, older) == []
