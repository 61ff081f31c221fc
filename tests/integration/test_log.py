"""The coordinator log: a number is taken by one append, and by no other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from conftest import own_session

from connector.engine.coordinator_log import Log
from connector.protocol.decided import Row, State
from sinks.contract import Epoch, Prepared
from sinks.errors import CommitUnknown
from sinks.offsets import OffsetRange, Offsets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RANGE = OffsetRange("t", 0, 0, 2)
EPOCH = Epoch("p", 1, "run", (RANGE,), Offsets({RANGE.at: RANGE.end}), {"t": "id"}, None, None, attempt=1)


def test_an_entry_that_landed_late_is_not_taken_for_the_next_one(spark: SparkSession, tmp_path: Path) -> None:
    """A run's decision gets no answer, and isn't there when the run looks: it begins to give the epoch up."""

    def opened() -> Log:
        return Log(own_session(spark), path=str(tmp_path / "log"), name=None, pipeline="p", run="run")

    log, late = opened(), opened()
    log.create()
    log.read()
    log.append(1, (Row(State.BEGUN, EPOCH, "run"),))
    late.read()
    late.append(2, (Row(State.DECIDED, EPOCH, "run", {"sink": Prepared(2, "1", {"a": "b"})}),))
    with pytest.raises(CommitUnknown, match="entry 2"):
        log.append(2, (Row(State.ABORTED, EPOCH, "run"),))
    held = log.read()
    assert held.in_doubt is not None
    assert (held.number, held.in_doubt.state) == (2, State.DECIDED)
    log.append(3, (Row(State.DONE, EPOCH, "run", reads={"sink": {}}),))
