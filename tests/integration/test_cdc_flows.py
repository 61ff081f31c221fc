"""The flows of a suite for AUTO CDC, as pipelines: each table is what docs/conformance.md says."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import pytest
from another_engine import query
from audits import verify
from cdc_flows import ANOTHER, SCHEMA, Event, Flow, pipelines
from conftest import Lake, Topic


@pytest.mark.breadth
@pytest.mark.parametrize("flows", pipelines(), ids=lambda flows: "-".join(flow.name for flow in flows))
def test_flows_of_change_events_give_the_tables_that_the_page_says(
    flows: Sequence[Flow], lake: Lake, topic: Topic
) -> None:
    kind = flows[0].kind
    given = [options(flows[0], lake, cut) for cut in flows[0].cuts]
    send(topic, 0, [ANOTHER])
    for delivery in zip_longest(*(flow.deliveries for flow in flows), fillvalue=()):
        for flow, events in zip(flows, delivery, strict=True):
            send(topic, flow.parcel, events)
        for each in given:
            assert lake.pipeline(kind, **each).run().epochs >= 1
    for table in [each["sink"]["path"] for each in given]:
        found = {flow.name: sorted(query(table, rows_of(flow)), key=repr) for flow in flows}
        assert found == {flow.name: flow.rows for flow in flows}
        assert query(table, "SELECT state, depot FROM t WHERE parcel = 0") == [("there", "Riga")]
    assert all(verify(lake, kind, **each).ok for each in given)


def send(topic: Topic, parcel: int, events: Sequence[Event]) -> None:
    for partition in {event.partition for event in events}:
        values = [{"parcel": parcel, **event.value} for event in events if event.partition == partition]
        topic.send(*((str(parcel), value) for value in values), partition=partition)


def rows_of(flow: Flow) -> str:
    return f"SELECT {flow.columns} FROM t WHERE parcel = {flow.parcel}"


def options(flow: Flow, lake: Lake, cut: int) -> dict[str, Any]:
    sink = {**flow.sink, "key": "parcel", "path": str(lake.folder / f"{flow.kind}-{cut}")}
    return {"schema": SCHEMA, "sink": sink, "epoch": {"max_records": cut}}
