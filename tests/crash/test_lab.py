"""The crash lab itself: what each delivery loses or repeats, and what all of them together survive."""

import io
import json
from pathlib import Path

import pytest
from another_engine import query
from rich.console import Console

from connector.lab.check.checker import Kind, Report, Verdict, judge, must_show
from connector.lab.check.history import History
from connector.lab.show.page import page
from connector.lab.trials.chaos import KEYS, PIPELINES, run_chaos
from connector.lab.trials.matrix import Cell, cells, run_matrix
from connector.lab.trials.steps import POINTS, run_steps

LOST, DUPLICATED = {Kind.LOST}, {Kind.DUPLICATED}
CELLS = {
    Cell("auto_commit", "append", "before_write"): LOST,
    Cell("manual_commit", "append", "after_write"): DUPLICATED,
    Cell("idempotent", "upsert", "after_write"): set(),
    Cell("transactional", "append", "after_write"): set(),
}
IN_THE_MATRIX = {
    **CELLS,
    Cell("transactional", "append", "before_write"): set(),
    Cell("transactional", "upsert", "after_write"): set(),
    Cell("auto_commit", "append", "mid_write"): LOST,
    Cell("auto_commit", "upsert", "after_auto_commit"): LOST,
    Cell("auto_commit", "upsert", "after_write"): set(),
    Cell("manual_commit", "append", "in_recovery"): DUPLICATED,
    Cell("transactional", "append", "in_recovery"): set(),
    Cell("transactional", "routed", "mid_write"): set(),
    Cell("transactional", "routed", "between_tables"): set(),
}


def quiet() -> Console:
    return Console(file=io.StringIO())


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[Cell, tuple[History, Report]]:
    """All of them share two processes: one that is killed, one that goes on."""
    return crashed(list(CELLS), tmp_path_factory.mktemp("matrix"))


def crashed(chosen: list[Cell], folder: Path) -> dict[Cell, tuple[History, Report]]:
    found = run_matrix(chosen, folder, quiet())
    for history, report in found:
        kept = History.load(folder / "histories" / f"{history.delivery}-{history.sink}-{history.crash_point}.json")
        expects = must_show(history.delivery, history.sink, history.crash_point)
        assert judge(kept, expects=expects) == report, "a kept history gives the same verdict again"
    return {Cell(history.delivery, history.sink, history.crash_point): (history, report) for history, report in found}


def assert_held(history: History, report: Report) -> None:
    assert report.verdict is Verdict.HELD, report.reasons
    assert history.drained
    assert len(history.versions) > 2


def damage(report: Report) -> set[Kind]:
    return {kind for kind, count in report.counts.items() if count}


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_what_each_delivery_loses_or_repeats(cell: Cell, found: dict[Cell, tuple[History, Report]]) -> None:
    history, report = found[cell]
    assert_held(history, report)
    assert damage(report) == CELLS[cell]


@pytest.mark.matrix
@pytest.mark.timeout(1800)
def test_every_delivery_into_every_sink_at_every_crash_point(tmp_path: Path) -> None:
    matrix = crashed(cells(), tmp_path)
    for history, report in matrix.values():
        assert_held(history, report)
    assert {cell: damage(matrix[cell][1]) for cell in IN_THE_MATRIX} == IN_THE_MATRIX


def test_the_page_shows_every_run(found: dict[Cell, tuple[History, Report]]) -> None:
    shown = page(list(found.values()), "Lab", {})
    for cell in CELLS:
        assert cell.delivery in shown
    assert "http" not in shown.replace("http://www.w3.org/", "")


@pytest.mark.chaos
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "killed_at",
    [
        ("mid_commit",),
        pytest.param(tuple(point.name for point in POINTS), marks=pytest.mark.steps),
    ],
    ids=["one", "all"],
)
def test_four_sinks_killed_before_and_after_the_decision(killed_at: tuple[str, ...], tmp_path: Path) -> None:
    assert set(killed_at) <= {point.name for point in POINTS}
    found = run_steps(tmp_path, quiet(), killed_at)
    assert found.keys() == set(killed_at)
    assert {point: verdict.to_dict() for point, verdict in found.items() if not verdict.held} == {}
    states = {point: {state for _, state, _ in verdict.states} for point, verdict in found.items()}
    for point in states:
        undecided = point in ("begun", "read", "prepared", "recovery_of_begun")
        assert ("aborted" in states[point]) is undecided, point


@pytest.mark.chaos
@pytest.mark.timeout(1800)
def test_chaos_leaves_four_sinks_exact(tmp_path: Path) -> None:
    chaos = run_chaos(tmp_path, quiet(), seconds=40, faults=6, records=20_000, seed=12, together=True)
    assert chaos.sent + chaos.unknown == 20_000
    assert chaos.held, json.dumps(chaos.audits, indent=2)[:5000]
    assert chaos.audits["append"]["totals"]["expected"] >= chaos.sent


@pytest.mark.chaos
def test_chaos_leaves_every_table_exact(tmp_path: Path) -> None:
    chaos = run_chaos(tmp_path, quiet(), seconds=40, faults=10, records=20_000, seed=11)
    assert len(chaos.faults) == 10
    assert chaos.sent + chaos.unknown == 20_000
    assert chaos.held, json.dumps(chaos.audits, indent=2)[:5000]
    assert {name: audit["totals"]["lost"] for name, audit in chaos.audits.items()} == dict.fromkeys(PIPELINES, 0)
    kept = query(tmp_path / "tables/transactional_kept", "SELECT k, n, large FROM t")
    wrong = [row for row in kept if row[2] != newest_that_was_sent(*row[:2])]
    # Of a chunk whose producer gave up, values may be missing.
    assert len(wrong) <= chaos.unknown, wrong[:10]


def newest_that_was_sent(key: str, newest: int) -> int | None:
    """Of a key whose newest record is this one: the number in the newest record that sent ``large``."""
    return max((number for number in range(int(key[1:]) // 2, newest + 1, KEYS // 2) if number % 3), default=None)
