"""A table remembers what shaped its rows: the options that say how later records go together with its rows.

Nothing in a row tells by which expression a sum was added up, or by which the row's last update was found. Under other
options rows would be mixed of both, without a sign of it. So the table has the options' texts as a property, one for
each pipeline that writes to it: another text stops a run before it writes anything.

* A new table has the property from its first version on. A table without it, that somebody else or an earlier release
  has made, gets it before the run's first epoch: what shaped its rows isn't known.
* A RESTORE takes the property back with the rows, and a CLONE takes it along. What replaces the table removes it.
* It says nothing of a table that holds no change yet, as after a rewind to the beginning.
* A crash between the property and the first epoch leaves a table of the same rows. The next run sets it again if need
  be.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from sinks.delta.conflicts import past_conflicts
from sinks.delta.table import DeltaTable
from sinks.errors import SchemaMismatch
from sinks.spark.row_errors import problem
from sinks.spark.schema_changes import differences
from sinks.spark.sql import literal, zone_name

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

log = logging.getLogger("lakelock.delta")

ZONE = "spark.sql.session.timeZone"
TRACKED = "tracked"
"""Name of the columns by which a history tells whether a row has changed, where the file doesn't list them."""
FILLED = "filled"
"""Name of the columns that the updates of an upsert have filled, now or earlier. In a row that a later one replaces, a
column that it lacks must not keep the value of an older one."""
_PREFIX = "lakelock.shape."
_GONE_IS_CHANGED = ("key", "group_by", "aggregates.", "window.")
"""Beginnings of options that can't be left out later: the rows hold what they said."""
_KEYS = ("key", "group_by")
_HAS_A_RULE = "sequence_by"
"""May be left out where `sinks.delta.order` lets it: no row is ordered by it then."""
_TOKENS = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|`[^`]*`|\w+|\S""", re.DOTALL)
_CHANGES = ("_offset", "_applied", "_deleted_by")
"""The columns of which one is filled in each row that comes from a record."""

Text: TypeAlias = str | Sequence[str] | None
"""An expression; columns, whose order makes no difference; or None: the option isn't given."""


@dataclass(frozen=True)
class Shape:
    """The options of one pipeline that shape a table's rows."""

    pipeline: str = ""
    option: Callable[[str], str] = str
    """From the name of an option to its path in the file, for messages."""
    texts: Mapping[str, Text] = field(default_factory=dict)
    """Option -> what it says."""
    keeping: Sequence[str] = ()
    """Columns of the rows that keep an older update's value where a later one has null: they are never emptied, also
    if the table remembers from before the option that updates have filled them."""

    @property
    def name(self) -> str:
        """The property's name. In hexadecimal digits, as its value: Spark hides what looks like a secret."""
        return _name(self.pipeline)

    @property
    def properties(self) -> Mapping[str, str]:
        """What a table gets when it is made."""
        return {self.name: _packed(self.texts)} if self.texts else {}

    def check(self, table: DeltaTable, *, begun: Callable[[], bool]) -> None:
        """Raise SchemaMismatch if the table's rows were shaped by other options. ``begun``: whether records were
        written to the table, of which no row need be left."""
        other = self.differences(self._kept(table))
        if not other or not (begun() or holds_changes(table)):
            return
        back = "Write what the table was made with"
        if ZONE in other:
            back += f" (spark: {{{ZONE}: {_told(other[ZONE][0])}}}, or in a session of yours spark.conf.set)"
        if TRACKED in other:
            back += " (have the column back: in the schema of the records, column_list, steps or transform)"
        if any(name.startswith("types.") for name in other):
            back += " (cast what is counted to the type that it had, and have the table forget the text of before)"
        raise SchemaMismatch(
            f"The rows of {table.label!r} were made with other options: {self.told(other)}. A row that was made with "
            "both would be wrong, and nothing would tell it. Nothing was written to the table.",
            hint=f"{back}, or replay the topic into a new table: `lakelock replay FILE --into PATH`. Where both mean "
            "the same, as after a column was renamed, have the table forget it: "
            f"{forgetting_sql(table, self.pipeline)}",
        )

    def keep(self, table: DeltaTable) -> None:
        """Have the table remember these options, before the first epoch of a run. Call it after ``check``.

        This is a separate commit, which changes no row, and only if the table remembers something else.
        """
        from pyspark.errors import PySparkException

        kept = self._kept(table)
        texts = self.over(kept)
        self._tell_gone(table, kept)
        if texts == kept:
            return
        change = f"SET TBLPROPERTIES ({literal(self.name)} = {literal(_packed(texts))})"
        try:
            past_conflicts(lambda: table.spark.sql(f"ALTER TABLE {table.sql} {change}").collect())
        except PySparkException as error:
            # A table of somebody else's may take rows and no properties.
            log.warning("%r can't remember the options that shape its rows: %s", table.label, problem(error))
        table.forget()

    def differences(self, kept: Mapping[str, Text]) -> Mapping[str, tuple[Text, Text]]:
        """Option -> what the table's rows were made with, and what it says now, if that is something else. Pure.

        ``kept``: what the table remembers. An option that it doesn't remember isn't known.
        """
        gone = [name for name in kept if name.startswith(_GONE_IS_CHANGED) and name not in self.texts]
        found = {name: (kept[name], self.texts.get(name)) for name in [*self.texts, *gone] if name in kept}
        return {name: both for name, both in found.items() if _differ(name, *both)}

    def _told(self, name: str, was: Text, now: Text) -> str:
        if name == TRACKED:
            return f"{self.option(name)} {', '.join(_beside(was, now))} too, and the rows have no such column now"
        return f"{name if name == ZONE else self.option(name)} was {_told(was)}, and is {_told(now)} now"

    def told(self, other: Mapping[str, tuple[Text, Text]]) -> str:
        """Differences in words."""
        return "; ".join(self._told(name, was, now) for name, (was, now) in other.items())

    def rounded_keys(self, there: StructType, wanted: StructType) -> list[str]:
        """The key's columns that Delta would widen from FLOAT to DOUBLE, as faults: the row of 0.1 would be that of
        0.10000000149011612, and no later update or delete of 0.1 would find it. Pure."""
        keys = [name.lower() for name in self._keys]
        return [
            f"column {path} is part of the key, and a FLOAT of the table isn't the DOUBLE that records have now: "
            "0.1 would be another key"
            for path in differences(there, wanted).rounded
            if path.partition(".")[0].lower() in keys
        ]

    def check_fields(self, label: str, there: StructType, wanted: StructType) -> None:
        """Raise SchemaMismatch if the key has other fields in the table than in the rows. ``label``: the table's name;
        ``there``: its columns; ``wanted``: those of the rows."""
        faults = self.other_fields(there, wanted)
        if not faults:
            return
        option = next(option for option in _KEYS if self.texts.get(option))
        raise SchemaMismatch(
            f"The rows of {label!r} are identified by other fields than the records: {'; '.join(faults)}. "
            "Two keys would share a row, or one have two. Nothing was written to the table.",
            hint=f"Have the schema of what {self.option(option)} names give exactly the fields that the table has "
            "(schema, schema_file; with on_new_column: add records give it further ones), or replay the topic into a "
            "new table: `lakelock replay FILE --into PATH`.",
        )

    def other_fields(self, there: StructType, wanted: StructType) -> list[str]:
        """The fields, at any depth, that the key has in the table alone or in the rows alone, as faults. Pure.

        Left out, such a field would make one key of two, and with null in its place another key of the same one.
        ``on_new_column`` is about what a row says, and this is about which row it is.
        """
        inside = tuple(f"{name.lower()}." for name in self._keys)
        columns = _lower([*there.names, *wanted.names])  # a column may have a dot in its name
        lacking = {"the table has": differences(there, wanted).new, "the records have": differences(wanted, there).new}
        return [
            f"{which} no {path}"
            for which, paths in lacking.items()
            for path in paths
            if path.lower().startswith(inside) and path.lower() not in columns
        ]

    @property
    def _keys(self) -> Sequence[str]:
        """The columns that say which row a record goes to."""
        return [name for option in _KEYS for name in self.texts.get(option) or ()]

    def over(self, kept: Mapping[str, Text]) -> Mapping[str, Text]:
        """What a table remembers once these options have passed ``check``. Pure.

        What they say nothing of still holds for the rows that are there, as the zone of their times when records have
        none any more. Where the options differ, no row is left.
        """
        still = {} if self.differences(kept) else {name: kept[name] for name in kept if name != _HAS_A_RULE}
        both = {**still, **self.texts}
        if FILLED in still and FILLED in both:
            filled = _beside(still[FILLED], self.keeping)
            both[FILLED] = [*filled, *_beside(both[FILLED], filled)]
        return both

    def _tell_gone(self, table: DeltaTable, kept: Mapping[str, Text]) -> None:
        gone = self._gone(kept)
        there = _lower(table.schema.names) if gone else []
        if gone := [name for name in gone if name.lower() in there]:
            log.warning(
                "%r: records had %s once, and have no such column now. It is null, or its default, in each row that a "
                "record replaces from now on. If it is yours now, have the table forget that records had it: %s",
                table.label, ", ".join(gone), forgetting_sql(table, self.pipeline),
            )  # fmt: skip

    def _gone(self, kept: Mapping[str, Text]) -> list[str]:
        """The columns that updates have filled once, and that the rows lack. None where every column keeps its value
        until an update has another one: then so do these."""
        filled = self.texts.get(FILLED)
        if filled is None or (self.keeping and not filled):
            return []
        return _beside(_beside(kept.get(FILLED), filled), self.keeping)

    def _kept(self, table: DeltaTable) -> Mapping[str, Text]:
        return _kept(table, self.pipeline)


def no_longer_filled(table: DeltaTable, pipeline: str, columns: Sequence[str]) -> Sequence[str]:
    """The columns that earlier updates of the pipeline have filled. ``columns``: those that they fill now."""
    return _beside(_kept(table, pipeline).get(FILLED), columns)


def kept_zone(table: DeltaTable, pipeline: str) -> str | None:
    """The time zone of the pipeline's runs, if the table remembers it."""
    zone = _kept(table, pipeline).get(ZONE)
    return zone_name(zone) if isinstance(zone, str) else None


def _kept(table: DeltaTable, pipeline: str) -> Mapping[str, Text]:
    detail = table.detail()
    return _unpacked(detail.properties.get(_name(pipeline), "")) if detail is not None else {}


def _beside(columns: Text, others: Text) -> list[str]:
    """Those of the columns that aren't among the others."""
    known = _lower(others)
    return [name for name in columns or () if name.lower() not in known]


def pipelines(properties: Mapping[str, str]) -> Sequence[str]:
    """The pipelines of which a table with these properties remembers the options."""
    digits = (name.removeprefix(_PREFIX) for name in properties if name.startswith(_PREFIX))
    return [bytes.fromhex(each).decode(errors="replace") for each in digits if re.fullmatch("(?:[0-9a-f]{2})+", each)]


def forgetting_sql(table: DeltaTable, pipeline: str) -> str:
    """The statement by which the table forgets what it remembers of a pipeline."""
    return f"ALTER TABLE {table.sql} UNSET TBLPROPERTIES ('{_name(pipeline)}')"


def _name(pipeline: str) -> str:
    return f"{_PREFIX}{pipeline.encode().hex()}"


def _packed(texts: Mapping[str, Text]) -> str:
    return json.dumps(texts).encode().hex()


def _unpacked(text: str) -> dict[str, Text]:
    """What a property says. Empty: it says nothing that can be read."""
    try:
        found = json.loads(bytes.fromhex(text))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def canonical(text: Text) -> Text:
    """What is the same for texts that mean the same: spaces, the case of SQL and the order of columns don't count."""
    if text is None:
        return None
    if not isinstance(text, str):
        return sorted(each.lower() for each in text)
    return " ".join(_canonical(token) for token in _TOKENS.findall(text))


def _differ(name: str, was: Text, now: Text) -> bool:
    """A history may compare one column more: rows of before have NULL there. Without one that it has compared, versions
    that differ in it alone would be merged as soon as a late record comes."""
    if name == FILLED:
        return False
    return bool(_beside(was, now)) if name == TRACKED else canonical(was) != canonical(now)


def _lower(columns: Text) -> list[str]:
    return [each.lower() for each in columns or ()]


def _canonical(token: str) -> str:
    if token[0] == "`" and re.fullmatch(r"\w+", token[1:-1]):
        return token[1:-1].lower()
    return token if token[0] in "'\"`" else token.lower()


def _told(text: Text) -> str:
    if text is None:
        return "not given"
    return text if isinstance(text, str) else ", ".join(text) or "empty"


def holds_changes(table: DeltaTable) -> bool:
    """Whether a row of the table comes from a record."""
    rows = table.spark.table(table.sql)
    own = [f"{name} IS NOT NULL" for name in rows.columns if name in _CHANGES]
    return bool(own) and not rows.where(" OR ".join(own)).isEmpty()
