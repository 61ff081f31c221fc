"""Which of Debezium's truncates get through a ``filter`` or a ``require``, in the pipeline and in the auditor, by
SQLite."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest
from ddl import columns_of
from pyspark.sql.types import StructType

from connector.audit.decode import breaks
from connector.audit.formats import forms
from connector.audit.steps import _stays
from connector.config import OTHER, PipelineConfig, parse
from connector.config.truncates import kept_truncates
from connector.decode.flows import FlowsDecoder
from connector.decode.records import ROUTE, obeys
from connector.decode.steps import stays
from connector.engine.decoders import decoders

COLUMNS = ("op", "amount", "_op", "_tombstone", "_problem", ROUTE)
APPEND: dict[str, Any] = {"type": "delta_append", "path": "lake/a"}
COUNT: dict[str, Any] = {
    "type": "delta_aggregate", "path": "lake/n", "group_by": "id", "aggregates": {"n": "count(*)"}
}  # fmt: skip
UPSERT: dict[str, Any] = {"type": "delta_upsert", "path": "lake/u", "key": "id", "sequence_by": "_source_position"}
HISTORY: dict[str, Any] = {"type": "delta_history", "path": "lake/h", "key": "id"}
IGNORING = {**UPSERT, "apply_as_truncates": "false"}


def config(*sinks: dict[str, Any], **changes: Any) -> PipelineConfig:
    return parse(
        {
            "name": "p",
            "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "127.0.0.1:9092"}},
            "value": {"format": "debezium", "schema": "id INT, amount INT"},
            "steps": [{"filter": "amount > 0"}],
            **({"sinks": list(sinks)} if sinks else {}),
            **({"coordinator": {"path": "lake/log"}} if len(sinks) != 1 else {}),
            **changes,
        }
    )


def matching(condition: str, route: str | None = None) -> set[str]:
    """The events of Debezium's that meet a condition, of which only the created one and the first delete have an
    amount above 0."""
    events = [("c", 5), ("u", -5), ("d", 5), ("d", None), ("t", None), (None, None)]
    connection = sqlite3.connect(":memory:")
    connection.execute(f"CREATE TABLE records ({', '.join(COLUMNS)})")
    connection.executemany(
        f"INSERT INTO records VALUES ({', '.join('?' * len(COLUMNS))})",
        [(f"{op}{amount}", amount, op, False, None, route) for op, amount in events],
    )
    return {op for (op,) in connection.execute(f"SELECT op FROM records WHERE {condition}")}


def kept(truncates: str, condition: str, route: str | None = None) -> set[str]:
    """The events that a filter lets through."""
    truncates = truncates.replace("AS STRING", "AS TEXT")
    sqls = stays(COLUMNS, condition, truncates), _stays(COLUMNS, condition, truncates).replace("<=>", "IS")
    ours, auditors = (matching(sql, route) for sql in sqls)
    assert ours == auditors
    return ours


@pytest.mark.parametrize(
    ("sink", "keeps"), [(APPEND, False), (COUNT, False), (UPSERT, True), (HISTORY, True), (IGNORING, False)]
)
def test_a_filter_keeps_a_truncate_for_a_table_with_a_key_alone(sink: dict[str, Any], keeps: bool) -> None:
    truncates = kept_truncates(config(sink))
    assert kept(truncates, "amount > 0") == {"c5", "d5", "dNone", *(["tNone"] if keeps else [])}
    assert kept(truncates, "_op <> 'u'") == {"c5", "d5", "dNone", "tNone"}, "the condition says so"


def test_the_tables_of_a_route_keep_what_each_of_them_takes() -> None:
    every = {
        "by": "op",
        "sink": {**UPSERT, "path": "lake/{route}"},
        "other": {**APPEND, "path": "lake/others"},
        "overrides": {"x'y": {"sink": {"apply_as_truncates": "false"}}, "z": {"sink": {"deletes": "hard"}}},
    }
    made = config(route=every)
    truncates = kept_truncates(made, named=ROUTE)
    for name, keeps in ((None, False), ("a", True), ("x'y", False), ("z", True)):
        assert ("tNone" in kept(truncates, "amount > 0", name)) is keeps
        alone = kept_truncates(made.routed(OTHER if name is None else name))
        assert alone == str(keeps).lower(), "the auditor looks at one table after another"
    assert kept_truncates(config(route={"by": "op", "sink": {**UPSERT, "path": "lake/{route}"}}), named=ROUTE) == "true"
    ignored = {"by": "op", "sink": {**APPEND, "path": "lake/{route}"}, "other": "ignore"}
    assert kept_truncates(config(route=ignored), named=ROUTE) == "false"


def test_sinks_share_a_decoder_unless_a_filter_keeps_truncates_for_some_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(StructType, "fromDDL", staticmethod(columns_of), raising=False)  # Spark 3.5 has none

    def ways(*sinks: dict[str, Any], **changes: Any) -> list[str]:
        """Of each decoder, whether it keeps truncates."""
        made = {each.decode for each in decoders(config(*sinks, **changes), None)}  # type: ignore[arg-type]
        return sorted(each.steps.truncates if each.steps is not None else "" for each in made)

    assert ways(APPEND, COUNT) == ["false"]
    assert ways(UPSERT, {**UPSERT, "path": "lake/v"}) == ["true"]
    assert ways(APPEND, UPSERT) == ["false", "true"]
    assert ways(APPEND, UPSERT, steps=[{"drop": "amount"}]) == ["true"]
    assert ways(APPEND, UPSERT, steps=[]) == [""]
    of_no_database = {"format": "json", "schema": "id INT, amount INT"}
    assert ways(APPEND, HISTORY, value=of_no_database) == ["true"]
    append, upsert = (each.decode for each in decoders(config(APPEND, UPSERT), None))  # type: ignore[arg-type]
    assert (append.keeps_truncates, upsert.keeps_truncates) == (False, True)


FLOWS: dict[str, Any] = {
    "source": {"topics": ["t", "u"], "kafka": {"bootstrap.servers": "127.0.0.1:9092"}},
    "flows": [{"topics": ["u"], "require": "amount > 1"}],
}
OF_APPENDS: dict[str, Any] = {"by": "op", "sink": {**APPEND, "path": "lake/{route}"}}


@pytest.mark.parametrize(
    ("sinks", "changes", "spared"),
    [
        ([APPEND], {}, False),
        ([COUNT], {}, False),
        ([APPEND, COUNT], FLOWS, False),
        ([UPSERT], {}, True),
        ([HISTORY], FLOWS, True),
        ([APPEND, UPSERT], {}, True),
        ([], {"route": {**OF_APPENDS, "other": "ignore"}}, False),
        ([], {"route": {**OF_APPENDS, "other": {**UPSERT, "path": "lake/others"}}}, True),
        ([], {"route": {**OF_APPENDS, "overrides": {"x": {"sink": UPSERT}}}}, True),
    ],
)
def test_a_rule_judges_deletes_of_a_file_in_which_they_are_rows(
    monkeypatch: pytest.MonkeyPatch, sinks: list[dict[str, Any]], changes: dict[str, Any], spared: bool
) -> None:
    """The run looks at the whole file, or at a sink that joins it; the auditor at one table after another."""
    monkeypatch.setattr(StructType, "fromDDL", staticmethod(columns_of), raising=False)  # Spark 3.5 has none
    made = config(*sinks, **{"steps": [], "require": "amount > 0", **changes})
    routed = [made.routed(name) for name in made.route.sinks if name] if made.route is not None else []
    alone = [made.alone(index) for index in range(len(made.sinks))]
    for each in (made, *alone):
        decode = decoders(each, None)[0].decode  # type: ignore[arg-type]
        for own in [flow.decode for flow in decode.flows] if isinstance(decode, FlowsDecoder) else [decode]:
            assert own.spares_deletes is spared
    for each in (made, *alone, *routed):
        assert [of.spares_deletes for of in forms(each).of_all] == [spared] * len(each.by_flow)


@pytest.mark.parametrize(
    ("rule", "bad", "of_a_file_without_keys"),
    [("amount > 0", {"u-5", "NoneNone"}, {"dNone", "tNone"}), ("_op <> 't'", {"tNone", "NoneNone"}, set())],
)
def test_a_rule_says_the_same_in_run_and_auditor(rule: str, bad: set[str], of_a_file_without_keys: set[str]) -> None:
    for spares, broken in ((True, bad), (False, bad | of_a_file_without_keys)):
        ours = f"({obeys(COLUMNS, rule, spares_deletes=spares)}) IS NOT TRUE"
        assert matching(ours) == matching(breaks(COLUMNS, rule, spares_deletes=spares)) == broken
