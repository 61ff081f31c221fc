"""The layout that a table gets when it is made: partitions or clusters, properties, comments. Pure.

A table that is there keeps its own layout: ``differences`` tells what a run would have made differently.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sinks.delta.detail import Detail
from sinks.delta.sql_layout import listed, parentheses
from sinks.errors import ConfigurationError
from sinks.spark.row_errors import problem
from sinks.spark.sql import identifier, text_literal
from sinks.spark.types import names, needs_column_mapping, sql_type

if TYPE_CHECKING:
    from pyspark.sql.types import StructField, StructType

COLUMN_MAPPING = "delta.columnMapping.mode"
_FOR_THE_PROTOCOL = ("delta.feature.", "delta.minreaderversion", "delta.minwriterversion", "delta.ignoreprotocol")
"""Beginnings of the names of properties, in lower case, that a table doesn't show as they were given."""


@dataclass(frozen=True)
class Layout:
    """What a new table gets besides its columns."""

    partition_by: Sequence[str] = ()
    cluster_by: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    """TBLPROPERTIES, by Delta's own spelling of their names."""
    comment: str = ""
    comments: Mapping[str, str] = field(default_factory=dict)
    """Column -> its comment."""
    declared: Mapping[str, str] = field(default_factory=dict)
    """Column -> its comment in the schema of the records, where ``comments`` has none."""

    def with_properties(self, own: Mapping[str, str]) -> Layout:
        """A copy with properties that Lakelock itself needs. They win."""
        return replace(self, properties={**self.properties, **own})

    def detail(self, schema: StructType) -> Detail:
        """The details that a table made so will have, as far as limits on its rows depend on them."""
        return Detail("", self._all_properties(schema), partitions=self.partition_by)

    def create_sql(self, table: str, schema: StructType) -> str:
        """The CREATE TABLE. ``table``: SQL of its name."""
        properties = self._all_properties(schema)
        lines = [f"CREATE TABLE IF NOT EXISTS {table} {parentheses(listed(self._column(each) for each in schema))}"]
        lines += ["USING delta"]
        if self.partition_by:
            lines += [f"PARTITIONED BY {parentheses(listed(map(identifier, self.partition_by)))}"]
        if self.cluster_by:
            lines += [f"CLUSTER BY {parentheses(listed(map(identifier, self.cluster_by)))}"]
        if self.comment:
            lines += [f"COMMENT {text_literal(self.comment)}"]
        if properties:
            pairs = listed(f"{text_literal(name)} = {text_literal(value)}" for name, value in properties.items())
            lines += [f"TBLPROPERTIES {parentheses(pairs)}"]
        return "\n".join(lines)

    def differences(self, detail: Detail) -> list[str]:
        """How a table that is there differs from this layout, in words, comments aside.

        What the layout doesn't say isn't compared.
        """
        found = []
        for option, wanted, has, done in (
            ("partition_by", self.partition_by, detail.partitions, "partitioned"),
            ("cluster_by", self.cluster_by, detail.clusters, "clustered"),
        ):
            if wanted and _lower(wanted) != _lower(has):
                how = f"is {done} by {', '.join(has)}" if has else f"isn't {done}"
                found.append(f"{option}: {', '.join(wanted)}, and the table {how}")
        found += self._other_properties({name.lower(): value for name, value in detail.properties.items()})
        return found

    def other_comments(self, detail: Detail, schema: StructType) -> list[str]:
        """Which comments of a table that is there differ from this layout, in words."""
        there = {each.name: each.metadata.get("comment") for each in schema}
        other = [name for name, comment in self.comments.items() if there.get(name, comment) != comment]
        of_table = self.comment and self.comment != detail.comment
        return [
            *([f"comment: the table's is {detail.comment!r}"] if of_table else []),
            *([f"comments: the table has other ones of {', '.join(other)}"] if other else []),
        ]

    def refused(self, label: str, error: Exception) -> ConfigurationError | None:
        """What an error of the CREATE TABLE means, if Delta doesn't take the layout. None: it is another error."""
        asked = [name for name in self.properties if not name.startswith("lakelock.")]
        given = bool(self.partition_by or self.cluster_by or self.comment or asked)
        # Delta has no error classes for wrong values of properties.
        of_value = bool(asked) and type(error).__name__ == "IllegalArgumentException"
        of_folder = "DELTA_CANNOT_CREATE_LOG_PATH" in str(error)
        if not given or of_folder or not ("DELTA_" in str(error) or of_value):
            return None
        return ConfigurationError(
            f"Delta doesn't make the table {label!r} as its sink says: {problem(error)}",
            hint="Change partition_by, cluster_by or properties of the sink. Nothing was written.",
        )

    def _other_properties(self, there: Mapping[str, str]) -> list[str]:
        other = []
        for name, value in self.properties.items():
            has = there.get(name.lower())
            # Spark doesn't show a property that looks like a secret.
            shown = not name.lower().startswith(_FOR_THE_PROTOCOL) and not (has or "").endswith("(redacted)")
            if shown and (has is None or has.lower() != value.lower()):
                has_it = "hasn't got it" if has is None else f"has {has}"
                other.append(f"properties: {name} = {value}, and the table {has_it}")
        return other

    def _all_properties(self, schema: StructType) -> Mapping[str, str]:
        mapped = COLUMN_MAPPING not in self.properties and any(map(needs_column_mapping, names(schema)))
        return {**self.properties, COLUMN_MAPPING: "name"} if mapped else self.properties

    def _column(self, of: StructField) -> str:
        comment = self.comments.get(of.name) or self.declared.get(of.name)
        return f"{identifier(of.name)} {sql_type(of.dataType)}{f' COMMENT {text_literal(comment)}' if comment else ''}"


NO_LAYOUT = Layout()


def _lower(columns: Sequence[str]) -> list[str]:
    return [column.lower() for column in columns]
