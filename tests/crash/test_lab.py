"""The crash lab itself: what each delivery loses or repeats, and what all of them together survive."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from connector.lab.chaos import run_chaos
from connector.lab.checker import Kind, Report, Verdict, judge, must_show
from connector.lab.history import History
from connector.lab.matrix import Cell, run_matrix
from connector.lab.page import page
from connector.lab.steps import POINTS, run_steps

LOST, DUPLICATED = {Kind.LOST}, {Kind.DUPLICATED}
CELLS = {
    Cell("auto_commit", "append", "before_write"): LOST,
    Cell("auto_commit", "append", "mid_write"): LOST,
    Cell("auto_commit", "upsert", "after_auto_commit"): LOST,
    Cell("auto_commit", "upsert", "after_write"): set(),
    Cell("manual_commit", "append", "after_write"): DUPLICATED,
    Cell("manual_commit", "append", "in_recovery"): DUPLICATED,
    Cell("idempotent", "upsert", "after_write"): set(),
    Cell("transactional", "append", "in_recovery"): set(),
    Cell("transactional", "upsert", "after_write"): set(),
}


def quiet() -> Console:
    return Console(file=io.StringIO())


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[Cell, tuple[History, Report]]:
    folder = tmp_path_factory.mktemp("matrix")
    found = run_matrix(list(CELLS), folder, quiet())
    for history, report in found:
        kept = History.load(folder / "histories" / f"{history.delivery}-{history.sink}-{history.crash_point}.json")
        expects = must_show(history.delivery, history.sink, history.crash_point)
        assert judge(kept, expects=expects) == report, "a kept history gives the same verdict again"
    return {Cell(history.delivery, history.sink, history.crash_point): (history, report) for history, report in found}


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_what_each_delivery_loses_or_repeats(cell: Cell, found: dict[Cell, tuple[History, Report]]) -> None:
    history, report = found[cell]
    assert report.verdict is Verdict.HELD, report.reasons
    assert {kind for kind, count in report.counts.items() if count} == CELLS[cell]
    assert history.drained
    assert len(history.versions) > 2


def test_the_page_shows_every_run(found: dict[Cell, tuple[History, Report]]) -> None:
    shown = page(list(found.values()), "Lab", {})
    for cell in CELLS:
        assert cell.delivery in shown
    assert "http" not in shown.replace("http://www.w3.org/", "")


@pytest.mark.timeout(1800)
def test_four_sinks_killed_before_and_after_the_decision(tmp_path: Path) -> None:
    """`lakelock lab together` kills at the other steps too."""
    killed_at = ("prepared", "decided", "mid_commit", "recovery_of_begun")
    assert set(killed_at) <= {point.name for point in POINTS}
    found = run_steps(tmp_path, quiet(), killed_at)
    assert found.keys() == set(killed_at)
    assert {point: verdict.to_dict() for point, verdict in found.items() if not verdict.held} == {}
    states = {point: {state for _, state, _ in verdict.states} for point, verdict in found.items()}
    assert all("aborted" in states[point] for point in ("prepared", "recovery_of_begun"))
    assert all("aborted" not in states[point] for point in ("decided", "mid_commit"))


@pytest.mark.timeout(1800)
def test_chaos_leaves_four_sinks_exact(tmp_path: Path) -> None:
    chaos = run_chaos(tmp_path, quiet(), seconds=40, faults=6, records=20_000, seed=12, together=True)
    assert chaos.sent + chaos.unknown == 20_000
    assert chaos.held, json.dumps(chaos.audits, indent=2)[:5000]
    assert chaos.audits["append"]["totals"]["expected"] >= chaos.sent


def test_chaos_leaves_every_table_exact(tmp_path: Path) -> None:
    chaos = run_chaos(tmp_path, quiet(), seconds=40, faults=10, records=20_000, seed=11)
    assert len(chaos.faults) == 10
    assert chaos.sent + chaos.unknown == 20_000
    assert chaos.held, json.dumps(chaos.audits, indent=2)[:5000]
    assert {name: audit["totals"]["lost"] for name, audit in chaos.audits.items()} == dict.fromkeys(chaos.audits, 0)
