"""Dead letters of a route: each goes to the table that it names, once, whatever happens between two tables' commits."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from another_engine import query
from audits import counts
from conftest import Lake, lakelock
from routing import Routed, dying_before_the_commit_of

from connector import Pipeline
from connector.audit import audit, audit_routes
from connector.audit.verdict import FAULTS
from connector.config import parse
from connector.lab.bench.pipelines import SHORT_LIVED
from connector.operations.dead_letters import Retried
from sinks.errors import Diverged

UPSERT = {"type": "delta_upsert", "key": "k", "sequence_by": "n"}
BREADTH = pytest.mark.breadth


@pytest.fixture
def routed(lake: Lake) -> Routed:
    return Routed(lake)


def options(routed: Routed, *, mended: bool = True, **changes: Any) -> dict[str, Any]:
    """The file that sets bad records aside; ``mended``: the corrected one, for which numbers may be text."""
    letters = {"on_bad_record": "dead_letter", "dead_letters": {"path": str(routed.lake.path("letters"))}}
    made = routed.options(**letters, **changes)
    return {**made, "value": {**made["value"], "mode": "permissive"}} if mended else made


def pipeline(routed: Routed, **changes: Any) -> Pipeline:
    return Pipeline.from_options(options(routed, **changes))


def closed(routed: Routed) -> list[tuple[Any, ...]]:
    return query(routed.lake.path("letters"), "SELECT _offset, _retried_epoch FROM t ORDER BY 1")


def send_bad(routed: Routed) -> None:
    """Offsets 0 and 4 are right; 1, 2 and 5 are so by the corrected file; 3 never."""
    routed.send(("a", "x", 0))
    bad: list[Any] = [{"kind": "a", "k": "y", "n": "1"}, {"kind": "b", "k": "z", "n": "2"}]
    bad.append({"kind": "b", "k": "v", "n": "no number"})
    routed.topic.send(*(("k", value) for value in bad), partition=0)
    routed.send(("a", "w", 4))
    routed.topic.send(("k", {"kind": "c", "k": "u", "n": "5"}), partition=0)


def exact(routed: Routed, **changes: Any) -> None:
    assert routed.rows("a") == [("w", 4), ("x", 0), ("y", 1)]
    assert (routed.rows("b"), routed.rows("c")) == ([("z", 2)], [("u", 5)])
    audits = audit_routes(parse(options(routed, **changes)), lambda one, upto: audit(one, upto=upto))
    found = {Path(each.table).name: counts(each) for each in audits}
    assert {name: each["found"] for name, each in found.items()} == {"a": 3, "b": 1, "c": 1}
    assert not any(fault in each for each in found.values() for fault in FAULTS), found


@pytest.mark.breadth
@pytest.mark.parametrize(
    ("sink", "by"), [(None, "recover"), *(pytest.param(UPSERT, by, marks=BREADTH) for by in ("run", "retry"))]
)
def test_a_crash_between_two_tables_leaves_no_letter_lost_or_twice(routed: Routed, sink: Any, by: str) -> None:
    send_bad(routed)
    pipeline(routed, sink=sink, mended=False).run()
    assert routed.rows("a") == [("w", 4), ("x", 0)]
    with dying_before_the_commit_of("b"):
        pipeline(routed, sink=sink).retry_dead_letters()
    assert not (routed.lake.path("b") / "_delta_log").exists() or routed.rows("b") == []
    assert closed(routed) == [(1, None), (2, None), (3, None), (5, None)]
    again = pipeline(routed, sink=sink)
    if by == "recover":
        assert "was gone, and was read again" in again.recover().did.value
    else:
        with pytest.raises(Diverged, match="has been changed since"):
            pipeline(routed, sink=sink, mended=False).run()
        if by == "run":
            assert again.run().epochs == 0
        # What was in doubt is settled first; then only what is still bad is tried.
        assert again.retry_dead_letters() == Retried(through=0, still_bad=1, epoch=3)
    assert closed(routed) == [(1, 2), (2, 2), (3, None), (5, 2)]
    assert (routed.epochs("a"), routed.epochs("b"), routed.epochs("c")) == ([1, 2], [2], [2])
    exact(routed, sink=sink)


@BREADTH
@pytest.mark.kills
def test_a_sigkill_between_two_tables_leaves_no_letter_lost_or_twice(routed: Routed, tmp_path: Path) -> None:
    send_bad(routed)
    pipeline(routed, mended=False).run()
    file = tmp_path / "routed.yaml"
    file.write_text(yaml.safe_dump({**options(routed), "spark": SHORT_LIVED}))
    script = tmp_path / "kill.py"
    script.write_text(
        "import os, signal, sys\n"
        "from connector import Pipeline\n"
        "from connector.protocol.steps import Step\n"
        "def observe(event):\n"
        "    if event.step is Step.SINK_COMMITTED:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "Pipeline.from_file(sys.argv[1]).retry_dead_letters(observers=[observe])\n"
    )
    died = subprocess.run([sys.executable, str(script), str(file)], capture_output=True, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr[-2000:]
    retried = lakelock("dead-letters", file, "--retry")
    assert retried.returncode == 0, retried.stderr
    assert closed(routed) == [(1, 2), (2, 2), (3, None), (5, 2)]
    exact(routed)


@BREADTH
def test_another_retry_that_takes_the_marks_changes_nothing(routed: Routed) -> None:
    """Its letters stay open, and the tables tell that they hold them."""
    send_bad(routed)
    pipeline(routed, mended=False).run()
    with dying_before_the_commit_of("b"):
        pipeline(routed).retry_dead_letters()
    assert routed.lake.spark is not None
    routed.lake.spark.sql(f"UPDATE delta.`{routed.lake.path('letters')}` SET _retry = 'another'").collect()
    pipeline(routed).recover()
    assert closed(routed) == [(1, None), (2, None), (3, None), (5, None)]
    assert pipeline(routed).retry_dead_letters() == Retried(through=3, still_bad=1, epoch=3)
    exact(routed)


@BREADTH
@pytest.mark.parametrize("sink", [None, UPSERT])
def test_a_rewind_reopens_what_a_retry_after_its_epoch_has_closed(routed: Routed, sink: Any) -> None:
    send_bad(routed)
    pipeline(routed, sink=sink, mended=False).run()
    assert pipeline(routed, sink=sink).retry_dead_letters() == Retried(through=3, still_bad=1, epoch=2)
    pipeline(routed, sink=sink).rewind(to_epoch=1, confirm=True)
    assert routed.rows("b") == []
    assert closed(routed) == [(1, None), (2, None), (3, None), (5, None)]
    assert pipeline(routed, sink=sink).retry_dead_letters() == Retried(through=3, still_bad=1, epoch=4)
    exact(routed, sink=sink)


@BREADTH
def test_a_letter_that_named_no_table_goes_where_the_corrected_route_says(routed: Routed) -> None:
    routed.send((None, "x", 1), ("a", "y", 2))
    pipeline(routed).run()
    assert closed(routed) == [(0, None)]
    by = {"by": "coalesce(kind, 'a')", "sink": {"type": "delta_append", "path": f"{routed.lake.folder}/{{route}}"}}
    assert pipeline(routed, route=by).retry_dead_letters() == Retried(through=1, epoch=2)
    assert routed.rows("a") == [("x", 1), ("y", 2)]


@BREADTH
def test_by_offset_letters_older_than_the_newest_table_are_not_tried(routed: Routed) -> None:
    """Nothing says that the deletes since then were kept, of which one may be newer than a letter."""
    send_bad(routed)
    by_offset = {"type": "delta_upsert", "key": "k"}
    pipeline(routed, sink=by_offset, mended=False).run()
    found = pipeline(routed, sink=by_offset).retry_dead_letters()
    assert (found.through, found.still_bad, found.too_old) == (0, 0, 4)
    assert closed(routed) == [(1, None), (2, None), (3, None), (5, None)]


@BREADTH
def test_by_offset_letters_older_than_a_run_that_kept_no_deletes_are_not_tried(routed: Routed) -> None:
    sink = {"type": "delta_upsert", "key": "k", "apply_as_deletes": "n = 9"}
    routed.send(("a", "x", 0))
    routed.topic.send(("k", {"kind": "a", "k": "y", "n": "1"}), partition=0)
    pipeline(routed, sink=sink, mended=False).run()
    routed.send(("a", "y", 9))
    Pipeline.from_options(routed.options(sink=sink)).run()
    assert pipeline(routed, sink=sink).retry_dead_letters() == Retried(too_old=1)
    assert routed.rows("a") == [("x", 0)]
