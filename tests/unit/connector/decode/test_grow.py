"""One Avro schema with room for what two have."""

import json
from typing import Any

import pytest

from connector.decode.avro_evolution import grown, new_fields
from connector.decode.avro_resolution import misfit
from connector.decode.avro_schema import parse


def record(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": key, "type": kind} for key, kind in fields.items()]}


INNER = record("shop.At", zip="string")


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
    ],
)  # fmt: skip
def test_what_has_grown_has_room_for_both(reader: Any, writer: Any, new: list[str]) -> None:
    read, written = parse(json.dumps(reader)), parse(json.dumps(writer))
    assert new_fields(read, written) == new
    both = grown(read, written)
    assert (misfit(read, both), misfit(written, both)) == (None, None)
    assert (new_fields(both, read), new_fields(both, written)) == ([], [])
    assert grown(both, written).text == both.text


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
