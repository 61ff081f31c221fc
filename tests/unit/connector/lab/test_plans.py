"""What the lab is going to do, decided before anything starts: the matrix' cells, the faults of chaos."""

from pathlib import Path

import pytest

from connector.config import parse
from connector.lab.bench.crew import Journal, park_at, read_journal
from connector.lab.trials.chaos import plan_faults
from connector.lab.trials.matrix import CRASH_POINTS, DELIVERIES, Cell, cells
from connector.protocol.steps import Event, Step
from sinks.contract import Epoch
from sinks.offsets import OffsetRange, Offsets


def test_the_matrix_has_every_delivery_sink_and_crash_point_that_there_is() -> None:
    every = cells()
    assert len(every) == len(set(every)) == 42 + 7
    assert {cell.delivery for cell in every if cell.sink == "routed"} == {"transactional"}
    assert {cell.sink for cell in every if cell.crash_point == "between_tables"} == {"routed"}
    assert {cell.delivery for cell in every} == set(DELIVERIES)
    assert {cell.crash_point for cell in every} == set(CRASH_POINTS)
    assert not [cell for cell in every if (cell.delivery, cell.sink) == ("idempotent", "append")]


def test_the_matrix_can_be_narrowed() -> None:
    assert cells(["transactional"], ["append"], ["mid_write"]) == [Cell("transactional", "append", "mid_write")]
    assert cells(["transactional"], [], ["after_auto_commit"]) == []


@pytest.mark.parametrize("seed", range(5))
def test_the_same_seed_plans_the_same_faults(seed: int) -> None:
    faults = plan_faults(300, 60, seed)
    assert faults == plan_faults(300, 60, seed)
    assert faults != plan_faults(300, 60, seed + 1)
    assert len(faults) == 60
    assert [fault.at for fault in faults] == sorted(fault.at for fault in faults)
    assert all(0 <= fault.at <= 270 for fault in faults)


def test_every_kind_of_fault_is_planned() -> None:
    kinds = {fault.kind for fault in plan_faults(300, 60, 1)}
    assert kinds == {"kill", "pause", "replace", "second", "cut", "broker"}


def event(step: Step, number: int = 2, records: int = 5) -> Event:
    ranges = (OffsetRange("t", 0, 0, records),) if records else ()
    return Event(step, Epoch("p", number, "run", ranges, Offsets(), {}, None, None))


def test_what_a_pipeline_announces_is_in_its_journal_before_it_goes_on(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "journal"), 1, 0.0)
    for step in (Step.RESUMED, Step.PLANNED, Step.COMMITTED):
        journal.observe(event(step))
    journal.observe(event(Step.COMMITTED, records=0))  # a handover has no records, and isn't a batch
    found = read_journal(tmp_path / "journal")
    assert [each.what for each in found] == ["resumed", "polled", "committed"]
    assert found[1].ranges == (OffsetRange("t", 0, 0, 5),)
    assert {each.run for each in found} == {1}


def test_a_pipeline_goes_on_where_it_is_not_to_crash() -> None:
    def parked() -> None:
        raise AssertionError("parked at the wrong step")

    observe = park_at("committed", parked)
    observe(event(Step.PLANNED))
    observe(event(Step.COMMITTED, number=1))
    observe(event(Step.COMMITTED, records=0))


def test_a_pipeline_parks_at_its_crash_point_and_says_so() -> None:
    class Parked(Exception):
        pass

    def parked() -> None:
        raise Parked

    observe = park_at("committed", parked)
    observe(event(Step.COMMITTED, number=7))
    with pytest.raises(Parked):
        observe(event(Step.COMMITTED, number=8))
    with pytest.raises(Parked):
        park_at("committed", parked, batch=1)(event(Step.COMMITTED, number=7))
    with pytest.raises(Parked):
        park_at("resumed", parked)(event(Step.RESUMED, number=1, records=0))


def test_chaos_writes_valid_pipelines(tmp_path: Path) -> None:
    import yaml

    from connector.lab.trials.chaos import PIPELINES, _write_pipeline

    for name in PIPELINES:
        file = _write_pipeline(tmp_path, name, "127.0.0.1:1")
        assert parse(yaml.safe_load(file.read_text())).name == name
