"""The part of docs/conformance.md about changes of schemas: what a registry says, and what the records become."""

from __future__ import annotations

from collections.abc import Iterable

import compatibility_cases as avro
import compatibility_json as json_schema
import compatibility_protobuf as protobuf

REGISTRY = "of Confluent's schema registry, Confluent Community License: the cases are told anew"
COMPARED = [*avro.PAIRS, *(pair for pair, _, _ in avro.VALUES)]


def _apart(cases: Iterable[object], why: str) -> int:
    """How many are decided otherwise for this reason. Empty: for none."""
    return len([case for case in cases if getattr(case, "why", None) == why])


def counts() -> list[tuple[str, int, int]]:
    """Of each suite: where it is from, all cases, and those that are decided otherwise on purpose."""
    of_apache = [*avro.OF_APACHE, *(pair for pair, _, _ in avro.VALUES)]
    return [
        (
            f"Avro: [AvroCompatibilityTest]({avro.CONFLUENT}) {REGISTRY}",
            len([*avro.OF_CONFLUENT, avro.ODD_DEFAULT]), len(avro.OF_CONFLUENT) - _apart(avro.OF_CONFLUENT, ""),
        ),
        (
            f"Avro: [TestSchemaCompatibility]({avro.APACHE}) of Apache Avro, whose checker the registry asks, Apache "
            "License 2.0. The cases, with schemas of our own",
            len(of_apache), len(of_apache) - _apart(of_apache, ""),
        ),
        (
            f"JSON Schema: [diff-schema-examples.json]({json_schema.SOURCE}) {REGISTRY}",
            len(json_schema.CHANGES), len(json_schema.CHANGES) - _apart(json_schema.CHANGES, ""),
        ),
        (
            f"Protobuf: [diff-schema-examples.json]({protobuf.SOURCE}) {REGISTRY}",
            len(protobuf.CHANGES), len(protobuf.CHANGES) - _apart(protobuf.CHANGES, ""),
        ),
    ]  # fmt: skip


def rows() -> list[tuple[str, int, str, str]]:
    return [*_of_avro(), *_of_json_schema(), *_of_protobuf()]


def _of_avro() -> list[tuple[str, int, str, str]]:
    plain = [pair.fits for pair in COMPARED if not pair.why]
    apart = [
        ("a type or a symbol goes", avro.ONE_BY_ONE, "read, or bad records"),
        ("records of another name", avro.ANY_NAME, "read"),
        ("whole numbers that Avro would round", avro.ROUNDED, "refused, or bad records"),
        ("enums of another namespace", avro.NAMESPACE, "refused"),
        ("records in themselves", avro.ITSELF, "refused"),
        ("unions of no type", avro.NO_VALUE, "refused"),
    ]
    return [
        ("Avro: pairs that fit", plain.count(True) + 1, "read", "As Avro says, also where it takes an enum's default"),
        ("Avro: pairs that don't", plain.count(False), "refused", "The error, or the dead letter, says why"),
        *((f"Avro: {about}", _apart(COMPARED, why), they, why) for about, why, they in apart),
    ]


def _of_json_schema() -> list[tuple[str, int, str, str]]:
    cases = json_schema.CHANGES
    plain = [case.allowed for case in cases if not case.why]
    by_schema = "by the newer schema, in `schema_file`. With a registry each record has its own schema"
    return [
        ("JSON Schema: changes that are allowed", plain.count(True), "valid", by_schema),
        ("JSON Schema: changes that aren't", plain.count(False), "bad records", by_schema),
        (
            "JSON Schema: a required field without a schema", _apart(cases, json_schema.REQUIRED), "bad records",
            json_schema.REQUIRED,
        ),
        ("JSON Schema: `additionalItems` alone", _apart(cases, json_schema.NO_LIST), "valid", json_schema.NO_LIST),
    ]  # fmt: skip


def _of_protobuf() -> list[tuple[str, int, str, str]]:
    cases = protobuf.CHANGES
    plain = [case.allowed for case in cases if not case.why]
    return [
        ("Protobuf: changes that are allowed", plain.count(True), "read", "in the columns of the newer schema"),
        ("Protobuf: changes that aren't", plain.count(False), "bad records", "the dead letter says why"),
        ("Protobuf: others that aren't", _apart(cases, protobuf.BY_ITS_OWN), "read", protobuf.BY_ITS_OWN),
        (
            "Protobuf: another type, or several values for one", _apart(cases, protobuf.ONE_TYPE), "bad records",
            protobuf.ONE_TYPE,
        ),
    ]  # fmt: skip
