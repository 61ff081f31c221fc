from connector.lab.check.history import Happened
from connector.lab.experiment import Run
from sinks.offsets import OffsetRange

FIRST = (OffsetRange("t", 0, 0, 10),)
SECOND = (OffsetRange("t", 0, 10, 20),)


def happened(*events: tuple[str, tuple[OffsetRange, ...]]) -> list[Happened]:
    return [Happened(0, float(number), what, ranges) for number, (what, ranges) in enumerate(events)]


def test_a_run_says_a_line_for_each_batch() -> None:
    events = happened(
        ("resumed", FIRST), ("polled", FIRST), ("committed", FIRST), ("polled", SECOND), ("crashed", ())
    )  # fmt: skip
    assert repr(Run(1, "after_poll", events)).splitlines() == [
        "run 1, killed: after_poll",
        "  goes on at t-0: 0",
        "  t-0 [0, 10): read, in the table",
        "  t-0 [10, 20): read, kill -9",
    ]


def test_what_several_sinks_do_is_counted() -> None:
    events = happened(("decided", FIRST), ("sink_committed", FIRST), ("sink_committed", FIRST), ("committed", FIRST))
    assert repr(Run(2, None, events)).splitlines() == [
        "run 2, ended by itself",
        "  t-0 [0, 10): decided, in a sink (2), in the table",
    ]


def test_a_run_that_was_killed_before_its_first_batch() -> None:
    assert repr(Run(1, "begun", happened(("crashed", ())))).split() == ["run", "1,", "killed:", "begun", "kill", "-9"]
