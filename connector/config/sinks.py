"""The options of each type of sink."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    StrictBool,
    TypeAdapter,
    field_validator,
)

from connector.config.bitemporal import unfit_for_both_times
from connector.config.columns import AnyColumns, Columns, distinct
from connector.config.kinds import Duration, Name, Options, Text, as_model, fits, in_clear, topic_name
from connector.config.places import DeltaSink, ListedSink
from connector.config.steady import steady
from connector.config.transform_sql import first_column
from sinks.delta.table import COORDINATES

SteadyText: TypeAlias = Annotated[Text, AfterValidator(steady)]
"""A SQL expression that gives the same for a record whenever it is read."""
KAFKA_KEY, KAFKAS_KEY = "kafka_key", "_key"
"""The word for Kafka's key in a file, and the column."""


def _kafkas_key(value: object) -> object:
    return KAFKAS_KEY if value == KAFKA_KEY else value


class DeltaAppendSink(DeltaSink):
    """Appends one row per record to a Delta table."""

    changes_rows: ClassVar[bool] = False
    type: Literal["delta_append"]
    """Append one row for every record."""


class KeyedSink(DeltaSink):
    """The options that upserts and histories share: how records change the rows of a key, and in which order.

    The names are those of AUTO CDC in Spark and Databricks.
    """

    key: Annotated[Columns, BeforeValidator(_kafkas_key)]
    """The primary-key columns. ``kafka_key`` is Kafka's key as a whole: the column ``_key``, text if the option ``key``
    of the file names no other format."""
    sequence_by: SteadyText | None = None
    """A SQL expression that orders the updates of a key. By default Kafka's offset, and then all records of a key must
    be in one partition."""
    apply_as_deletes: SteadyText | None = None
    """A SQL condition. A record that meets it deletes the row of its key. Tombstones, records without a value, always
    do."""
    column_list: Columns | None = None
    """The columns to store. By default all."""
    except_column_list: Columns | None = None
    """The columns not to store. By default none."""
    tombstone_retention: Duration = timedelta(days=7)
    """How long to remember a delete, so that an older update that arrives later doesn't bring the row back."""

    @property
    def by_offset(self) -> bool:
        """Whether offsets order the changes before all else, so that a key has to stay in its partition."""
        return self.sequence_by is None or first_column(self.sequence_by) == "_offset"

    if TYPE_CHECKING:
        # Each declares it at a place of its own: the order of options is in the hash that an epoch in doubt remembers.
        apply_as_truncates: str | None

    @field_validator("key", "column_list", "except_column_list")
    @classmethod
    def _columns(cls, columns: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return columns and distinct(columns)

    @fits
    def _key_of_the_record(self) -> Iterator[str]:
        for column in self.key:
            if column.lower() in COORDINATES:
                yield (
                    f"key: {column} says which record a row comes from, so it changes with the row. Make a column of "
                    f"your own of it, as in transform: SELECT *, {column} AS {column[1:].lower()} FROM records"
                )

    @fits
    def _one_list(self) -> Iterator[str]:
        if self.column_list is not None and self.except_column_list is not None:
            yield "give either column_list or except_column_list"
        missing = [column for column in self.key if self.column_list is not None and column not in self.column_list]
        left_out = [column for column in self.key if column in (self.except_column_list or ())]
        if missing or left_out:
            yield f"the key column {(missing or left_out)[0]} must be stored in the table"

    @fits
    def _truncates_have_an_order(self) -> None:
        if self.apply_as_truncates not in (None, "false") and self.by_offset:
            other = "" if self.sequence_by is None else ", and one that doesn't begin with _offset"
            raise ValueError(
                f"apply_as_truncates needs sequence_by{other}: offsets can't tell which rows of other partitions are "
                "older than the truncate"
            )


class Fold(Options):
    """When to fold, which means to merge the change log into the table. Each limit alone triggers a fold."""

    epochs: Annotated[int, Field(ge=1)] = 50
    """Fold when the change log holds this many epochs that aren't folded yet."""
    records: Annotated[int, Field(ge=1)] = 1_000_000
    """Fold when the change log holds this many records that aren't folded yet, counted by offsets."""
    interval: Annotated[Duration, Field(gt=timedelta(0))] | None = None
    """Also fold when this much time has passed since the last fold. Checked after each round. Off by default."""


def _fold(value: object) -> object:
    return as_model(Fold, value) if isinstance(value, Mapping) else value


class MergedSink(Options):
    """The options that upserts and aggregates share: when an epoch is merged into the table."""

    merge: Literal["on_write", "on_read"] = "on_write"
    """``on_write`` merges each epoch into the table. ``on_read`` appends epochs to a change log and folds the log into
    the table now and then, which makes small epochs cheap: docs/merge-on-read.md."""
    fold: Annotated[Fold | None, BeforeValidator(_fold)] = None
    """When to fold the change log. Needs ``merge: on_read``. See below."""

    @fits
    def _folds_what_is_merged_on_read(self) -> None:
        if self.merge == "on_write" and self.fold is not None:
            raise ValueError("fold needs merge: on_read; with on_write there is no change log to fold")


def on_read(sinks: Iterable[object]) -> Iterator[MergedSink]:
    """The sinks whose epochs are appended to a change log."""
    return (sink for sink in sinks if isinstance(sink, MergedSink) and sink.merge == "on_read")


class DeltaUpsertSink(KeyedSink, MergedSink):
    """Keeps the latest row of each key in a Delta table."""

    type: Literal["delta_upsert"]
    """Keep the latest row of each key."""
    stored_as_scd_type: Literal[1, "1"] = 1
    """As in AUTO CDC. Other values are refused."""
    deletes: Literal["hard", "soft"] = "hard"
    """``hard`` removes a deleted row. ``soft`` keeps it, with ``_deleted = true``."""
    apply_as_truncates: SteadyText | None = None
    """A SQL condition. A record that meets it deletes all older rows of the table. Needs ``sequence_by``.
    ``false`` passes over Debezium's truncates."""
    ignore_null_updates: StrictBool | Columns = False
    """Whether a null in a record leaves the stored value of its column unchanged: ``true`` for all columns, or a list
    of columns."""

    @fits
    def _truncates_on_write(self) -> Iterator[str]:
        if self.merge == "on_read" and self.apply_as_truncates not in (None, "false"):
            yield "apply_as_truncates needs merge: on_write, because a truncate affects every row of the table"

    @fits
    def _soft_rows(self) -> Iterator[str]:
        for option in ("apply_as_truncates", "ignore_null_updates"):
            if self.deletes == "soft" and getattr(self, option) not in (None, False, "false"):
                yield f"{option} needs deletes: hard: a soft-deleted row doesn't keep its earlier versions"


class DeltaHistorySink(KeyedSink):
    """Keeps every version of a key's row in a Delta table."""

    type: Literal["delta_history"]
    """Keep every version of a key's row (SCD type 2), with ``__START_AT`` and ``__END_AT``."""
    stored_as_scd_type: Literal[2, "2", "bitemporal"] = 2
    """As in AUTO CDC. ``bitemporal`` also keeps when each version was on record, with ``__SYSTEM_START_AT`` and
    ``__SYSTEM_END_AT``. Needs ``sequence_by``."""
    system_sequence_by: SteadyText | None = None
    """A SQL expression that says when a change was recorded. By default Kafka's ``_timestamp``. Needs
    ``stored_as_scd_type: bitemporal``."""
    track_history_column_list: Columns | None = None
    """The columns whose changes begin a new version. A change of any other column updates the current version. By
    default every column begins one."""
    track_history_except_column_list: Columns | None = None
    """The columns whose changes don't begin a new version, instead of ``track_history_column_list``."""
    apply_as_truncates: SteadyText | None = None
    """A SQL condition. A record that meets it ends all versions that are current at its sequence. Needs
    ``sequence_by``. ``false`` passes over Debezium's truncates."""

    @fits
    def _one_history(self) -> None:
        if self.track_history_column_list is not None and self.track_history_except_column_list is not None:
            raise ValueError("give either track_history_column_list or track_history_except_column_list")

    @property
    def bitemporal(self) -> bool:
        """Whether a version also has the time in which it was on record."""
        return self.stored_as_scd_type == "bitemporal"

    @property
    def recorded_by(self) -> str | None:
        """SQL of when a change was recorded. None: the history isn't bitemporal."""
        return (self.system_sequence_by or "_timestamp") if self.bitemporal else None

    @fits
    def _bitemporal(self) -> Iterator[str]:
        yield from unfit_for_both_times(self)


IDLE_AFTER = timedelta(minutes=5)


class Window(Options):
    """Windows of event time: ``size`` makes tumbling windows, ``size`` and ``slide`` sliding ones, ``gap`` sessions."""

    time: Name = "_timestamp"
    """The TIMESTAMP column with the event time. By default Kafka's timestamp."""
    size: Duration | None = None
    """The length of a window. Give ``size`` or ``gap``."""
    slide: Duration | None = None
    """The time between the starts of two windows, at most ``size``. By default ``size``, without overlap."""
    gap: Duration | None = None
    """The length of silence in a group that ends a session. Give ``size`` or ``gap``."""
    allowed_lateness: Duration = timedelta(0)
    """How long a window stays open after its end. A record that comes later is late. A longer time lets records into
    windows again that are closed."""
    late: Literal["add", "dead_letter"] = "add"
    """What to do with late records: ``add`` them to their window anyway, or write them to ``dead_letters``. Only with
    ``dead_letter`` are the rows of closed windows final, as long as ``allowed_lateness`` doesn't grow."""
    idle_after: Duration = IDLE_AFTER
    """After this time without new records, a partition no longer holds back the watermark, and so the windows of the
    others."""

    @fits
    def _one_shape(self) -> Iterator[str]:
        if (self.size is None) == (self.gap is None):
            yield "give size (with slide for sliding windows), or gap for sessions"
        for name in ("size", "slide", "gap"):
            length = getattr(self, name)
            if length is not None and length <= timedelta(0):
                yield f"{name} must be longer than 0 seconds"
        if self.slide is not None and (self.size is None or self.slide > self.size):
            yield "slide needs size and must not exceed it, or records would fall between the windows"


def _window(value: object) -> object:
    return as_model(Window, value) if isinstance(value, Mapping) else value


class DeltaAggregateSink(DeltaSink, MergedSink):
    """Keeps one row per group in a Delta table."""

    type: Literal["delta_aggregate"]
    """Keep one row per group."""
    group_by: AnyColumns = ()
    """The columns that define a group. May be empty with a ``window``."""
    aggregates: Annotated[Mapping[str, SteadyText], Field(min_length=1)]
    """The aggregates to compute, column -> expression, as in {total: sum(amount)}. docs/derived-state.md lists them."""
    window: Annotated[Window | None, BeforeValidator(_window)] = None
    """Windows of event time, as part of the group. See below."""
    states: Mapping[str, Annotated[str, Field(pattern=r"^[\w.]+:\w+$")]] = Field(default_factory=dict)
    """State types of your own, name -> module:Class: docs/extending.md."""

    @fits
    def _names(self) -> Iterator[str]:
        if self.merge == "on_read" and self.window is not None:
            yield "a window needs merge: on_write, because an epoch closes windows in the table itself"
        if self.window is None and not self.group_by:
            yield "give group_by, or a window, or both"
        distinct((*self.group_by, *(WINDOW_COLUMNS if self.window else ()), *self.aggregates))
        for name in (*self.group_by, *self.aggregates):
            if name.lower() in STATE_COLUMNS or (self.window and name.lower() in WINDOW_COLUMNS):
                yield f"{name} is a column that Lakelock adds; choose another name"


class S3ObjectsSink(ListedSink):
    """Writes Parquet or JSON-lines objects, one row per record. Credentials come from boto3."""

    type: Literal["s3_objects"]
    """Write objects to S3, one row per record. Credentials come from boto3."""
    url: Name
    """The bucket and prefix to write to, as s3://bucket/flights."""
    format: Literal["parquet", "json_lines"] = "parquet"
    """The file format of the objects."""
    partition_by: AnyColumns = ()
    """The columns to partition by, in folders named as Hive names them (``day=2026-11-01/``). A TIMESTAMP is in UTC."""
    endpoint: Name | None = None
    """The endpoint URL of a store other than AWS S3."""
    region: Name | None = None
    """The AWS region. By default the one that boto3 is configured with."""
    path_style: StrictBool = False
    """Put the bucket into the URL's path instead of the host name, as many other stores require."""
    server_side_encryption: Literal["AES256", "aws:kms"] | None = None
    """Server-side encryption of the objects. By default the bucket's setting."""
    kms_key_id: Name | None = None
    """The KMS key. Needs ``server_side_encryption: aws:kms``."""
    storage_class: Name | None = None
    """The S3 storage class, by S3's own name. By default the bucket's."""

    @property
    def place(self) -> str:
        """The URL without a final slash."""
        return "s3://" + self.url.split("://", 1)[1].rstrip("/")

    @field_validator("url")
    @classmethod
    def _of_s3(cls, url: str) -> str:
        if re.fullmatch(r"s3a?://[^/]+(/.*)?", url) is None:
            raise ValueError("write a bucket and a prefix, as in s3://bucket/flights")
        return url

    @fits
    def _key_of_kms(self) -> None:
        if self.kms_key_id is not None and self.server_side_encryption != "aws:kms":
            raise ValueError("kms_key_id needs server_side_encryption: aws:kms")


class KafkaTopicSink(ListedSink):
    """Writes one message per record to a topic, in the source's Kafka cluster."""

    type: Literal["kafka_topic"]
    """Write one message per record to a topic, in the source's Kafka cluster."""
    topic: Annotated[Name, AfterValidator(topic_name)]
    """The topic's name. The topic must exist."""
    key: AnyColumns = ()
    """The columns that make up the message key. By default messages have no key."""

    @property
    def place(self) -> str:
        """``kafka:<topic>``."""
        return f"kafka:{self.topic}"


class CustomSink(ListedSink):
    """A sink class of the user's own: docs/extending.md."""

    type: Literal["custom"]
    """Write with a sink class of your own: docs/extending.md."""
    name: Annotated[str, Field(pattern=r"^[\w.:/-]+$")]
    """The sink's name in the coordinator log. Don't change it later."""
    sink: Annotated[str, Field(pattern=r"^[\w.]+:\w+$")]
    """The class, as module:Class. It implements ``sinks.contract.TwoPhaseSink``."""
    options: Mapping[str, Any] = Field(default_factory=dict)
    """Keyword arguments for the class. A value from ``${env:NAME}`` or ``${file:/path}`` is never printed."""

    @property
    def place(self) -> str:
        """The sink's name in the coordinator log."""
        return self.name

    @property
    def arguments(self) -> dict[str, Any]:
        """The options with secrets in clear text. Pass them on, never print them."""
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
ONE_SINK: TypeAdapter[SinkOptions] = TypeAdapter(SinkOptions)
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
    """Each column of the records that an option of the sink names, as (option, column)."""
    fields: dict[str, Any] = {
        name: getattr(sink, name)
        for name in (
            "key", "column_list", "except_column_list", "track_history_column_list",
            "track_history_except_column_list", "group_by", "ignore_null_updates",
            # A table is partitioned by columns of its own: ``connector.derive.layout``.
            *(() if isinstance(sink, DeltaSink) else ("partition_by",)),
        )
        if isinstance(getattr(sink, name, None), tuple)
    }  # fmt: skip
    return [(name, column) for name, columns in fields.items() for column in columns]
