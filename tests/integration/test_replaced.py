"""A table that somebody else has replaced, between two runs or under one: nothing is written to what it is now."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from another_engine import query
from audits import counts, verify
from conftest import Lake, Topic
from typer.testing import CliRunner

from connector.cli.app import app
from connector.pipeline import Pipeline
from connector.protocol.steps import Event, Step
from connector.watch.state_words import standing
from sinks.contract import Committed, Epoch
from sinks.delta.commit import PipelineCommits
from sinks.errors import ConfigurationError, TableReplaced


def some(first: int, count: int) -> list[tuple[str, int]]:
    return [(f"k{number}", number) for number in range(first, first + count)]


REPLACED = [
    pytest.param(
        "CREATE OR REPLACE TABLE {t} USING delta AS SELECT * FROM {t} WHERE n = 0",
        "CREATE OR REPLACE TABLE AS SELECT",
        marks=pytest.mark.spark4("it replaces no table by its path with its own rows"),
    ),
    pytest.param(
        "INSERT OVERWRITE {t} SELECT * FROM {t} WHERE n = 0", r"WRITE \(overwrite\)", marks=pytest.mark.breadth
    ),
]


@pytest.mark.parametrize(("statement", "operation"), REPLACED)
def test_a_table_that_was_replaced_between_two_runs_stops_the_next(
    statement: str, operation: str, lake: Lake, topic: Topic
) -> None:
    topic.send_rows(some(0, 5))
    lake.pipeline().run()
    lake.sql(statement)
    topic.send_rows(some(5, 2))
    with pytest.raises(TableReplaced, match=rf"version 2, {operation}.* UTC") as stopped:
        lake.pipeline().run()
    for way_on in ("rewind", "replay", "accept"):
        assert f"lakelock {way_on} FILE" in stopped.value.hint
    with pytest.raises(TableReplaced):
        lake.pipeline().check()
    assert lake.rows() == some(0, 1)
    found = verify(lake)
    assert counts(found)["lost"] == 4
    file = lake.file()
    if "OVERWRITE" in statement:
        done = CliRunner().invoke(app, ["accept", str(file)])
        assert (done.exit_code, "takes the table as it is" in done.stdout) == (0, True), done.output
        again = CliRunner().invoke(app, ["accept", str(file)])
        assert (again.exit_code, "nothing to accept" in again.stderr) == (2, True), again.output
        kept = some(0, 1)
    else:
        lake.pipeline().rewind(to_version=1, confirm=lambda _: True)
        kept = some(0, 5)
    lake.pipeline().run()
    assert lake.rows() == sorted(kept + some(5, 2))


@pytest.mark.breadth
@pytest.mark.parametrize("of", [{"replaceWhere": "n = 0"}, {"partitionOverwriteMode": "dynamic"}], ids=" ".join)
def test_a_part_that_is_overwritten_and_a_table_of_old_that_is_filled_are_no_replacement(
    of: dict[str, str], lake: Lake, topic: Topic
) -> None:
    lake.sql("CREATE TABLE {t} (k STRING, n INT, _topic STRING, _partition INT, _offset BIGINT, _timestamp TIMESTAMP) "
             "USING delta PARTITIONED BY (n)")  # fmt: skip
    lake.sql("INSERT OVERWRITE {t} (k, n) VALUES ('old', 1)")
    topic.send_rows(some(0, 3))
    lake.pipeline().run()
    part = lake.frame().where("n = 0").selectExpr("'mine' AS k", "* EXCEPT (k)")
    part.write.format("delta").mode("overwrite").options(**of).save(str(lake.path()))
    topic.send_rows(some(3, 1))
    with pytest.raises(TableReplaced, match=r"version \d, WRITE \(overwrite of some rows\)"):
        lake.pipeline(on_foreign_delete="stop").run()
    lake.pipeline().run()
    assert lake.rows() == sorted([("old", 1), ("mine", 0), *some(1, 3)])


@pytest.mark.breadth
def test_an_overwrite_while_an_epoch_is_being_written_stops_the_run_and_the_next(
    lake: Lake, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An append that lands behind it is no conflict to Delta."""
    topic.send_rows(some(0, 5))
    lake.pipeline().run()
    topic.send_rows(some(5, 2))
    looked = PipelineCommits.already

    def overwritten_right_after(commits: PipelineCommits, epoch: Epoch) -> Committed | None:
        found = looked(commits, epoch)
        lake.sql("INSERT OVERWRITE {t} SELECT * FROM {t} WHERE n = 0")
        return found

    monkeypatch.setattr(PipelineCommits, "already", overwritten_right_after)
    with pytest.raises(TableReplaced, match=r"version 2, WRITE \(overwrite\)"):
        lake.pipeline().run()
    monkeypatch.undo()
    with pytest.raises(TableReplaced, match=r"version 2, WRITE \(overwrite\)"):
        lake.pipeline().run()
    lake.pipeline().rewind(to_version=1, confirm=lambda _: True)
    lake.pipeline().run()
    assert lake.rows() == some(0, 7)


@pytest.mark.breadth
def test_a_persons_delete_is_allowed_and_named_unless_it_is_to_stop_the_run(lake: Lake, topic: Topic) -> None:
    topic.send_rows(some(0, 5))
    lake.pipeline().run()
    lake.sql("DELETE FROM {t} WHERE n < 2")
    topic.send_rows(some(5, 1))
    with pytest.raises(TableReplaced, match="version 2, DELETE"):
        lake.pipeline(on_foreign_delete="stop").run()
    lake.pipeline().run()
    assert lake.rows() == some(2, 4)
    lake.pipeline(on_foreign_delete="stop").run()
    found = verify(lake)
    assert counts(found)["lost"] == 2
    assert any(
        note.startswith("Version 2 is somebody else's DELETE") and "2 rows deleted" in note for note in found.notes
    ), found.notes


@pytest.mark.breadth
def test_the_merges_of_a_consumer_group_are_nobody_elses_changes(lake: Lake, topic: Topic) -> None:
    moving = lake.pipeline("upsert", name=topic.name, delivery="idempotent", on_foreign_delete="stop")
    for first in (0, 3):
        topic.send_rows([(f"k{number}", first) for number in range(first, first + 5)])
        moving.run()
    found = verify(lake, "upsert", name=topic.name, delivery="idempotent")
    assert found.ok, found
    assert not [note for note in found.notes if "somebody else" in note]
    lake.sql("DELETE FROM {t} WHERE k = 'k7'", "upsert")
    with pytest.raises(TableReplaced, match="DELETE"):
        moving.run()


@pytest.mark.breadth
@pytest.mark.parametrize("made_again", ["no", pytest.param("empty", marks=pytest.mark.breadth), "filled"])
def test_a_table_that_is_removed_under_a_run_stops_it(made_again: str, lake: Lake, topic: Topic) -> None:
    """And nothing of the run becomes the new table's truth."""
    topic.send_rows(some(0, 5))
    lake.pipeline().run()
    topic.send_rows(some(5, 2))

    def behind_its_back(event: Event) -> None:
        if event.step is Step.PLANNED:
            replace_folder(lake, made_again)

    with pytest.raises(TableReplaced, match="removed, or recreated"):
        lake.pipeline().run(observers=[behind_its_back])
    assert left(lake) == {"no": [], "empty": [], "filled": [("mine", 1)]}[made_again]


@pytest.mark.breadth
@pytest.mark.parametrize("made_again", ["no", pytest.param("empty", marks=pytest.mark.breadth)])
def test_between_two_rounds_too(made_again: str, lake: Lake, topic: Topic) -> None:
    topic.send_rows(some(0, 5))
    rounds: list[Event] = []

    def behind_its_back(event: Event) -> None:
        if event.step is Step.WAITING:
            rounds.append(event)
            if len(rounds) == 1:
                replace_folder(lake, made_again)
                topic.send_rows(some(5, 2))

    with pytest.raises(TableReplaced, match="removed, or recreated"):
        lake.pipeline(trigger={"interval": "1 second"}).run(observers=[behind_its_back])
    assert left(lake) == []


def replace_folder(lake: Lake, made_again: str) -> None:
    """As another process does it: Spark's session hears nothing of it."""
    import pyarrow as pa
    from deltalake import write_deltalake

    shutil.rmtree(lake.path())
    if made_again != "no":
        rows: dict[str, Any] = {
            "k": pa.array(["mine"]), "n": pa.array([1], pa.int64()), "_topic": pa.array([None], pa.string()),
            "_partition": pa.array([None], pa.int32()), "_offset": pa.array([None], pa.int64()),
            "_timestamp": pa.array([None], pa.timestamp("us", "UTC")),
        }  # fmt: skip
        table = pa.table(rows)
        write_deltalake(str(lake.path()), table if made_again == "filled" else table.slice(0, 0))


def left(lake: Lake) -> list[tuple[Any, ...]]:
    folder: Path = lake.path()
    return query(folder, "SELECT k, n FROM t") if (folder / "_delta_log").exists() else []


@pytest.mark.breadth
def test_one_of_several_tables_that_was_replaced_on_purpose_is_accepted(lake: Lake, topic: Topic) -> None:
    sinks = [
        {"type": "delta_append", "path": str(lake.path("every"))},
        {"type": "delta_upsert", "path": str(lake.path("latest")), "key": "k"},
    ]
    options = {**lake.options(), "name": "both", "sinks": sinks, "coordinator": {"path": str(lake.path("log"))}}
    pipeline = Pipeline.from_options(options)
    topic.send_rows(some(0, 5))
    pipeline.run()
    with pytest.raises(ConfigurationError, match="nothing to accept"):
        pipeline.accept()
    lake.sql("INSERT OVERWRITE {t} SELECT * FROM {t} WHERE n < 2", "every")
    topic.send_rows(some(5, 2))
    with pytest.raises(TableReplaced, match="overwrite"):
        pipeline.run()
    replaced = f"{lake.path('every')}: version 2, WRITE (overwrite)"
    status = pipeline.status()
    assert status.replaced.startswith(replaced)
    assert standing(status) == ("bad", "table was replaced")
    for look in (pipeline.check, pipeline.dry_run):
        with pytest.raises(TableReplaced, match=re.escape(replaced)):
            look()
    assert pipeline.accept().epoch == 2
    assert not pipeline.status().replaced
    assert pipeline.run().epochs == 1
    assert lake.rows("every") == sorted(some(0, 2) + some(5, 2))
    assert lake.rows("latest") == some(0, 7)


@pytest.mark.breadth
def test_the_letters_of_a_table_that_was_replaced_stay_its_own_once_it_is_accepted(lake: Lake, topic: Topic) -> None:
    letters = {"on_bad_record": "dead_letter", "dead_letters": {"path": str(lake.path("letters"))}}
    topic.send_rows(some(0, 2), partition=0)
    topic.send(("bad", b"no JSON"), partition=0)
    lake.pipeline(**letters).run()
    lake.sql("CREATE OR REPLACE TABLE {t} USING delta AS SELECT * FROM {t}")
    lake.pipeline(**letters).accept()
    assert lake.pipeline(**letters).verify().ok
    assert lake.pipeline(**letters).retry_dead_letters().of_others == 0
