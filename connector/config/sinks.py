"""The options of each kind of sink."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, StrictBool, field_validator, model_validator

from connector.config.kinds import Duration, Options, Text, as_model, in_clear, topic_name


def _one_or_more(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _distinct(columns: tuple[str, ...]) -> tuple[str, ...]:
    if len({column.lower() for column in columns}) != len(columns):
        raise ValueError("names a column twice")
    return columns


Columns: TypeAlias = Annotated[tuple[Text, ...], BeforeValidator(_one_or_more), Field(min_length=1)]


class DeltaPlace(Options):
    """Where a table is."""

    path: Text | None = None
    """A folder, relative to the working directory, or a URI."""
    table: Text | None = None
    """``catalog.schema.table``, instead of a path."""

    @property
    def place(self) -> str:
        """As the user wrote it."""
        return str(self.path or self.table)

    @model_validator(mode="after")
    def _one_place(self) -> DeltaPlace:
        if (self.path is None) == (self.table is None):
            raise ValueError("give either path (a folder or URI) or table (catalog.schema.name)")
        if not (self.path or self.table):
            raise ValueError("path or table is empty")
        return self


class DeltaAppendSink(DeltaPlace):
    type: Literal["delta_append"]
    """Every record, one row."""


class KeyedSink(DeltaPlace):
    """What upserts and histories have in common: changes to the rows of a key, in an order. The names are those of
    Spark's and Databricks' AUTO CDC."""

    key: Columns
    """The columns that tell rows apart."""
    sequence_by: Text | None = None
    """SQL that orders the updates of a key; Kafka's offset if left out, and then a key stays in its partition."""
    apply_as_deletes: Text | None = None
    """SQL that is true of records that delete their key's row. Tombstones delete anyway."""
    column_list: Columns | None = None
    """The columns to store; all if left out."""
    except_column_list: Columns | None = None
    """The columns not to store."""
    tombstone_retention: Duration = timedelta(days=7)
    """How long deletes are remembered, for updates that come later and are older."""

    @field_validator("key", "column_list", "except_column_list")
    @classmethod
    def _columns(cls, columns: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return columns and _distinct(columns)

    @model_validator(mode="after")
    def _one_list(self) -> KeyedSink:
        if self.column_list is not None and self.except_column_list is not None:
            raise ValueError("give either column_list or except_column_list")
        missing = [column for column in self.key if self.column_list is not None and column not in self.column_list]
        left_out = [column for column in self.key if column in (self.except_column_list or ())]
        if missing or left_out:
            raise ValueError(f"the key's column {(missing or left_out)[0]} can't be left out of the table")
        return self


class Fold(Options):
    """When what was appended to the log of changes is merged into the table: after so many epochs or records, and at
    the end of a round where the oldest change has waited for ``interval``."""

    epochs: Annotated[int, Field(ge=1)] = 50
    """After so many that aren't folded."""
    records: Annotated[int, Field(ge=1)] = 1_000_000
    """After so many, by their offsets."""
    interval: Annotated[Duration, Field(gt=timedelta(0))] | None = None
    """At the end of a round, where the last fold is so long ago."""


def _fold(value: object) -> object:
    return as_model(Fold, value) if isinstance(value, Mapping) else value


class MergedSink(Options):
    """What upserts and aggregates have in common: an epoch is merged into the table, or appended for readers to do so
    until it is folded."""

    merge: Literal["on_write", "on_read"] = "on_write"
    """``on_read``: epochs are appended to a log, and folded into the table now and then: docs/merge-on-read.md."""
    fold: Annotated[Fold | None, BeforeValidator(_fold)] = None
    """When, see below."""

    @model_validator(mode="after")
    def _folds_what_is_merged_on_read(self) -> MergedSink:
        if self.merge == "on_write" and self.fold is not None:
            raise ValueError("fold needs merge: on_read; on_write there is nothing to fold")
        return self


class DeltaUpsertSink(KeyedSink, MergedSink):
    type: Literal["delta_upsert"]
    """The latest row per key."""
    stored_as_scd_type: Literal[1, "1"] = 1
    """As in AUTO CDC."""
    deletes: Literal["hard", "soft"] = "hard"
    """``soft``: a deleted row stays, with ``_deleted``."""
    apply_as_truncates: Text | None = None
    """SQL that is true of records that delete all older rows. Needs ``sequence_by``."""
    ignore_null_updates: StrictBool | Columns = False
    """Whether a null leaves the column as it is: of all columns, or of these."""

    @model_validator(mode="after")
    def _truncates_on_write(self) -> DeltaUpsertSink:
        if self.merge == "on_read" and self.apply_as_truncates is not None:
            raise ValueError("apply_as_truncates needs merge: on_write: a truncate is about every row of the table")
        return self

    @model_validator(mode="after")
    def _soft_rows(self) -> DeltaUpsertSink:
        for option in ("apply_as_truncates", "ignore_null_updates"):
            if self.deletes == "soft" and getattr(self, option) not in (None, False):
                raise ValueError(f"{option} needs deletes: hard: a row that stays would have to tell its whole past")
        return self

    @model_validator(mode="after")
    def _truncates_have_an_order(self) -> DeltaUpsertSink:
        if self.apply_as_truncates is not None and self.sequence_by is None:
            raise ValueError(
                "apply_as_truncates needs sequence_by: offsets can't tell which rows of other partitions are older "
                "than the truncate"
            )
        return self


class DeltaHistorySink(KeyedSink):
    type: Literal["delta_history"]
    """Every version of a key's row (SCD type 2)."""
    stored_as_scd_type: Literal[2, "2"] = 2
    """As in AUTO CDC."""
    track_history_column_list: Columns | None = None
    """A change of these columns begins a version; of others it changes the one that is there."""
    track_history_except_column_list: Columns | None = None
    """The same by the columns that don't."""

    @model_validator(mode="after")
    def _one_history(self) -> DeltaHistorySink:
        if self.track_history_column_list is not None and self.track_history_except_column_list is not None:
            raise ValueError("give either track_history_column_list or track_history_except_column_list")
        return self


IDLE_AFTER = timedelta(minutes=5)


class Window(Options):
    """``size`` alone: tumbling; with ``slide``: sliding; ``gap``: sessions."""

    time: Text = "_timestamp"
    """The TIMESTAMP column that says in which window a record is."""
    size: Duration | None = None
    """How long a window is."""
    slide: Duration | None = None
    """From one window's start to the next; ``size`` if left out."""
    gap: Duration | None = None
    """Of sessions: how long nothing comes before one is over."""
    allowed_lateness: Duration = timedelta(0)
    """How long after its end a window stays open."""
    late: Literal["add", "dead_letter"] = "add"
    """What becomes of records that come after that: added all the same, or set aside."""
    idle_after: Duration = IDLE_AFTER
    """When a partition without new records no longer holds the others' windows open."""

    @model_validator(mode="after")
    def _one_shape(self) -> Window:
        if (self.size is None) == (self.gap is None):
            raise ValueError("give size (with slide for sliding windows), or gap for sessions")
        for name in ("size", "slide", "gap"):
            length = getattr(self, name)
            if length is not None and length <= timedelta(0):
                raise ValueError(f"{name} must be longer than 0 seconds")
        if self.slide is not None and (self.size is None or self.slide > self.size):
            raise ValueError("slide needs a size, and is at most as long: else records would fall between the windows")
        return self


def _window(value: object) -> object:
    return as_model(Window, value) if isinstance(value, Mapping) else value


class DeltaAggregateSink(DeltaPlace, MergedSink):
    type: Literal["delta_aggregate"]
    """One row per group."""
    group_by: Annotated[tuple[Text, ...], BeforeValidator(_one_or_more)] = ()
    """The columns that say the group."""
    aggregates: Annotated[Mapping[str, Text], Field(min_length=1)]
    """Column -> aggregate, as in {total: sum(amount)}: docs/derived-state.md lists them."""
    window: Annotated[Window | None, BeforeValidator(_window)] = None
    """Windows of event time, see below."""
    states: Mapping[str, Annotated[str, Field(pattern=r"^[\w.]+:\w+$")]] = Field(default_factory=dict)
    """The user's own state types: name -> module:Class."""

    @field_validator("group_by")
    @classmethod
    def _columns(cls, columns: tuple[str, ...]) -> tuple[str, ...]:
        return _distinct(columns)

    @model_validator(mode="after")
    def _names(self) -> DeltaAggregateSink:
        if self.merge == "on_read" and self.window is not None:
            raise ValueError("a window needs merge: on_write: an epoch closes windows that are in the table")
        if self.window is None and not self.group_by:
            raise ValueError("give group_by, or a window, or both")
        _distinct((*self.group_by, *(WINDOW_COLUMNS if self.window else ()), *self.aggregates))
        for name in (*self.group_by, *self.aggregates):
            if name.lower() in STATE_COLUMNS or (self.window and name.lower() in WINDOW_COLUMNS):
                raise ValueError(f"{name} is a column of Lakelock's own; choose another name")
        return self


class S3ObjectsSink(Options):
    """Every record as a row of Parquet or JSON-lines objects. Credentials come by boto3's own chain."""

    type: Literal["s3_objects"]
    """Every record as a row of objects in S3."""
    url: Text
    """Bucket and prefix, as in s3://bucket/flights."""
    format: Literal["parquet", "json_lines"] = "parquet"
    """Of the objects."""
    partition_by: Annotated[tuple[Text, ...], BeforeValidator(_one_or_more)] = ()
    """Columns that make folders, as Hive has them."""
    endpoint: Text | None = None
    """Another store than AWS's."""
    region: Text | None = None
    """boto3's own if left out."""
    path_style: StrictBool = False
    """The bucket in the path, not in the host's name."""
    server_side_encryption: Literal["AES256", "aws:kms"] | None = None
    """The bucket's own if left out."""
    kms_key_id: Text | None = None
    """With ``aws:kms``."""
    storage_class: Text | None = None
    """As S3 calls it."""

    @property
    def place(self) -> str:
        return "s3://" + self.url.split("://", 1)[1].rstrip("/")

    @field_validator("url")
    @classmethod
    def _of_s3(cls, url: str) -> str:
        if re.fullmatch(r"s3a?://[^/]+(/.*)?", url) is None:
            raise ValueError("write a bucket and a prefix, as in s3://bucket/flights")
        return url

    @field_validator("partition_by")
    @classmethod
    def _columns(cls, columns: tuple[str, ...]) -> tuple[str, ...]:
        return _distinct(columns)

    @model_validator(mode="after")
    def _key_of_kms(self) -> S3ObjectsSink:
        if self.kms_key_id is not None and self.server_side_encryption != "aws:kms":
            raise ValueError("kms_key_id needs server_side_encryption: aws:kms")
        return self


class KafkaTopicSink(Options):
    """Every record as a message of a topic, in the Kafka cluster of the source."""

    type: Literal["kafka_topic"]
    """Every record as a message of a topic, in the source's Kafka cluster."""
    topic: Annotated[Text, AfterValidator(topic_name)]
    """Its name; it has to be there."""
    key: Annotated[tuple[Text, ...], BeforeValidator(_one_or_more)] = ()
    """The columns that make the message's key."""

    @property
    def place(self) -> str:
        return f"kafka:{self.topic}"

    @field_validator("key")
    @classmethod
    def _columns(cls, columns: tuple[str, ...]) -> tuple[str, ...]:
        return _distinct(columns)


class CustomSink(Options):
    """A sink of your own: docs/extending.md."""

    type: Literal["custom"]
    """What a class of your own makes of every record."""
    name: Annotated[str, Field(pattern=r"^[\w.:/-]+$")]
    """What the coordinator's log calls it: not to be changed later."""
    sink: Annotated[str, Field(pattern=r"^[\w.]+:\w+$")]
    """The class: module:Class, a ``sinks.contract.TwoPhaseSink``."""
    options: Mapping[str, Any] = Field(default_factory=dict)
    """Its own options, as keyword arguments. What came from ``${env:NAME}`` or ``${file:/path}`` is never printed."""

    @property
    def place(self) -> str:
        return self.name

    @property
    def arguments(self) -> dict[str, Any]:
        """The options with the secrets in clear: hand them on, never print them."""
        return in_clear(self.options)


WINDOW_COLUMNS = ("window_start", "window_end", "window_closed")
STATE_COLUMNS = ("_state", "_applied")

SinkOptions: TypeAlias = Annotated[
    DeltaAppendSink
    | DeltaUpsertSink
    | DeltaHistorySink
    | DeltaAggregateSink
    | S3ObjectsSink
    | KafkaTopicSink
    | CustomSink,
    Field(discriminator="type"),
]
SINK_TYPES: Mapping[object, type[BaseModel]] = {
    "delta_append": DeltaAppendSink,
    "delta_upsert": DeltaUpsertSink,
    "delta_history": DeltaHistorySink,
    "delta_aggregate": DeltaAggregateSink,
    "s3_objects": S3ObjectsSink,
    "kafka_topic": KafkaTopicSink,
    "custom": CustomSink,
}


def columns_named(sink: Options) -> Sequence[tuple[str, str]]:
    """Every column that the options name, with the option."""
    fields: dict[str, Any] = {
        name: getattr(sink, name)
        for name in (
            "key", "column_list", "except_column_list", "track_history_column_list",
            "track_history_except_column_list", "group_by", "ignore_null_updates", "partition_by",
        )
        if isinstance(getattr(sink, name, None), tuple)
    }  # fmt: skip
    return [(name, column) for name, columns in fields.items() for column in columns]
