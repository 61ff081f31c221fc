"""Repetitions and what they come to."""

from pathlib import Path

import pytest
from benchmarks import report
from benchmarks.measure import Measured, Median, Ratio, Run, alternating
from benchmarks.sizes import Sizes
from benchmarks.works import WORKS

SPEED = Ratio("speed", ("peer", "seconds"), ("ours", "seconds"), at_least=2.0)


def runs(**seconds: list[float]) -> list[Run]:
    return [
        Run(contender, number, {"seconds": value})
        for contender, values in seconds.items()
        for number, value in enumerate(values)
    ]


def test_contenders_alternate_to_and_fro_and_a_warm_up_does_not_count() -> None:
    order: list[str] = []

    def contender(name: str) -> dict[str, float]:
        order.append(name)
        return {"seconds": float(len(order))}

    measured = alternating({name: lambda name=name: contender(name) for name in "ab"}, 2, warm_up=1)
    assert "".join(order) == "ba" + "ab" + "ba"
    assert [(run.contender, run.repetition, run.figures["seconds"]) for run in measured] == [
        ("a", 0, 3.0), ("a", 1, 6.0), ("b", 0, 4.0), ("b", 1, 5.0),
    ]  # fmt: skip


def test_a_ratio_is_that_of_the_medians_and_its_spread_that_of_the_repetitions() -> None:
    judged = SPEED.judge(runs(ours=[1.0, 2.0, 4.0], peer=[5.0, 4.0, 4.0]))
    assert judged is not None
    assert judged.median == Median(2.0, 1.0, 5.0)


@pytest.mark.parametrize(("peer", "met"), [(2.0, True), (1.99, False)])
def test_a_target_that_is_reached_is_met(peer: float, met: bool) -> None:
    judged = SPEED.judge(runs(ours=[1.0], peer=[peer]))
    assert judged is not None
    assert judged.met is met


def test_a_bound_on_a_figure_itself_needs_no_peer() -> None:
    judged = Ratio("CPU", ("ours", "seconds"), None, at_most=2.0).judge(runs(ours=[1.0, 3.0, 2.5]))
    assert judged is not None
    assert (judged.median, judged.met) == (Median(2.5, 1.0, 3.0), False)


def test_a_contender_that_was_not_measured_has_no_ratio() -> None:
    assert SPEED.judge(runs(ours=[1.0])) is None


def test_at_every_scale_there_are_several_triggers_and_two_folds() -> None:
    for scale in (0.001, 0.05, 1.0):
        sizes = Sizes.at(scale)
        assert sizes.records // sizes.per_trigger == 8
        assert sizes.trickle_epochs // sizes.trickle_fold == 2
    assert Sizes.at(1.0) == Sizes()


def test_works_that_were_measured_before_are_kept_as_they_were(tmp_path: Path) -> None:
    file, settings = tmp_path / "results.json", {"scale": 1.0, "merge": "on_read"}
    one, other = (Measured(work, runs(lakelock=[1.0, 2.0], peer=[3.0, 4.0])) for work in WORKS[:2])
    found = report.document([one, other], Sizes(), settings)
    report.write(file, found)
    kept = report.earlier(file, WORKS[1:], report.document((), Sizes(), settings))
    assert [(each.work, list(each.runs), each.date) for each in kept] == [(other.work, list(other.runs), other.date)]
    assert report.document([one, *kept], Sizes(), settings) == found
    assert report.earlier(tmp_path / "nothing.json", WORKS, found) == []


def test_works_that_were_measured_in_another_way_are_refused(tmp_path: Path) -> None:
    file, settings = tmp_path / "results.json", {"scale": 1.0, "merge": "on_read"}
    report.write(file, report.document((), Sizes(), settings))
    with pytest.raises(ValueError, match="another scale"):
        report.earlier(file, WORKS, report.document((), Sizes(), {**settings, "scale": 0.1}))
