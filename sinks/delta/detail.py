"""Details of a Delta table: its place, properties, partitions and generated columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_SECONDS = {
    "week": 604800.0, "day": 86400.0, "hour": 3600.0, "minute": 60.0, "second": 1.0, "millisecond": 1e-3,
    "microsecond": 1e-6,
}  # fmt: skip
_PART = rf"(\d+)\s*({'|'.join(_SECONDS)})s?\b"
_OF_CATALOGS = r"delta\.feature\.(catalogManaged|catalogOwned|coordinatedCommits)\b.*"
_GENERATED = "delta.generationExpression"
_CONSTRAINT = "delta.constraints."
_DEFAULT = "CURRENT_DEFAULT"
_IDENTITY, _TAKES_VALUES = "delta.identity.start", "delta.identity.allowExplicitInsert"
"""Metadata of columns, of which only the log tells."""


@dataclass(frozen=True)
class Detail:
    """Details of a table, as Delta describes it."""

    location: str
    properties: Mapping[str, str]
    id: str = ""
    """The table's id in Delta. It changes if the table is replaced, or dropped and recreated."""
    partitions: Sequence[str] = ()
    """The partition columns."""
    generated: Mapping[str, str] = field(default_factory=dict)
    """Generated column -> the SQL expression that Delta computes it from."""
    identities: Sequence[str] = ()
    """Columns that are GENERATED ALWAYS AS IDENTITY."""
    numbered: Sequence[str] = ()
    """All identity columns: also those that take a value if the pipeline has one."""
    defaults: Mapping[str, str] = field(default_factory=dict)
    """Column with a DEFAULT -> its SQL, the value of new rows without one."""
    clusters: Sequence[str] = ()
    """The columns that it is clustered by."""
    comment: str = ""

    @property
    def append_only(self) -> bool:
        """Whether Delta refuses every commit that changes or removes rows."""
        return self.properties.get("delta.appendOnly", "false").lower() == "true"

    @property
    def checks(self) -> Mapping[str, str]:
        """The table's CHECK constraints by name."""
        return {
            name.removeprefix(_CONSTRAINT): condition
            for name, condition in self.properties.items()
            if name.startswith(_CONSTRAINT)
        }

    @property
    def managed_by(self) -> str:
        """Delta's feature by which another service holds the table's newest commits. Empty: its log has them all."""
        return next((name for name in self.properties if re.fullmatch(_OF_CATALOGS, name)), "")

    @property
    def column_mapping(self) -> str:
        """Delta's mode of column mapping: none, name or id."""
        return self.properties.get("delta.columnMapping.mode", "none")

    @property
    def log_retention(self) -> timedelta:
        """How long Delta keeps a commit's metadata."""
        return self._interval("delta.logRetentionDuration", timedelta(days=30))

    @property
    def file_retention(self) -> timedelta:
        """How long VACUUM keeps files that are no longer in the newest version."""
        return self._interval("delta.deletedFileRetentionDuration", timedelta(days=7))

    def _interval(self, name: str, default: timedelta) -> timedelta:
        """An interval property. ``default``: the value if the property is missing or can't be parsed."""
        found = interval(self.properties.get(name, ""))
        return default if found is None else found


def interval(text: str) -> timedelta | None:
    """An interval as Delta's properties have it: ``7 days``, ``interval 1 week 12 hours``. None: it is another text."""
    parts = re.fullmatch(rf"\s*(?:interval\s+)?((?:{_PART}\s*)+)", text.lower())
    if parts is None:
        return None
    return timedelta(seconds=sum(int(count) * _SECONDS[unit] for count, unit in re.findall(_PART, parts[1])))


def with_generated(detail: Detail, columns: Callable[[], StructType | None]) -> Detail:
    """The details with the generated columns, and with defaults.

    ``columns``: reads the columns from the table's log, with all of their metadata; asked only if there may be any.
    """
    if not _may_generate(detail.properties):
        return detail
    found = columns() or ()
    return replace(
        detail,
        generated={each.name: each.metadata[_GENERATED] for each in found if _GENERATED in each.metadata},
        defaults={each.name: each.metadata[_DEFAULT] for each in found if _DEFAULT in each.metadata},
        numbered=[each.name for each in found if _IDENTITY in each.metadata],
        identities=[
            each.name for each in found if _IDENTITY in each.metadata and not each.metadata.get(_TAKES_VALUES, False)
        ],
    )


def with_constraints(shown: Mapping[str, str], stored: Mapping[str, str]) -> dict[str, str]:
    """The table's properties, with the text of its constraints.

    ``shown``: as SHOW TBLPROPERTIES has them, where Spark hides a text with ``url``, ``token`` or ``password``, even
    inside a word; ``stored``: as DESCRIBE DETAIL has them, which hides none.
    """
    return {**shown, **{name: text for name, text in stored.items() if name.startswith(_CONSTRAINT)}}


def _may_generate(properties: Mapping[str, str]) -> bool:
    """Whether a table of these properties may have columns that Delta fills, by its protocol."""
    names = ("generatedColumns", "identityColumns", "allowColumnDefaults")
    features = [f"delta.feature.{name}" for name in names]
    version = properties.get("delta.minWriterVersion", "")
    # Version 7 names its features; 4 to 6 have these columns without a name.
    return any(feature in properties for feature in features) or version in ("4", "5", "6")


def partitions(described: Sequence[tuple[str, str]]) -> list[str]:
    """The partition columns in the output of DESCRIBE. Columns have a type there, and titles of sections have none."""
    start = next((at for at, row in enumerate(described) if row == ("# Partition Information", "")), None)
    if start is None:
        return []
    names = []
    for name, kind in described[start + 2 :]:  # skips the section's title and header
        if not kind:
            break
        names += name_parts(name)
    return names


def name_parts(name: str) -> list[str]:
    """Split a name at its dots: ``a.`b.c`.d`` -> a, b.c, d."""
    parts = re.findall(r"`(?:[^`]|``)*`|[^.`]+", name)
    return [part[1:-1].replace("``", "`") if part.startswith("`") else part for part in parts]
