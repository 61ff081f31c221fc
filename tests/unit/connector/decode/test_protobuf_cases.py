"""The cases of Protobuf's own conformance suite, as far as they need no JVM: as the auditor reads them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow
import pytest
from protobuf_bytes import compiled
from protobuf_cases import SUITES, WITHOUT_COLUMNS, Edition, Syntax
from protobuf_kinds import BAD
from pyspark.sql.types import MapType, StructType, TimestampType

from connector.audit import protobuf_schema as audited
from connector.audit.protobuf import decoded
from connector.decode.protobuf_columns import columns_of
from connector.decode.protobuf_schema import Messages
from sinks.errors import UnusableSchema

NAME = "lock.All"
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_the_auditor_reads_each_case_as_the_suite_says_or_as_the_page_does(suite: Syntax | Edition) -> None:
    cases, columns = suite.cases(), columns_of(Messages(compiled(suite.schema(whole=False))).of(NAME))
    content = compiled(suite.schema())
    batch = pyarrow.RecordBatch.from_pydict({"value": pyarrow.array([case.content for case in cases])})
    (made,) = decoded([batch], "value", "into", {b"": content}, NAME, columns, framed=False)
    found = [row and plain(row["value"], columns) for row in made.column(1).to_pylist()]
    wrong = [
        (case.about, difference(suite, case.found, row))
        for case, row in zip(cases, found, strict=True)
        if row != (None if isinstance(case.found, str) else {**suite.empty, **case.found})
    ]
    assert wrong == []


def plain(row: dict[str, Any], columns: StructType) -> dict[str, Any]:
    """Maps as dicts, times as microseconds."""
    for column in columns:
        value = row[column.name]
        if isinstance(column.dataType, MapType):
            row[column.name] = dict(value)
        elif isinstance(column.dataType, TimestampType) and value is not None:
            row[column.name] = (value - EPOCH) // timedelta(microseconds=1)
    return row


def difference(suite: Syntax | Edition, expected: Any, found: Any) -> Any:
    """What of a row is another value."""
    if expected == BAD or found is None:
        return expected, found
    wanted = {**suite.empty, **expected}
    return {name: (wanted.get(name), value) for name, value in found.items() if wanted.get(name) != value}


@pytest.mark.parametrize("what", WITHOUT_COLUMNS)
def test_a_field_that_no_column_can_hold_is_refused(what: str) -> None:
    imports = "".join(f'import "google/protobuf/{name}.proto"; ' for name in ("empty", "struct"))
    sets = "message Set { option message_set_wire_format = true; extensions 4 to max; }"
    text = f'syntax = "proto2"; package lock; {imports}{sets} message All {{ {WITHOUT_COLUMNS[what]} }}'
    content = compiled(text)
    with pytest.raises(UnusableSchema):
        columns_of(Messages(content).of(NAME))
    with pytest.raises(UnusableSchema):
        audited.columns(audited.pool_of(content).FindMessageTypeByName(NAME))
