"""One Avro schema with room for what two have."""

import json
from typing import Any

import pytest

from connector.decode.avro_evolution import checked_decimals, grown, new_fields, with_symbols
from connector.decode.avro_resolution import misfit
from connector.decode.avro_schema import parse


def record(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": key, "type": kind} for key, kind in fields.items()]}


INNER = record("shop.At", zip="string")
CARD, CASH = record("shop.Card", no="string"), record("shop.Cash", till="int")
LONGER = record("shop.Card", no="string", holder=record("shop.Holder", first="string"))


@pytest.mark.parametrize(
    ("reader", "writer", "new"),
    [
        (record("R", a="int"), record("R", a="int", b="string"), ["b"]),
        (record("R", a="int"), record("R", a="long"), []),
        (record("R", a="float"), record("R", a="double"), []),
        (record("R", a="int", b="string"), record("R", a="int"), []),
        (record("R", a=["null", "int"]), record("R", a="long"), []),
        (record("R", a="int"), record("R", a=["null", "long"]), []),
        (record("R", at=INNER), record("R", at=record("shop.At", zip="string", city="string")), ["at.city"]),
        (record("R", at=["null", INNER]), record("R", at=record("shop.At", city="string")), ["at.city"]),
        (
            record("R", all={"type": "array", "items": INNER}),
            record(
                "R",
                all={"type": "array", "items": record("shop.At", zip="string", x={"type": "map", "values": "int"})},
            ),
            ["all.x"],
        ),
        (record("R", at=INNER), record("R", at=INNER, to="shop.At"), ["to"]),
        (record("R", at=INNER, a="int"), record("R", a="int", to=["null", INNER]), ["to"]),
        # In unions of several types: each is the type of its name.
        (record("R", how=["null", CASH, CARD]), record("R", how=["null", LONGER, CASH]), ["how.member1.holder"]),
        (record("R", how=[CASH, {**CARD, "name": "Karte", "aliases": ["shop.Card"]}]), record("R", how=[LONGER, CASH]),
         ["how.member1.holder"]),
        (record("R", all={"type": "array", "items": [CARD, CASH]}), record("R", all={"type": "array", "items": [
            "null", LONGER, record("shop.Cash", till="int", by="string"), record("shop.Coin", x="int")]}),
         ["all.member0.holder", "all.member1.by"]),
        ([CARD, CASH], [LONGER, CASH], ["member0.holder"]),
        (record("R", how=CARD), record("R", how=["null", LONGER, CASH]), ["how.holder"]),
        (record("R", how=["string", {"type": "map", "values": CARD}]),
         record("R", how=[{"type": "map", "values": LONGER}, "null", "string"]), ["how.member1.holder"]),
        (record("R", how=[record("A", one=[CARD, CASH]), "int"]),
         record("R", how=["int", record("A", one=[CASH, LONGER])]),
         ["how.member0.one.member0.holder"]),
    ],
)  # fmt: skip
def test_what_has_grown_has_room_for_both(reader: Any, writer: Any, new: list[str]) -> None:
    read, written = parse(json.dumps(reader)), parse(json.dumps(writer))
    assert new_fields(read, written) == new
    both = grown(read, written)
    assert (misfit(read, both), misfit(written, both)) == (None, None)
    assert (new_fields(both, read), new_fields(both, written)) == ([], [])
    assert grown(both, written).text == both.text


def test_the_symbols_of_every_version_are_read() -> None:
    def enum(name: str, *symbols: str, **more: Any) -> dict[str, Any]:
        return {"type": "enum", "name": name, "symbols": symbols, "default": symbols[0], **more}

    read = record("R", a=["null", enum("shop.E", "A", "B")], b={"type": "array", "items": "shop.E"})
    written = record("R", a=enum("shop.E", "A", "C", "B"), c=enum("F", "X"))
    both = with_symbols(parse(json.dumps(read)), parse(json.dumps(written)))
    assert both.names["shop.E"]["symbols"] == ["A", "B", "C"]
    assert (both.root["fields"][1]["type"], set(both.names)) == ({"type": "array", "items": "shop.E"}, {"R", "shop.E"})
    renamed = parse(json.dumps(enum("shop.New", "A", aliases=["E"])))
    assert with_symbols(renamed, parse(json.dumps(written))).root["symbols"] == ["A", "C", "B"]
    assert with_symbols(both, parse(json.dumps(written))) == both


def test_a_decimal_is_read_with_digits_enough_to_check_it() -> None:
    def decimal(kind: str, precision: int, **more: Any) -> dict[str, Any]:
        return {"type": kind, "logicalType": "decimal", "precision": precision, "scale": 2, **more}

    fields = {
        "few": decimal("bytes", 10), "many": decimal("bytes", 19), "no": "bytes",
        "small": decimal("fixed", 10, name="Eight", size=8), "large": decimal("fixed", 10, name="Nine", size=9),
        "again": {"type": "map", "values": "Nine"}, "list": {"type": "array", "items": ["null", decimal("bytes", 18)]},
        "huge": decimal("fixed", 18, name="Huge", size=99),
    }  # fmt: skip
    schema = parse(json.dumps(record("R", **fields)))
    checked = {each["name"]: each["type"] for each in checked_decimals(schema).root["fields"]}
    assert {name: kind.get("precision") for name, kind in checked.items() if isinstance(kind, dict)} == {
        "few": 38, "many": 19, "small": 10, "large": 21, "again": None, "list": None, "huge": 38,
    }  # fmt: skip
    assert (checked["again"]["values"], checked["list"]["items"][1]["precision"]) == ("Nine", 38)
    assert {kind["scale"] for kind in checked.values() if isinstance(kind, dict) and "scale" in kind} == {2}
    plain = parse(json.dumps(record("R", a=decimal("bytes", 19))))
    assert checked_decimals(plain) is plain


def test_what_has_grown_keeps_the_docs_of_both_the_readers_first() -> None:
    def told(**docs: str) -> str:
        return json.dumps(
            {**record("R"), "fields": [{"name": n, "type": "int", "doc": doc} for n, doc in docs.items()]}
        )

    assert grown(parse(told(a="read")), parse(told(a="written", b="new"))).docs == {"a": "read", "b": "new"}


def test_what_no_schema_has_room_for_stays_a_misfit() -> None:
    read, written = parse(json.dumps(record("R", a="int"))), parse(json.dumps(record("R", a="string")))
    assert misfit(written, grown(read, written)) is not None


LATEST = record("R", k="int", pay=record("Pay", amount="long"))
FIRST = record("R", k="int", discount="int", gone="int", pay=record("Pay", amount="long", bonus="int", x="int"))
SECOND = record("R", k="int", discount="long", pay=record("Pay", amount="int"))


def test_only_some_of_the_dropped_fields_come_back_with_the_widest_type_of_any_version() -> None:
    latest, first, second = (parse(json.dumps(each)) for each in (LATEST, FIRST, SECOND))
    only = ["discount", "pay.bonus"]
    both = grown(grown(latest, first, only), second, only)
    wanted = record("R", k="int", pay=record("Pay", amount="long"))
    optional = {"default": None}
    wanted["fields"][1]["type"]["fields"].append({"name": "bonus", "type": ["null", "int"], **optional})
    wanted["fields"].append({"name": "discount", "type": ["null", "long"], **optional})
    assert both.text == parse(json.dumps(wanted)).text
    assert new_fields(both, first) == ["gone", "pay.x"]
    assert misfit(first, both) is None
    assert grown(latest, first, []).text == latest.text


def test_what_the_schemas_differ_in_beside_the_fields_that_come_back_stays_as_the_latest_has_it() -> None:
    latest = parse(json.dumps(record("R", k="int", only_new="string")))
    older = parse(json.dumps(record("R", k=["null", "long"], discount="int")))
    assert grown(latest, older, ["discount"]).root["fields"][:2] == latest.root["fields"]
