"""Pairs of schemas that a registry allows, or doesn't: what becomes of the records of the older one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow
import pytest
from avro_bytes import encoded
from avro_cases import BAD
from both_decoders import avro_by_auditor
from compatibility_cases import ALIASED, ODD_DEFAULT, ONE_BY_ONE, PAIRS, VALUES, Pair
from compatibility_protobuf import CHANGES, Change, source
from protobuf_bytes import compiled, framed
from pyspark.sql.types import MapType, StructType

from connector.audit.protobuf import decoded
from connector.audit.protobuf_schema import descriptors
from connector.decode.avro_evolution import unrounded
from connector.decode.avro_resolution import misfit
from connector.decode.avro_schema import parse
from connector.decode.protobuf_columns import columns_of
from connector.decode.protobuf_plan import MessagePlan, Misfit
from connector.decode.protobuf_schema import Messages
from sinks.errors import UnusableSchema


def refusal(pair: Pair) -> str | None:
    """Why no record of the writer's schema is read. None: some are."""
    try:
        writer, reader = (parse(json.dumps(schema)) for schema in (pair.writer, pair.reader))
    except UnusableSchema as error:
        return str(error)
    return f"{writer.recursive} is recursive" if writer.recursive else misfit(writer, unrounded(reader, writer))


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.about)
def test_avro_is_read_where_a_registry_says_so_or_the_page_says_why_not(pair: Pair) -> None:
    why = refusal(pair)
    read = pair.fits is not bool(pair.why)
    assert (why is None) is read, why


@pytest.mark.parametrize("pair", [pair for pair in PAIRS if pair.why == ONE_BY_ONE], ids=lambda pair: pair.about)
def test_where_only_some_values_fit_these_are_read(pair: Pair) -> None:
    one, other = avro_by_auditor(pair.writer, pair.reader, pair.one, pair.other)
    assert one != BAD
    assert other == BAD


@pytest.mark.parametrize(("pair", "written", "read"), [*VALUES, *ALIASED])
def test_a_value_is_read_as_the_readers_schema_has_it(pair: Pair, written: Any, read: Any) -> None:
    assert (refusal(pair) is None) or read == BAD
    (found,) = avro_by_auditor(pair.writer, pair.reader, encoded(pair.writer, written))
    assert plain(found) == read


def test_a_default_of_another_type_is_taken_where_nothing_needs_it() -> None:
    assert parse(json.dumps(ODD_DEFAULT)).root["name"] == "Boat"


def plain(value: Any) -> Any:
    """A map as a dict: Arrow has its pairs."""
    if isinstance(value, list):
        return {name: plain(each) for name, each in value}
    return {name: plain(each) for name, each in value.items()} if isinstance(value, dict) else value


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.about)
def test_a_protobuf_record_is_read_by_the_schema_that_it_names(change: Change) -> None:
    old, new = (Messages(compiled(source(text)), "main.proto") for text in (change.old, change.new))
    columns = columns_of(new.of(change.message))
    assert has_plan(old.of(change.message), columns) is (change.found is not None)
    assert protobuf_by_auditor(change, old.paths, columns) == change.found
    assert (change.found is not None) is (change.allowed is not bool(change.why))


def has_plan(message: Any, columns: StructType) -> bool:
    if message is None:
        return False
    try:
        MessagePlan(message, columns)
    except Misfit:
        return False
    return True


def protobuf_by_auditor(change: Change, paths: Mapping[str, str], columns: StructType) -> Any:
    """The columns of a record with Confluent's header, or None. ``paths``: the indexes of each message."""
    indexes = next((path for path, name in paths.items() if name == change.message), "0")
    record = framed(1, change.sent, [int(part) for part in indexes.split(".")])
    content = descriptors(("audited.proto", source(change.old)))
    assert content is not None
    batch = pyarrow.RecordBatch.from_pydict({"value": pyarrow.array([record])})
    (made,) = decoded([batch], "value", "into", {record[:5]: content}, change.message, columns, framed=True)
    (row,) = made.column(1).to_pylist()
    maps = [each.name for each in columns if isinstance(each.dataType, MapType)]
    return row and {name: dict(each) if each and name in maps else each for name, each in row["value"].items()}
