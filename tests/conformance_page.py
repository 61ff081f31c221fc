"""The page docs/conformance.md: what Lakelock makes of other people's test suites. `make docs` writes it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

import avro_cases as avro
import conformance_changes as changes
import conformance_protobuf as protobuf
import debezium_cases as debezium
import json_schema_cases as schemas
from cdc_flows import FLOWS, SOURCE, Flow
from json_oracle import BAD, meaning
from json_texts import ACCEPTED, FREE, REFUSED
from protobuf_cases import SOURCE as PROTOBUF_SOURCE

JSON_SOURCE = "https://github.com/nst/JSONTestSuite"

FREE_KINDS = {
    "a huge or a tiny number, or one of many digits": "A STRING keeps its text. A column of numbers takes it if it is "
    "in the column's range. Otherwise the record is a bad record",
    "500 arrays within each other": "Such a depth is no reason to refuse it",
    "half a character: one escape of a pair of surrogates": "It has no UTF-8, so no table could hold it",
    "bytes that are no UTF-8, UTF-16 among them": "RFC 8259 asks for UTF-8. A guess could be another text",
    "a byte order mark before the text": "RFC 8259 lets no producer add one",
}
"""The texts that a parser may take or refuse -> why they are taken, or refused."""


def kind_of(text: bytes) -> str:
    """Of a text that a parser may take or refuse: its entry of ``FREE_KINDS``."""
    number, deep, half, no_utf8, mark = FREE_KINDS
    try:
        decoded = text.decode()
    except UnicodeDecodeError:
        return no_utf8
    if decoded.startswith("\ufeff"):
        return mark
    return half if "\\u" in decoded.lower() else deep if decoded.startswith("[[") else number


def all_of(texts: dict[str, list[bytes]]) -> list[bytes]:
    return [text for group in texts.values() for text in group]


def is_taken(text: bytes) -> bool:
    return meaning(text) is not BAD


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def holds(held: bool) -> str:
    return "holds" if held else "**doesn't hold**"


def flows_that_hold() -> tuple[int, int, int]:
    """All of them; those that hold here; those that AUTO CDC's users found to hold there."""
    return len(FLOWS), sum(flow.holds for flow in FLOWS), sum(flow.auto_cdc for flow in FLOWS)


def of_flows(flows: Iterable[Flow]) -> str:
    rows = (
        (flow.name, sentence(flow.about), flow.rule, holds(flow.auto_cdc), holds(flow.holds), flow.why)
        for flow in flows
    )
    return table(["", "flow", "the table's rule", "AUTO CDC", "Lakelock", "why"], rows)


def flows_apart() -> str:
    """The table of the flows that don't hold in both."""
    return of_flows(flow for flow in FLOWS if not (flow.holds and flow.auto_cdc))


def of_json() -> str:
    free = {kind: [text for text in all_of(FREE) if kind_of(text) == kind] for kind in FREE_KINDS}
    rows = [
        ("what every parser has to take", len(all_of(ACCEPTED)), "taken", "As RFC 8259 says"),
        ("what every parser has to refuse", len(all_of(REFUSED)), "bad records", "As RFC 8259 says"),
        *(
            (f"free: {kind}", len(texts), "taken" if is_taken(texts[0]) else "bad records", FREE_KINDS[kind])
            for kind, texts in free.items()
        ),
    ]
    return table(["texts", "cases", "they are", "why"], rows)


def of_avro() -> str:
    schemas, odd = len(avro.FORMS), [form for form in avro.FORMS if form.refused]
    wrong = [case for case in avro.CONTENTS if case.by_spark is not None]
    (unaudited,) = (form for form in avro.FORMS if form.unaudited)
    rows = [
        ("ways to write a schema", schemas - len(odd), "read", f"`verify` doesn't read {unaudited.about}: "
         f"{unaudited.unaudited}"),
        *((form.about, 1, "refused", sentence(form.refused)) for form in odd),
        ("bytes that are no value", len(avro.MALFORMED) - len(wrong), "bad records",
         "As every decoder has to: lengths and numbers that don't end or are negative, branches and symbols that "
         "aren't there"),
        *((f"bytes that are no value: {case.about}", 1, "**taken**", avro.NOT_PASSED) for case in wrong),
        ("values of every type", len(avro.VALUES), "read", "Unions of several types become one column for each"),
        ("values of an older or newer schema", len(avro.EVOLVED), "as Avro says", "A field without a default that the "
         "writer lacks makes a bad record"),
        *((about, 1, "refused", sentence(why)) for about, why in avro.REFUSED.items()),
    ]  # fmt: skip
    return table(["what", "cases", "they are", "why"], rows)


def json_counts() -> tuple[int, int, int]:
    """All texts; those of them that a parser may take or refuse; those of these that are refused."""
    free = all_of(FREE)
    refused = [text for text in free if not is_taken(text)]
    return len(all_of(ACCEPTED) + all_of(REFUSED) + free), len(free), len(refused)


def avro_counts() -> tuple[int, int, int]:
    """All cases; those that are refused on purpose; those that don't pass."""
    no_schema = [form for form in avro.FORMS if form.refused]
    wrong = [case for case in avro.CONTENTS if case.by_spark is not None]
    cases = len(avro.FORMS) + len(avro.CONTENTS) + len([avro.LEAF])
    return cases, len(no_schema) + len(avro.REFUSED), len(wrong)


def of_json_schema() -> str:
    cases, odd = len(list(schemas.every_case())), [text for text, valid in schemas.ODD if not valid]
    rows = [
        ("a schema and a record", cases - len(odd), "valid or bad records", "As the schema's draft says"),
        ("a record that every schema refuses", len(odd), "bad records", "It is no JSON object, has a field twice, a "
         "number of more than 1,000 places, or more than 100 arrays within each other"),
        *((sentence(about), len(of), "refused", why) for why, (about, of) in schemas.REFUSED.items()),
    ]  # fmt: skip
    return table(["what", "cases", "they are", "why"], rows)


def of_debezium() -> str:
    refused: dict[str, list[str]] = {}
    for case in debezium.ALL:
        if case.refused:
            refused.setdefault(case.refused, []).append(case.about)
    keys, values = (
        len([case for case in cases if not case.refused])
        for cases in (debezium.KEYS, [*debezium.EVENTS, debezium.UNWRAPPED])
    )
    rows = [
        ("keys of tombstones", keys, "read", "A null names no row, so that the tombstone is a bad record"),
        ("values", values, "read", "Within their schema and without"),
        *((sentence("; ".join(cases)), len(cases), "bad records", sentence(why)) for why, cases in refused.items()),
    ]  # fmt: skip
    return table(["what", "cases", "they are", "why"], rows)


def of_protobuf() -> str:
    return with_reasons(protobuf.rows())


def of_changes() -> str:
    return with_reasons(changes.rows())


def with_reasons(rows: Iterable[tuple[str, int, str, str]]) -> str:
    made = ((what, cases, they, sentence(why)) for what, cases, they, why in rows)
    return table(["what", "cases", "they are", "why"], made)


def of_suites() -> str:
    flows, held, _ = flows_that_hold()
    texts, free, no_text = json_counts()
    cases, no_case, wrong = avro_counts()
    no_event = len([case for case in debezium.ALL if case.refused])
    schema_cases = len(list(schemas.every_case()))
    all_protobuf, no_protobuf = protobuf.counts()
    rows = [
        (
            "[Change events](#change-events)",
            f"[I Tried to Break Lakeflow AUTO CDC]({SOURCE}) by Ivan Vydrin. It has no licence: the flows are told "
            "anew, with records of our own",
            flows, held, flows - held, 0,
        ),
        (
            "[JSON](#json)", f"[JSONTestSuite]({JSON_SOURCE}) by Nicolas Seriot, MIT License",
            texts, texts, f"of these {no_text}, of {free} that a parser may refuse", 0,
        ),
        (
            "[JSON Schema](#json-schema)",
            f"[JSON-Schema-Test-Suite]({schemas.SOURCE}), MIT License. What it looks at, with schemas and records of "
            "our own",
            schema_cases + len(schemas.UNUSABLE), schema_cases, len(schemas.UNUSABLE), 0,
        ),
        (
            "[Avro](#avro)",
            f"[share/test]({avro.SOURCE}) of Apache Avro, Apache License 2.0. The cases, with schemas and "
            "bytes of our own",
            cases, cases - no_case - wrong, no_case, wrong,
        ),
        (
            "[Debezium](#debezium)",
            f"[SerdeTest]({debezium.SOURCE}) of Debezium, Apache License 2.0. The cases, with records of our own",
            len(debezium.ALL), len(debezium.ALL) - no_event, no_event, 0,
        ),
        (
            "[Protobuf](#protobuf)",
            f"[The conformance suite]({PROTOBUF_SOURCE}) of Protocol Buffers, BSD 3-Clause. The cases of binary input, "
            "with schemas and bytes of our own",
            all_protobuf, all_protobuf - no_protobuf, no_protobuf, 0,
        ),
        *(
            ("[Changes of schemas](#changes-of-schemas)", source, all_cases, all_cases - apart, apart, 0)
            for source, all_cases, apart in changes.counts()
        ),
    ]  # fmt: skip
    return table(["suite", "where it is from", "cases", "passed", "not, on purpose", "not passed"], rows)


def in_short() -> str:
    """Its results in a line, for README."""
    flows, held, there = flows_that_hold()
    texts, *_ = json_counts()
    cases, no_case, wrong = avro_counts()
    all_protobuf, no_protobuf = protobuf.counts()
    return (
        f"of {flows} flows that were made to break AUTO CDC {held} hold here, and {there} held there; the {texts} "
        "texts of JSONTestSuite are read or refused as RFC 8259 says; "
        f"{cases - no_case - wrong} of {cases} cases of Avro's own suite pass, and {all_protobuf - no_protobuf} of "
        f"{all_protobuf} of Protobuf's"
    )


def sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def page() -> str:
    flows, held, there = flows_that_hold()
    texts, *_ = json_counts()
    return f"""\
# Other people's suites

This page is for anyone who wants to see how Lakelock does in tests that others wrote. `make docs` writes it from the
cases. The tests run each case, and fail if a result isn't the one that stands here.

{of_suites()}

## Change events

Each flow sends change events to a topic: twice, late, in the wrong order, or with a part missing. Each has a rule that
the table must meet. Of {flows} flows {held} hold here, and {there} held in AUTO CDC, by its author's results: 3A holds
only here. Where a flow doesn't hold, the row says why. What is late comes in a later epoch, and `lakelock verify`
agrees with every table ([test_cdc_flows](../tests/integration/test_cdc_flows.py)).

{of_flows(FLOWS)}

## JSON

The suite has 318 files with {texts} different texts. Each text is tried as a whole record, which has to be an object,
and as the value of a field: of a column, of an array in one, and of a field that no column has. A VARIANT takes only
numbers that it can hold. The pipeline, its columnar reader and the auditor give the same rows. One thing differs: the
auditor takes an object with more text behind it, and then says of the dead letter that it can't confirm it
([test_json_exact](../tests/integration/test_json_exact.py)).

{of_json()}

`mode: permissive` takes more: [options.md](options.md) says what.

## JSON Schema

With `validate: true` a record has to be valid by its JSON Schema, of draft 4, 6, 7, 2019-09 or 2020-12. The pipeline
validates with a validator of its own on the executors ([test_json_valid](../tests/integration/test_json_valid.py)), the
auditor with the library `jsonschema` ([test_json_valid](../tests/unit/connector/audit/test_json_valid.py)). Both agree
on every case.

{of_json_schema()}

The optional part of the suite is left out: `format` describes a value, and refuses none.

## Avro

The pipeline decodes with Spark ([test_other_suites](../tests/integration/test_other_suites.py)), the auditor with
fastavro ([test_avro_cases](../tests/unit/connector/decode/test_avro_cases.py)). Both give the same results, except
where a row says otherwise.

{of_avro()}

Two parts of the suite are left out, as Kafka has neither: files of records (`.avro`), and protocols.

## Debezium

Debezium's own consumers read keys and values in JSON, within their schema and without. Its options for reading the row
before an update, and for stopping at a field that nobody knows, have counterparts in a `delta_history` and in
`on_new_column` ([test_other_suites](../tests/integration/test_other_suites.py)).

{of_debezium()}

## Protobuf

The cases are those of proto2 and proto3, and what is new in edition 2023. All cases of a syntax go through one topic
and one run with dead letters, and `lakelock verify` agrees with the table
([test_protobuf_cases](../tests/integration/test_protobuf_cases.py)). The auditor reads with Google's own library
([test_protobuf_cases](../tests/unit/connector/decode/test_protobuf_cases.py)).

{of_protobuf()}

These parts of the suite are left out: JSON and text as input, writing, and speed. Of its part about JSON the well-known
types are here, as the messages that they stand for.

## Changes of schemas

A registry says whether a newer schema may follow an older one. These cases show what becomes of the older one's records
with the newer one's columns: of Avro with the newer one in `schema_file`, of Protobuf with `on_new_column: ignore`, of
JSON Schema with `validate: true` ([test_compatibility](../tests/unit/connector/decode/test_compatibility.py),
[test_json_valid](../tests/unit/connector/audit/test_json_valid.py), with Spark
[test_other_suites](../tests/integration/test_other_suites.py) and
[test_json_valid](../tests/integration/test_json_valid.py)).

{of_changes()}

Of JSON Schema and Protobuf only changes are here that mean something for a record.

Next: [comparison.md](comparison.md) for the tools themselves, [guarantees.md](guarantees.md) for what Lakelock
promises.
"""


if __name__ == "__main__":
    sys.stdout.write(page())
