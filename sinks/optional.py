"""What a participant of a two-phase commit may offer beside the contract."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from sinks.contract import Epoch, Position


@runtime_checkable
class Forgetful(Protocol):
    """A participant whose store may forget its position, as Kafka does with the offsets of a group that stands still.

    What it has made visible stays. The coordinator log knows which epoch that is, so the position can be written anew.
    """

    def remind(self, epoch: Epoch, reads: Mapping[str, Any], *, done: bool) -> Position | None:
        """Write the forgotten position anew, and return it. None: nothing was ever committed.

        ``epoch`` is the last one that was decided, and ``done`` says whether the sink is known to hold it. If not, the
        sink finds out. ``reads``: what its last commit that is known returned as ``Committed.reads``. Raises
        PositionMismatch if it can't find out, and TableReplaced.
        """
        ...


@runtime_checkable
class Replaceable(Protocol):
    """A participant that finds out that somebody else has replaced what it holds: then its ``position`` raises
    TableReplaced."""

    def accept(self) -> bool:
        """Go on with what is there now, from the next commit on. Returns whether there is anything to be accepted."""
        ...
