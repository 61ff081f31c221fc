"""The audit of a topic without a record, whose schema is inferred from the first ones."""

from __future__ import annotations

from typing import Any

import pytest

from connector.audit.claim import At, Held
from connector.audit.no_record import no_record_yet
from connector.config import parse
from sinks.errors import NoRecordYet, NotADeltaTable

INFERRED: dict[str, Any] = {"format": "json", "schema": "inferred"}


@pytest.mark.parametrize(
    ("value", "end", "raised"),
    [
        (INFERRED, 0, NoRecordYet),
        (INFERRED, 5, NotADeltaTable),
        ({"format": "json", "schema": "id INT"}, 0, NotADeltaTable),
    ],
    ids=["an empty topic", "one whose records are gone", "a schema in the file"],
)
def test_a_table_that_waits_for_its_first_record_is_not_missing(
    value: dict[str, Any], end: int, raised: type[Exception]
) -> None:
    source = {"topics": "t", "kafka": {"bootstrap.servers": "b:1"}}
    sinks = [{"type": "delta_append", "path": "lake/t"}]
    config = parse({"name": "p", "source": source, "value": value, "sinks": sinks})
    # Retention has removed them all: as many are held as of an empty topic.
    held = Held({At("t", 0): end}, {At("t", 0): end}, {"t": "id"})
    with pytest.raises((NoRecordYet, NotADeltaTable)) as error, no_record_yet(config, held):
        raise NotADeltaTable("There is no table.")
    assert error.type is raised
