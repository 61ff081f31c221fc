"""How a pipeline stands, in a word or two. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from connector.fleet.files import Fault
from connector.operations.status import Status
from connector.watch.poll import Look
from sinks.offsets import OffsetRange

Kind = Literal["good", "waiting", "bad", "unknown"]


def standing(status: Status | None, faults: Sequence[Fault] = ()) -> tuple[Kind, str]:
    """The kind of a pipeline's state, and the state in words. ``status``: None if nothing was seen yet."""
    if any(fault.exit_code for fault in faults):
        return "bad", "can't be read"
    if faults:  # a table that is made with the first records
        return "waiting", "no record yet"
    if status is None:
        return "unknown", "not seen yet"
    if status.replaced:
        return "bad", "table was replaced"
    if status.recreated:
        return "bad", "topic recreated"
    if status.gone:
        return "bad", "records gone"
    if status.cut:
        return "bad", "log was cut"
    if status.in_doubt is not None:
        return "waiting", f"epoch {status.in_doubt.epoch.number} in doubt"
    if status.position is None:
        return "waiting", "no epoch yet"
    return ("waiting", "behind") if sum(status.lag.values()) else ("good", "up to date")


def of_look(look: Look) -> tuple[Kind, str]:
    """`standing` of a look, with its faults."""
    return standing(look.status, look.faults)


def ranges(gaps: Sequence[OffsetRange]) -> str:
    """Ranges of offsets in one line."""
    return ", ".join(map(str, gaps))


def count(number: int | None) -> str:
    """A number with separators; a hyphen if it isn't known."""
    return "-" if number is None else f"{number:,}"
