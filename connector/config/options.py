"""The options of a pipeline as Python values, under short names.

They are the models that check a pipeline file: same names, same defaults, same descriptions. What a file says by
``type`` or ``format`` is here the name of the class.

>>> Upsert(path="lake/orders", key=("order_id",)).type
'delta_upsert'
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, TypedDict

from connector.config.flows import Flow
from connector.config.formats import (
    AvroFormat,
    BytesFormat,
    DebeziumFormat,
    FormatOptions,
    JsonFormat,
    ProtobufFormat,
    RowsFormat,
    StringFormat,
)
from connector.config.operations import Maintenance, MetricsOptions, NotifyOptions, Pushgateway
from connector.config.pacing import EpochBound, EveryRecords, Interval, Latency, Retry
from connector.config.pipeline import Delivery
from connector.config.places import DeadLetters, DeltaPlace, ListedSink
from connector.config.registry import ConfluentRegistry, GlueOptions, GlueRegistry
from connector.config.route import Route
from connector.config.sinks import (
    KAFKAS_KEY,
    CustomSink,
    DeltaAggregateSink,
    DeltaAppendSink,
    DeltaHistorySink,
    DeltaUpsertSink,
    Fold,
    KafkaTopicSink,
    S3ObjectsSink,
    Window,
)
from connector.config.source import ContinueAhead, FromOffsets, FromTimestamp, Source, TopicPattern, Translated
from connector.config.steps import Step
from sinks.spark.schema_changes import OnNewColumn

KAFKA_KEY = (KAFKAS_KEY,)
"""For ``key``: rows are identified by Kafka's key as a whole."""

Kafka: TypeAlias = Source
Table: TypeAlias = DeltaPlace
"""Of the coordinator log."""
EpochLimits: TypeAlias = EpochBound
Metrics: TypeAlias = MetricsOptions
Notify: TypeAlias = NotifyOptions

__all__ = [
    "KAFKA_KEY",
    "Aggregate",
    "Append",
    "Avro",
    "Bytes",
    "ConfluentRegistry",
    "ContinueAhead",
    "Custom",
    "DeadLetters",
    "Debezium",
    "EpochLimits",
    "EveryRecords",
    "Flow",
    "Fold",
    "FromOffsets",
    "FromTimestamp",
    "GlueOptions",
    "GlueRegistry",
    "History",
    "Interval",
    "Json",
    "Kafka",
    "KafkaTopic",
    "Latency",
    "Maintenance",
    "Metrics",
    "Notify",
    "PipelineOptions",
    "Protobuf",
    "Pushgateway",
    "Retry",
    "Route",
    "Rows",
    "S3Objects",
    "Step",
    "Table",
    "Text",
    "TopicOptions",
    "TopicPattern",
    "Translated",
    "Upsert",
    "Window",
]


class Json(JsonFormat):
    """``format: json``."""

    format: Literal["json"] = "json"


class Text(StringFormat):
    """``format: string``."""

    format: Literal["string"] = "string"


class Bytes(BytesFormat):
    """``format: bytes``."""

    format: Literal["bytes"] = "bytes"


class Avro(AvroFormat):
    """``format: avro``."""

    format: Literal["avro"] = "avro"


class Protobuf(ProtobufFormat):
    """``format: protobuf``."""

    format: Literal["protobuf"] = "protobuf"


class Debezium(DebeziumFormat):
    """``format: debezium``."""

    format: Literal["debezium"] = "debezium"


class Rows(RowsFormat):
    """``format: rows``."""

    format: Literal["rows"] = "rows"


class Append(DeltaAppendSink):
    """``type: delta_append``."""

    type: Literal["delta_append"] = "delta_append"


class Upsert(DeltaUpsertSink):
    """``type: delta_upsert``."""

    type: Literal["delta_upsert"] = "delta_upsert"


class History(DeltaHistorySink):
    """``type: delta_history``."""

    type: Literal["delta_history"] = "delta_history"


class Aggregate(DeltaAggregateSink):
    """``type: delta_aggregate``."""

    type: Literal["delta_aggregate"] = "delta_aggregate"


class S3Objects(S3ObjectsSink):
    """``type: s3_objects``."""

    type: Literal["s3_objects"] = "s3_objects"


class KafkaTopic(KafkaTopicSink):
    """``type: kafka_topic``."""

    type: Literal["kafka_topic"] = "kafka_topic"


class Custom(CustomSink):
    """``type: custom``."""

    type: Literal["custom"] = "custom"


class _Options(TypedDict, total=False):
    delivery: Delivery
    commit_every: Literal["batch", "record"] | EveryRecords
    key: FormatOptions
    headers: bool
    require: str
    on_bad_record: Literal["fail", "dead_letter"]
    on_foreign_delete: Literal["allow", "stop"]
    on_new_column: OnNewColumn
    unmatched: Literal["fail", "warn"]
    epoch: EpochBound
    trigger: Literal["available_now"] | Interval | Latency
    retry: Retry
    event_time: str
    steps: Sequence[Step]
    flows: Sequence[Flow]
    sensitive: Sequence[str]
    transform: str
    sinks: Sequence[ListedSink]
    route: Route
    together: Literal["atomic", "eventual"]
    coordinator: DeltaPlace
    dead_letters: DeadLetters
    metrics: MetricsOptions
    notify: NotifyOptions
    maintain: Maintenance
    traces: bool
    lineage: bool


class PipelineOptions(_Options):
    """What ``Pipeline`` takes: every option of a pipeline file but ``spark``, which it also takes as a session."""

    name: str
    source: Source
    value: FormatOptions


class TopicOptions(_Options, total=False):
    """What ``Pipeline.from_topic`` takes: all of them but the source, and none has to be given."""

    name: str
    value: FormatOptions
