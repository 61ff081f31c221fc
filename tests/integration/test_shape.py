"""A table remembers the options that shape its rows: others stop a run before it writes anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from another_engine import query
from conftest import Lake, Topic

from connector.protocol.steps import Event, Step
from sinks.errors import SchemaMismatch
from sinks.spark.settings import with_settings

if TYPE_CHECKING:
    from connector import Pipeline

SCHEMA = "k STRING, n INT, m INT, at TIMESTAMP"
SUMS = {"group_by": "k", "aggregates": {"total": "sum(n)", "last": "last(n)"}}
HOURS = {**SUMS, "window": {"size": "1 hour"}}
WINDOWS: list[dict[str, Any]] = [
    {"size": "2 hours"},
    {"size": "1 hour", "slide": "10 minutes"},
    {"size": "1 hour", "time": "at"},
]
ZONE = "spark.sql.session.timeZone"


def pipeline(lake: Lake, kind: str, sink: dict[str, Any], **options: Any) -> Pipeline:
    return lake.pipeline(kind, schema=SCHEMA, sink=sink, **options)


def send(lake: Lake, *numbers: int) -> None:
    rows = (("a", {"k": "a", "n": n, "m": -n, "at": f"2026-07-01T10:00:{n:02}"}) for n in numbers)
    lake.topic.send(*rows, partition=0)


def refused(lake: Lake, kind: str, other: Pipeline) -> SchemaMismatch:
    """Why a run, a check and a dry run refuse the pipeline. Nothing is written."""
    version = lake.version(kind)
    errors = []
    for call in (other.run, other.check, other.dry_run):
        with pytest.raises(SchemaMismatch) as caught:
            call()
        errors.append(caught.value)
    assert lake.version(kind) == version
    assert len({(str(error), error.hint) for error in errors}) == 1
    return errors[0]


@pytest.mark.breadth
def test_another_aggregate_is_refused_with_both_texts(lake: Lake) -> None:
    send(lake, 1)
    pipeline(lake, "aggregate", SUMS).run()
    assert lake.version("aggregate") == 1, "the property came with the table"
    other = pipeline(lake, "aggregate", {**SUMS, "aggregates": {"total": "sum(m)", "last": "last(n)"}})
    for call in (other.run, other.check):
        with pytest.raises(SchemaMismatch, match=r"sinks\[0\]\.aggregates\.total was sum\(n\), and is sum\(m\) now"):
            call()
    assert lake.version("aggregate") == 1


@pytest.mark.breadth
def test_a_table_forgets_it_where_a_person_says_so(lake: Lake) -> None:
    send(lake, 1)
    pipeline(lake, "aggregate", SUMS).run()
    send(lake, 2)
    pipeline(lake, "aggregate", {**SUMS, "aggregates": {"total": "SUM( n )", "last": "last(n)"}}).run()
    other = pipeline(lake, "aggregate", {**SUMS, "aggregates": {"total": "sum(m)", "last": "last(n)"}})
    error = refused(lake, "aggregate", other)
    lake.sql(error.hint[error.hint.index("ALTER TABLE") :])
    send(lake, 4)
    other.run()
    assert query(lake.path("aggregate"), "SELECT k, total FROM t") == [("a", -1)], "both mean the same, they say"
    assert "was sum(m), and is sum(n) now" in str(refused(lake, "aggregate", pipeline(lake, "aggregate", SUMS)))


@pytest.mark.breadth
@pytest.mark.parametrize(
    ("kind", "before", "after", "told"),
    [
        ("upsert", {"key": ["k", "n"]}, {"key": ["k"]}, "sinks[0].key was k, n, and is k now"),
        ("upsert", {"sequence_by": "n"}, {"sequence_by": "m"}, "sinks[0].sequence_by was n, and is m now"),
        (
            "upsert",
            {"sequence_by": "n", "merge": "on_read"},
            {"sequence_by": "m", "merge": "on_read"},
            "sinks[0].sequence_by was n, and is m now",
        ),
        (
            "history",
            {"key": "k", "track_history_column_list": "n"},
            {"key": "k", "track_history_column_list": ["n", "m"]},
            "sinks[0].track_history_column_list was n, and is n, m now",
        ),
        (
            "aggregate",
            SUMS,
            {**SUMS, "aggregates": {"total": "sum(n)"}},
            "sinks[0].aggregates.last was last(n), and is not given now",
        ),
        *(("aggregate", HOURS, {**HOURS, "window": window}, "sinks[0].window.") for window in WINDOWS),
    ],
)
def test_what_shapes_the_rows_cannot_change(
    kind: str, before: dict[str, Any], after: dict[str, Any], told: str, lake: Lake
) -> None:
    send(lake, 1)
    pipeline(lake, kind, before).run()
    assert told in str(refused(lake, kind, pipeline(lake, kind, after)))
    send(lake, 2)
    assert pipeline(lake, kind, before).run().rows >= 1, "a history also ends the version before"


@pytest.mark.breadth
@pytest.mark.parametrize("sink", [{}, {"deletes": "soft"}, {"sequence_by": "n"}], ids=["offset", "soft", "sequence"])
def test_a_column_that_leaves_the_rows_is_null_where_a_record_replaces_a_row(sink: dict[str, Any], lake: Lake) -> None:
    """Else the row would be no record's: values of a new one beside a value of an old one."""
    lake.topic.send(*((k, {"k": k, "n": 1, "s": {"x": "old"}}) for k in "ab"), partition=0)
    before = lake.pipeline("upsert", schema="k STRING, n INT, s STRUCT<x: STRING>", sink=sink)
    before.run()
    lake.sql("ALTER TABLE {t} ADD COLUMNS (own STRING)", "upsert")
    lake.sql("UPDATE {t} SET own = 'mine'", "upsert")
    lake.topic.send(("a", {"k": "a", "n": 2, "s": {"x": "new"}}), partition=0)
    lake.pipeline("upsert", schema="k STRING, n INT", sink=sink).run()
    rows = query(lake.path("upsert"), "SELECT k, n, s.x, own FROM t ORDER BY k")
    assert rows == [("a", 2, None, "mine"), ("b", 1, "old", "mine")]
    lake.topic.send(("b", {"k": "b", "n": 2, "s": {"x": "back"}}), partition=0)
    before.run()
    rows = query(lake.path("upsert"), "SELECT k, n, s.x FROM t ORDER BY k")
    assert rows == [("a", 2, None), ("b", 2, "back")]


@pytest.mark.breadth
def test_a_history_is_refused_without_a_column_that_it_has_compared(lake: Lake) -> None:
    send(lake, 1)
    history = {"key": "k", "sequence_by": "n"}
    pipeline(lake, "history", history).run()
    error = refused(lake, "history", lake.pipeline("history", schema="k STRING, n INT, at TIMESTAMP", sink=history))
    assert "told apart by m too" in str(error)
    send(lake, 2)
    pipeline(lake, "history", history).run()


@pytest.mark.breadth
def test_another_time_zone_is_refused_where_a_text_became_a_time(lake: Lake) -> None:
    assert lake.spark is not None
    send(lake, 1)
    lake.pipeline("append", schema=SCHEMA).run()
    lake.pipeline("upsert").run()  # k STRING, n INT
    send(lake, 2)
    with with_settings(lake.spark, {ZONE: "Asia/Tokyo"}):
        error = refused(lake, "append", lake.pipeline("append", schema=SCHEMA))
        assert f"{ZONE} was UTC, and is Asia/Tokyo now" in str(error)
        assert f"spark: {{{ZONE}: UTC}}" in error.hint
        lake.pipeline("upsert").run()
    with with_settings(lake.spark, {ZONE: "Etc/UTC"}):
        lake.pipeline("append", schema=SCHEMA).run()
    assert query(lake.path("append"), "SELECT count(*), count(DISTINCT date_trunc('hour', at)) FROM t") == [(2, 1)]


@pytest.mark.breadth
def test_a_table_without_the_property_gets_it_once_and_each_pipeline_has_its_own(lake: Lake) -> None:
    """As one of an earlier release, or somebody else's."""
    send(lake, 1)
    ours, theirs = (pipeline(lake, "upsert", {"sequence_by": text}, name=text) for text in ("n", "m"))
    ours.run()
    for name, _ in lake.sql("SHOW TBLPROPERTIES {t}", "upsert"):
        if name.startswith("lakelock.shape."):
            lake.sql(f"ALTER TABLE {{t}} UNSET TBLPROPERTIES ('{name}')", "upsert")
    version = lake.version("upsert")
    ours.run()
    assert lake.version("upsert") == version + 1
    theirs.run()
    version = lake.version("upsert")
    ours.run()
    theirs.run()
    assert lake.version("upsert") == version
    other = pipeline(lake, "upsert", {"sequence_by": "m"}, name="n")
    assert "sequence_by was n, and is m now" in str(refused(lake, "upsert", other))


@pytest.mark.breadth
def test_a_restore_and_a_clone_take_it_along_with_the_rows(lake: Lake) -> None:
    send(lake, 1)
    ours = pipeline(lake, "upsert", {"sequence_by": "n"})
    ours.run()
    version = lake.version("upsert")
    error = refused(lake, "upsert", other := pipeline(lake, "upsert", {"sequence_by": "m"}))
    lake.sql(error.hint[error.hint.index("ALTER TABLE") :])
    other.run()
    send(lake, 2)
    other.run()
    lake.sql(f"RESTORE TABLE {{t}} TO VERSION AS OF {version}", "upsert")
    refused(lake, "upsert", other)
    lake.sql(f"CREATE TABLE delta.`{lake.path('clone')}` SHALLOW CLONE {{t}}", "upsert")
    place = {"path": str(lake.path("clone"))}
    refused(lake, "clone", pipeline(lake, "upsert", {"sequence_by": "m", **place}))
    pipeline(lake, "upsert", {"sequence_by": "n", **place}).run()
    assert query(lake.path("clone"), "SELECT n FROM t") == [(2,)]


@pytest.mark.breadth
@pytest.mark.parametrize(("before", "after"), [("upsert", "append"), ("append", "upsert")])
def test_another_kind_of_table_is_refused(before: str, after: str, lake: Lake) -> None:
    send(lake, 1, 2)
    pipeline(lake, before, {}).run()
    other = pipeline(lake, after, {"path": str(lake.path(before))}, name=before)
    assert f"sinks[0].type was delta_{before}, and is delta_{after} now" in str(refused(lake, before, other))
    send(lake, 3)
    assert pipeline(lake, before, {}).run().rows == 1


@pytest.mark.breadth
def test_a_table_that_holds_no_change_takes_other_options(lake: Lake) -> None:
    def crash(event: Event) -> None:
        if event.step is Step.WRITING:
            raise KeyboardInterrupt

    ours, other = (pipeline(lake, "upsert", {"sequence_by": text}) for text in ("n", "m"))
    send(lake, 1)
    for each in (ours, other, ours):
        with pytest.raises(KeyboardInterrupt):
            each.run(observers=[crash])
    send(lake, 2)
    ours.run()
    refused(lake, "upsert", other)
    other.rewind(to_epoch=0, confirm=lambda _: True)
    other.run()
    assert query(lake.path("upsert"), "SELECT n FROM t") == [(1,)], "the row with the larger m"
    refused(lake, "upsert", ours)


@pytest.mark.breadth
def test_an_upsert_that_is_given_an_order_may_be_converted(lake: Lake, topic: Topic) -> None:
    send(lake, 1)
    pipeline(lake, "upsert", {}).run()
    ordered = pipeline(lake, "upsert", {"sequence_by": "n"})
    error = refused(lake, "upsert", ordered)
    for step in error.hint.split("ALTER TABLE")[1].split(". A row")[0].split("; "):
        lake.sql(step if step.startswith("UPDATE") else f"ALTER TABLE{step}", "upsert")
    ordered.run()
    refused(lake, "upsert", pipeline(lake, "upsert", {"sequence_by": "m"}))
