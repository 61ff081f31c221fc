"""The cases of Avro's own suite, as far as they need no JVM: schemas, and values as the auditor reads them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from avro_cases import BAD, CONTENTS, EVOLVED, FORMS, LEAF, Case, Form
from both_decoders import avro_by_auditor

from connector.audit.avro_schema import Schema
from connector.decode.avro_resolution import misfit
from connector.decode.avro_schema import parse
from sinks.errors import UnusableSchema


def takes(parser: Any, schema: Any) -> bool:
    try:
        parser(schema)
    except UnusableSchema:
        return False
    return True


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.about)
def test_a_schema_may_be_written_in_every_way(form: Form) -> None:
    text = json.dumps(form.schema)
    assert takes(parse, text) is not bool(form.refused)
    if not form.refused:
        assert takes(Schema.of, (text,)) is not bool(form.unaudited)
        assert parse(parse(text).text).root == parse(text).root


@pytest.mark.parametrize("case", CONTENTS, ids=lambda case: case.about)
def test_the_auditor_reads_what_is_a_value_and_nothing_else(case: Case) -> None:
    reader = case.schema if case.reader is None else case.reader
    assert plain(avro_by_auditor(case.schema, reader, case.content)) == [case.value]


@pytest.mark.parametrize("case", EVOLVED, ids=lambda case: case.about)
def test_what_a_readers_schema_can_be_made_of_is_known_from_the_schemas(case: Case) -> None:
    unfit = misfit(parse(json.dumps(case.schema)), parse(json.dumps(case.reader)))
    assert (unfit is not None) is (case.value is BAD)


def test_a_record_in_itself_is_refused() -> None:
    assert parse(json.dumps(LEAF.schema)).recursive == "Node"
    with pytest.raises(UnusableSchema, match="contains itself"):
        avro_by_auditor(LEAF.schema, LEAF.schema, LEAF.content)
    label = {**LEAF.schema, "fields": LEAF.schema["fields"][:1]}
    assert avro_by_auditor(LEAF.schema, label, LEAF.content) == [BAD]


def plain(value: Any) -> Any:
    """A map as a dict: Arrow has its pairs."""
    if isinstance(value, list):
        made = [plain(each) for each in value]
        return dict(made) if made and all(isinstance(each, tuple) for each in made) else made
    if isinstance(value, tuple):
        return tuple(plain(each) for each in value)
    return {name: plain(each) for name, each in value.items()} if isinstance(value, dict) else value
