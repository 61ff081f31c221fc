"""The layout of a new Delta table: partitions, clusters, properties, comments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, TypeAlias

from pydantic import AfterValidator, Field, field_validator

from connector.config.columns import AnyColumns
from connector.config.kinds import Options, Text, fits
from connector.config.table_properties import checked, value_of

TableProperties: TypeAlias = Annotated[Mapping[str, Text], AfterValidator(checked)]
MOST_CLUSTER_COLUMNS = 4
"""Delta takes no more."""


class TableLayout(Options):
    """How a table is laid out when a run makes it. A table that is there stays as it is."""

    changes_rows: ClassVar[bool] = True
    """Whether the sink changes or removes rows."""
    partition_by: AnyColumns = ()
    """The columns to partition the table by when it is made: for columns with few values, such as a date."""
    cluster_by: AnyColumns = ()
    """The columns to cluster the table by when it is made (liquid clustering), up to 4, instead of ``partition_by``."""
    properties: TableProperties = Field(default_factory=dict)
    """Properties of the table when it is made, as in {delta.enableChangeDataFeed: true}: docs/derived-state.md."""
    comment: Text | None = None
    """The table's comment when it is made."""
    comments: Mapping[str, Text] = Field(default_factory=dict)
    """Comments of columns when the table is made, column -> text. They win over the COMMENTs of
    ``value.schema``, or the docs of an Avro schema."""

    @field_validator("cluster_by")
    @classmethod
    def _few(cls, columns: tuple[str, ...]) -> tuple[str, ...]:
        if len(columns) > MOST_CLUSTER_COLUMNS:
            raise ValueError(f"names {len(columns)} columns, and Delta clusters by up to {MOST_CLUSTER_COLUMNS}")
        return columns

    @fits
    def _one_layout(self) -> None:
        if self.partition_by and self.cluster_by:
            raise ValueError("give either partition_by or cluster_by: Delta takes one of them")
        if self.changes_rows:
            refuse_append_only(self.properties)


LAYOUT = frozenset(TableLayout.model_fields)
"""The options, none of which has a part in what the rows are."""


def refuse_append_only(properties: Mapping[str, str]) -> None:
    """Raises ValueError if no row of the table could change."""
    if (value_of(properties, "delta.appendOnly") or "false").lower() == "true":
        raise ValueError("properties: delta.appendOnly is true, and the pipeline changes rows of this table. Remove it")
