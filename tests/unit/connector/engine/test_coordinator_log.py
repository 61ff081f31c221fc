"""What an entry of the coordinator log says when it is read back."""

from __future__ import annotations

from typing import Any

import pytest

from connector.engine.coordinator_log import _row, _values
from connector.protocol.decided import Row, State
from sinks.contract import Epoch, Position, Prepared
from sinks.offsets import Offsets

STANDS = Position(4, Offsets.from_dict({"t": {"0": 7}}), owner="before")
EPOCH = Epoch.of_no_records(STANDS, pipeline="p", owner="me")


@pytest.mark.parametrize("tables", [["a"], []], ids=["a table", "no table"])
@pytest.mark.parametrize("to", [0, 2])
def test_a_rewind_stays_a_rewind_also_without_tables(tables: list[str], to: int) -> None:
    prepared = {name: Prepared.going_back(3, to, of_route=True) for name in tables}
    found = read_back(Row(State.DECIDED, EPOCH, "me", prepared, config="c", of_rewind=to))
    assert (found.back_to, found.prepared) == (to, prepared)


def test_an_epoch_without_tables_is_no_rewind() -> None:
    found = read_back(Row(State.DECIDED, EPOCH, "me", {}, config="c"))
    assert (found.back_to, found.prepared) == (None, {})


def read_back(row: Row) -> Row:
    values: dict[str, Any] = _values("p", 8, row)
    return _row({**values, "sinks": values["sinks"].items()})  # type: ignore[arg-type]
