"""A schema that only the records of one value of a route have: ``route.overrides.<value>.value``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pydantic import Field

from connector.config.formats import AvroFormat, FormatOptions, JsonFormat
from connector.config.kinds import Name, Options, fits
from connector.config.registry import ConfluentRegistry
from connector.config.transform_sql import columns_in

if TYPE_CHECKING:
    from connector.config.pipeline import PipelineConfig
    from connector.config.route import Route

SCHEMA_NAME = "_schema"
"""STRING, the full name of the Avro schema that a record was written with. Only ``route.by`` and ``require`` see it."""
_AVRO = "value: {format: avro, registry: {url: ...}}"


class OwnSchema(Options):
    """How the records of one value are read: of JSON by ``schema``, of Avro by ``subject`` or ``schema_file``."""

    schema_: str | None = Field(default=None, alias="schema", min_length=1)
    """JSON: their columns, as Spark DDL, instead of those of ``value.schema``. The table has these columns. ``by`` and
    ``require`` see those of ``value.schema``, which every record has to fit."""
    subject: Name | None = None
    """Avro of a registry: the subject whose newest schema reads these records, as in ``shop.Order``."""
    schema_file: Name | None = None
    """Avro of a registry: the path of a file with the schema that reads these records. Fields that it lacks are left
    out."""

    @fits
    def _one(self) -> Iterator[str]:
        if len(self._given) != 1:
            yield (
                "give one of schema, the columns of JSON, subject, which has the newest schema of Avro, and schema_file"
            )

    @property
    def _given(self) -> list[str]:
        options = {"schema": self.schema_, "subject": self.subject, "schema_file": self.schema_file}
        return [name for name, value in options.items() if value is not None]

    @property
    def option(self) -> str:
        """Which of its options is given."""
        return self._given[0]

    @property
    def unset(self) -> set[str]:
        """The options that it got later and that aren't set: an epoch in doubt knows the hash without them."""
        return {name for name in ("subject", "schema_file") if getattr(self, name) is None}

    def reads(self, format: FormatOptions) -> FormatOptions:
        """The format of the records. ``format``: that of the file."""
        if not isinstance(format, AvroFormat):
            return format.model_copy(update={"schema_": self.schema_})
        registry = format.registry
        if self.subject is not None and isinstance(registry, ConfluentRegistry):
            registry = registry.model_copy(update={"subject": self.subject})
        return format.model_copy(update={"schema_file": self.schema_file, "registry": registry})

    def advice(self, option: str) -> str:
        """What to do where the table doesn't take the records. ``option``: the one that is given."""
        if self.subject is None:
            return f"Change {option}, or the table with ALTER TABLE, until both agree; or write to another table."
        return (
            f"The newest schema of {self.subject!r} gives the columns. Change the table with ALTER TABLE until both "
            f"agree, as by ADD COLUMNS. Or keep the columns that it has: write them as an Avro schema into a file, and "
            f"{option.removesuffix('subject')}schema_file in place of subject."
        )

    def unfit(self, option: str, format: FormatOptions) -> Iterator[str]:
        """Why it doesn't go with the ``format`` of the file. ``option``: the one that is given."""
        name = self.option
        if isinstance(format, JsonFormat):
            if name != "schema":
                yield f"{option}: needs {_AVRO}. Of JSON write the columns: schema"
        elif isinstance(format, AvroFormat):
            if name == "schema":
                yield f"{option}: is for JSON. Of Avro name the subject in the registry, subject, or a schema_file"
            elif not isinstance(format.registry, ConfluentRegistry):
                yield f"{option}: needs {_AVRO}, with Confluent's API, which has the schema of each record"
        else:
            yield (
                f"{option}: needs value: {{format: json}}, or {_AVRO}. Records in {format.format} have the schema of "
                "the file"
            )


def names_schema(config: PipelineConfig, format: FormatOptions) -> bool:
    """Whether ``route.by``, or ``require``, names the column ``_schema``. ``format``: that of the file."""
    if config.route is None or not isinstance(format, AvroFormat) or not isinstance(format.registry, ConfluentRegistry):
        return False
    named = columns_in(config.route.by) | columns_in(config.require or "")
    return SCHEMA_NAME in {name.lower() for name in named}


def unfit_for_schemas(config: PipelineConfig, route: Route) -> Iterator[str]:
    """What of the other options doesn't go with schemas of their own."""
    for value, own in route.own.items():
        yield from own.unfit(route.schema_option(value), config.value)
    if config.on_new_column is not None:
        yield (
            f"on_new_column: {config.on_new_column} doesn't work with a schema of its own in route.overrides, whose "
            "fields value.schema lacks"
        )
    why = "work with a schema of its own in route.overrides: it has other columns than value.schema"
    if config.transform is not None:
        yield f"transform doesn't {why}"
    if config.steps:
        yield f"steps don't {why}"
    if config.event_time is not None and route.bare(config.value):
        yield (
            f"event_time: {config.event_time} has to be a field of every record, and value names no schema that they "
            "share: write registry.subject or schema_file, or remove the option, and Kafka's timestamp counts"
        )
