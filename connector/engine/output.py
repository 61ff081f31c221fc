"""What takes the rows of an epoch, as the engine sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from connector.derive.derivation import Derivation
from connector.engine.decoders import Decoder
from sinks.spark.limits import Limit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Output(Protocol):
    """What takes the rows of an epoch: a table, another sink, or all tables of a route."""

    @property
    def decode(self) -> Decoder:
        """How records become its rows."""
        ...

    @property
    def derivation(self) -> Derivation:
        """Its columns, and what it makes of the rows."""
        ...

    @property
    def label(self) -> str:
        """Its name, for messages."""
        ...

    @property
    def location(self) -> str:
        """Where its files are. Empty text if it looks after itself."""
        ...

    @property
    def exists(self) -> bool:
        """Whether it is there."""
        ...

    def ready(self) -> None:
        """Make it, unless it is there. Raises SchemaMismatch, NotADeltaTable."""
        ...

    def check(self) -> bool:
        """Whether it is there; raises SchemaMismatch where it doesn't take the rows."""
        ...

    def unfit(self, rows: DataFrame) -> Sequence[Limit]:
        """What it can't hold of decoded records."""
        ...

    def rules(self) -> Sequence[str]:
        """Its own rules in words."""
        ...

    def made_by(self, *, plain: bool = False) -> str:
        """The SQL that would make it, if its sink says how. Empty: it is there, or no table.

        ``plain``: also if its sink says nothing of its layout.
        """
        ...

    def differs(self) -> Sequence[str]:
        """How a table that is there differs from what its sink says of its layout, in words."""
        ...

    def forget_rules(self) -> None:
        """Read its rules again at their next use."""
        ...


class NoTable:
    """What looks after itself: it has no place of its own, nothing has to be made for it, and it has no rules."""

    @property
    def location(self) -> str:
        """No table's."""
        return ""

    @property
    def exists(self) -> bool:
        """Nothing has to be made."""
        return True

    def rules(self) -> Sequence[str]:
        """There are none."""
        return ()

    def made_by(self, *, plain: bool = False) -> str:  # noqa: ARG002
        """No SQL makes it."""
        return ""

    def differs(self) -> Sequence[str]:
        """It has no layout."""
        return ()

    def forget_rules(self) -> None:
        """Nobody changes them."""
