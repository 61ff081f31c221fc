"""What a table's history no longer tells is unknown to the auditor, and never zero: Delta cleans its log."""

from __future__ import annotations

from typing import Any

import pytest
from audits import counts, verify
from conftest import Lake, Topic, forget_history

from connector.audit import Audit
from connector.audit.verdict import Verdict

pytestmark = pytest.mark.breadth


def forgotten(lake: Lake, kind: str = "append", **changes: Any) -> Audit:
    """The audit, once nothing of the history is left but a checkpoint without a commit of the pipeline."""
    for _ in range(2):
        lake.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.checkpointInterval' = '1')", kind)
    forget_history(lake.path(kind))
    assert lake.metadata(kind) == []
    return verify(lake, kind, **changes)


def test_a_delete_after_the_last_row_is_no_lost_row(lake: Lake, topic: Topic) -> None:
    topic.send_rows([("a", 1), ("b", 2)], partition=0)
    topic.send(("a", None), partition=0)
    lake.pipeline("upsert").run()
    assert lake.rows("upsert") == [("b", 2)]
    found = forgotten(lake, "upsert")
    assert counts(found) == {"expected": 1, "found": 1, "doubtful": 1}
    assert found.verdict is Verdict.UNKNOWN
    assert found.unknown[0].startswith("No commit of the pipeline tells how far the table claims to go.")
    lake.sql("UPDATE {t} SET n = 3", "upsert")
    assert counts(verify(lake, "upsert")) == {"expected": 1, "altered": 1, "doubtful": 1}


def test_a_version_that_a_delete_after_the_last_row_has_ended_is_not_altered(lake: Lake, topic: Topic) -> None:
    sink = {"key": "k", "sequence_by": "n", "apply_as_deletes": "n > 5"}
    topic.send_rows([("a", 1), ("b", 2), ("a", 9)], partition=0)
    lake.pipeline("history", sink=sink).run()
    found = forgotten(lake, "history", sink=sink)
    assert counts(found) == {"expected": 1, "found": 1, "ahead": 1}
    assert found.verdict is Verdict.UNKNOWN


def test_an_aggregate_without_a_commit_is_not_compared_with_nothing(lake: Lake, topic: Topic) -> None:
    sink = {"group_by": "k", "aggregates": {"n": "sum(n)"}}
    topic.send_rows([("a", 1), ("b", 2)], partition=0)
    lake.pipeline("aggregate", sink=sink).run()
    found = forgotten(lake, "aggregate", sink=sink)
    assert (counts(found), found.verdict) == ({}, Verdict.UNKNOWN)
    assert "No group was compared" in str(found)


def test_rows_of_a_pipeline_that_is_gone_are_not_from_nowhere(lake: Lake, topic: Topic) -> None:
    other = Topic(topic.broker, f"{topic.name}.other")
    topic.broker.create_topic(other.name, 1)
    of_other = {"name": "retired", "source": {"topics": [other.name]}}
    other.send_rows([("x", 7)], partition=0)
    topic.send_rows([("a", 1)], partition=0)
    lake.pipeline(**of_other).run()
    lake.pipeline().run()
    found = forgotten(lake)
    assert counts(found) == {"expected": 1, "found": 1, "held_before": 1}
    assert found.verdict is Verdict.UNKNOWN
    assert found.unknown[0].startswith("1 row has no coordinates, or those of a topic that isn't in the claim.")
    topic.send_rows([("b", 2)], partition=0)
    lake.pipeline().run()  # not its first epoch
    assert counts(verify(lake)) == {"expected": 2, "found": 2, "held_before": 1}
    lake.sql("UPDATE {t} SET _partition = 5 WHERE n = 2")
    assert counts(verify(lake)) == {"expected": 2, "found": 1, "held_before": 1, "lost": 1, "unexpected": 1}


def test_a_letter_that_is_closed_by_now_may_have_been_then(lake: Lake, topic: Topic) -> None:
    aside = {"on_bad_record": "dead_letter", "dead_letters": {"path": str(lake.folder / "letters")}}
    narrow, wide = ({**aside, "require": rule} for rule in ("n < 10", "n < 100"))
    topic.send_rows([("a", 1), ("b", 20), ("c", 3)], partition=0)
    lake.pipeline(**narrow).run()
    assert lake.pipeline(**wide).retry_dead_letters().through == 1
    assert lake.rows() == [("a", 1), ("b", 20), ("c", 3)]
    right = {"expected": 3, "found": 3, "records": 3}
    assert counts(verify(lake, **wide)) == right
    found = forgotten(lake, **wide)
    assert (counts(found), found.verdict) == (right, Verdict.EXACT)
    assert any("which dead letters had been sent again" in note for note in found.notes)
    lake.sql("DELETE FROM {t} WHERE n = 20")
    found = verify(lake, **wide)
    assert (counts(found), found.verdict) == ({**right, "found": 2, "doubtful": 1}, Verdict.UNKNOWN)
