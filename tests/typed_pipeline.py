"""Pipelines of typed options, which mypy checks (pyproject.toml) and tests/unit/connector/config/test_typed.py runs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone

from pydantic import SecretStr

from lakelock import Aggregate, Append, History, Json, Kafka, Pipeline, Upsert
from lakelock.options import (
    KAFKA_KEY,
    Avro,
    ConfluentRegistry,
    ContinueAhead,
    Custom,
    DeadLetters,
    EpochLimits,
    Fold,
    FromOffsets,
    FromTimestamp,
    Interval,
    KafkaTopic,
    Latency,
    Metrics,
    Pushgateway,
    Retry,
    Route,
    S3Objects,
    Table,
    Text,
    TopicPattern,
    Window,
)

PASSWORD = SecretStr("${env:SCHEMA_PASSWORD}")
BROKER = {"bootstrap.servers": "127.0.0.1:9092"}


def shortest() -> Pipeline:
    return Pipeline(
        name="orders",
        source=Kafka(topics=("orders",), kafka=BROKER),
        value=Json(schema="order_id BIGINT, amount DOUBLE"),
        sinks=[Upsert(path="lake/orders", key=("order_id",))],
    )


def with_most_options() -> Pipeline:
    return Pipeline(
        name="payments",
        source=Kafka(
            topics=("payments", "refunds"),
            kafka={
                **BROKER,
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": "lakelock",
                "sasl.password": "${env:KAFKA_PASSWORD}",
            },
            start=FromTimestamp(timestamp=datetime(2026, 11, 1, tzinfo=timezone.utc)),
            on_data_loss=ContinueAhead(**{"continue": timedelta(minutes=10)}),
        ),
        value=Avro(
            registry=ConfluentRegistry(
                url=("https://schemas.example.com",), username="reader", password=PASSWORD, subject="p"
            )
        ),
        key=Text(),
        on_bad_record="dead_letter",
        dead_letters=DeadLetters(path="lake/dead", max_share=0.1),
        sinks=[
            Upsert(path="lake/payments", key=("id",), deletes="soft", tombstone_retention=timedelta(days=2)),
            History(table="main.payments.history", key=("id",), except_column_list=("note",)),
            Aggregate(
                path="lake/hourly",
                group_by=("currency",),
                aggregates={"total": "sum(amount)"},
                window=Window(size=timedelta(hours=1), time="at"),
            ),
            S3Objects(url="s3://bucket/payments", partition_by=("day",)),
            KafkaTopic(topic="paid", key=("id",)),
            Custom(
                name="mail", sink="mailing.sinks:Mail", options={"password": "${env:MAIL_PASSWORD}", "hosts": ["a"]}
            ),
        ],
        coordinator=Table(path="lake/_coordinator"),
        epoch=EpochLimits(max_records=500, target_duration=timedelta(milliseconds=1500)),
        trigger=Interval(interval=timedelta(seconds=10)),
        retry=Retry(attempts=3, longest_wait=timedelta(seconds=90)),
        metrics=Metrics(port=9464, push=Pushgateway(url="http://push:9091")),
        transform="SELECT id, amount,\n       currency\nFROM records",
        spark={"spark.executor.memory": "4g"},
    )


def merged_on_read() -> Pipeline:
    return Pipeline(
        name="latest",
        source=Kafka(topics=("t",), kafka=BROKER, start=FromOffsets(offsets={"t": {0: 120, 1: -2}})),
        value=Json(schema="inferred"),
        sinks=[Upsert(path="lake/t", key=KAFKA_KEY, merge="on_read", fold=Fold(epochs=7))],
        trigger=Latency(target_latency=timedelta(microseconds=1_500_250)),
        traces=True,
    )


def routed() -> Pipeline:
    return Pipeline(
        name="events",
        source=Kafka(topics=TopicPattern(pattern="events-.*"), kafka=BROKER),
        value=Json(schema="kind STRING"),
        route=Route(by="kind", sink={"type": "delta_append", "path": "lake/{kind}"}, other="ignore"),
        coordinator=Table(path="lake/_log"),
    )


def appended(path: str) -> Pipeline:
    return Pipeline(name="appended", source=Kafka(topics=("t",), kafka=BROKER), value=Text(), sinks=[Append(path=path)])


def for_a_topic(topic: str, kafka: Mapping[str, str]) -> Pipeline:
    """Of a topic that Kafka has: tests/integration/test_from_topic.py."""
    return Pipeline.from_topic(
        topic, kafka, name="mine", on_bad_record="dead_letter", dead_letters=DeadLetters(path="lake/mine_dead")
    )
