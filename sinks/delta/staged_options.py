"""What is staged is committed by the options that reduced it.

A decided epoch is committed from its staged rows, maybe by a later run, whose file may say something else. The table
itself remembers its options, but says nothing before its first epoch: rows of which one per ``id`` is left would be
merged by ``id, line``. So the receipt tells the options, as texts: what means the same is the same in every release.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sinks.contract import Epoch, Prepared
from sinks.delta.shape import FILLED, Shape, Text
from sinks.delta.upsert_rule import COLUMNS
from sinks.errors import Diverged

_OPTIONS = "options"
"""In the receipt, as JSON. Earlier releases note none."""


@dataclass(frozen=True)
class StagedOptions:
    """The options of this run by which one table's rows are reduced, and committed."""

    shape: Shape = field(default_factory=Shape)
    parts: Sequence[str] | None = None
    """As in ``UpsertRule``; None: it is no upsert, where the columns may be called anything."""

    def noted(self, prepared: Prepared) -> Prepared:
        """With the options in the receipt."""
        if not self.shape.texts:
            return prepared
        return replace(prepared, receipt={**prepared.receipt, _OPTIONS: json.dumps(self._texts)})

    def refuse_others(self, label: str, epoch: Epoch, prepared: Prepared) -> None:
        """Raise Diverged if rows were staged by other options. What a receipt doesn't tell isn't known."""
        if _OPTIONS not in prepared.receipt:
            return
        other = "; ".join(each for of in (self._other_texts, self._other_parts) if (each := of(prepared.receipt)))
        if not other:
            return
        before = epoch.number - 1
        back = f"`lakelock rewind FILE --to-epoch {before}`"
        raise Diverged(
            f"Epoch {epoch.number} was decided, and its rows for {label!r} were reduced by other options than they "
            f"would be committed by: {other}. Nothing was written to the table.",
            hint="Put back what has been changed, run `lakelock recover FILE`, and change it then. "
            + (
                f"Or give the epoch up, if all sinks are tables: {back}."
                if before
                else f"If the table's rows forbid the change, {back} takes all tables back to the beginning after that."
            ),
        )

    @property
    def _texts(self) -> Mapping[str, Text]:
        # A sequence_by that is added later is told by this, too. Which columns are filled, the rows show.
        return {"sequence_by": None, **{name: text for name, text in self.shape.texts.items() if name != FILLED}}

    def _other_texts(self, receipt: Mapping[str, str]) -> str:
        now = replace(self.shape, texts=self._texts)
        return now.told(now.differences(json.loads(receipt[_OPTIONS])))

    def _other_parts(self, receipt: Mapping[str, str]) -> str:
        """A null of another column would overwrite a value, or keep one. The rows themselves tell the columns."""
        if self.parts is None:
            return ""
        kinds = {each["name"].lower(): each["type"] for each in json.loads(receipt["schema"])["fields"]}
        kind = kinds.get(COLUMNS)
        had = _lower(each["name"] for each in kind["fields"]) if kind is not None else set()
        has = _lower(self.parts) & kinds.keys()  # a column that has come since has no value to keep
        if had == has:
            return ""
        return (
            "the columns that an update without a value leaves as they are (by ignore_null_updates, or "
            f"unavailable: keep) were {_listed(had)}, and are {_listed(has)} now"
        )


def _lower(names: Iterable[str]) -> set[str]:
    return {name.lower() for name in names}


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
