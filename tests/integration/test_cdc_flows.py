"""The flows of a suite for AUTO CDC, as pipelines: each table is what docs/conformance.md says."""

from __future__ import annotations

from typing import Any

import pytest
from another_engine import query
from audits import verify
from cdc_flows import ANOTHER, FLOWS, SCHEMA, Flow
from conftest import Lake, Topic

*OF_ONE_TIME, OF_TWO_TIMES = FLOWS
PARAMETERS = [
    pytest.param(flow, id=flow.name, marks=[] if flow.shown else [pytest.mark.breadth]) for flow in OF_ONE_TIME
]


@pytest.mark.parametrize("flow", PARAMETERS)
def test_a_flow_of_change_events_gives_the_table_that_the_page_says(flow: Flow, lake: Lake, topic: Topic) -> None:
    run(flow, lake, topic)


def run(flow: Flow, lake: Lake, topic: Topic) -> list[str]:
    """The paths of its tables, which are what the flow says, and what the auditor makes of the topic."""
    pipelines = [options(flow, lake, cut) for cut in flow.cuts]
    for number, delivery in enumerate(flow.deliveries):
        for each in [*([] if number else [ANOTHER]), *delivery]:
            topic.send((str(each.value["parcel"]), each.value), partition=each.partition)
        for given in pipelines:
            assert lake.pipeline(flow.kind, **given).run().epochs >= 1
    tables = [given["sink"]["path"] for given in pipelines]
    for table in tables:
        assert sorted(query(table, f"SELECT {flow.columns} FROM t WHERE parcel = 7"), key=repr) == flow.rows
        assert query(table, "SELECT state, depot FROM t WHERE parcel = 8") == [("there", "Riga")]
    assert all(verify(lake, flow.kind, **given).ok for given in pipelines)
    return tables


def options(flow: Flow, lake: Lake, cut: int) -> dict[str, Any]:
    sink = {**flow.sink, "key": "parcel", "path": str(lake.folder / f"{flow.kind}-{cut}")}
    return {"schema": SCHEMA, "sink": sink, "epoch": {"max_records": cut}}


@pytest.mark.breadth
def test_what_a_history_said_earlier_is_in_the_versions_of_its_table(lake: Lake, topic: Topic) -> None:
    from deltalake import DeltaTable

    (path,) = run(OF_TWO_TIMES, lake, topic)
    newest = DeltaTable(path).version()
    said = [DeltaTable(path, version=newest - age).to_pyarrow_table().to_pylist() for age in (2, 1, 0)]
    open_ = [{row["state"] for row in rows if row["parcel"] == 7 and row["__END_AT"] is None} for rows in said]
    assert open_ == [{"new"}, {"moving"}, {"held"}]
