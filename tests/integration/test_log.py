"""The coordinator log: a number is taken by one append, and by no other."""

from __future__ import annotations

from dataclasses import replace
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


@pytest.mark.breadth
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


@pytest.mark.breadth
def test_a_round_opens_no_file_of_old_entries(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connector.engine.coordinator_log._FIRST_LOOK", 2)
    log = Log(own_session(spark), path=str(tmp_path / "log"), name=None, pipeline="p", run="run")
    log.create()
    log.read()

    def append(*states: State) -> None:
        for state in states:
            number = log.read().number + 1
            prepared = {"sink": Prepared(number, "1", {})} if state is State.DECIDED else {}
            log.append(number, (Row(state, replace(EPOCH, number=number), "run", prepared),))

    append(State.BEGUN, State.DECIDED)
    old = list((tmp_path / "log").glob("*.parquet"))
    append(State.DONE, State.DECIDED, State.DONE)
    for file in old:
        file.rename(f"{file}.away")
    held = log.read()
    assert held.last is not None
    assert held.decided is not None
    assert (held.number, held.last.epoch.number, held.decided.epoch.number) == (5, 5, 4)
    append(State.ABORTED)
    for file in old:
        Path(f"{file}.away").rename(file)
    append(State.ABORTED)
    held = log.read()
    assert held.decided is not None
    assert (held.number, held.decided.epoch.number) == (7, 4), "the decision is found further back"
