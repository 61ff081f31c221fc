"""Values that records name, and topics, that an override seems to be meant for and has under another name."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import TYPE_CHECKING

from connector.config import DeltaSink, PipelineConfig
from connector.config.table_per_topic import refusal
from connector.source.topics import KafkaSource
from sinks.delta.table import DeltaTable
from sinks.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("lakelock.routes")


def refuse_misnamed(
    config: PipelineConfig, names: Collection[str], named: Collection[str], tables: Collection[str]
) -> None:
    """Raises ConfigurationError before one of the tables of ``names`` is made without the options that are meant for
    it. The log warns of one that is there. ``named``: the tables that records name; ``tables``: those that are there.
    """
    assert config.route is not None
    for name, why in config.route.misnamed(names, {*named, *tables}).items():
        if name not in tables:
            raise ConfigurationError(
                f"{why}: its table would be like all others. Nothing was written.",
                hint=f"Correct the name in route.overrides. If both are right, write {name}: {{}} there, too.",
            )
        log.warning("%s: its table is like all others", why)


def refuse_misnamed_topic(config: PipelineConfig, spark: SparkSession, source: KafkaSource) -> None:
    """The same of a topic of ``tables`` that was named by itself, ``FILE#TOPIC``, so that nobody has compared it with
    the other topics there are. Raises ConfigurationError."""
    nearly, topics = config.source.nearly, config.source.topics
    if not nearly or not isinstance(topics, tuple):
        return
    for override in sorted(source.deleted(nearly)):
        why = refusal(f"pipeline {config.name!r}", override, *topics)
        if not _is_there(config, spark):
            raise why
        log.warning("%s", why.message.replace("would be", "is"))


def _is_there(config: PipelineConfig, spark: SparkSession) -> bool:
    sink = config.sinks[0]
    if not isinstance(sink, DeltaSink):
        return False
    return DeltaTable(spark, path=sink.folder, name=sink.table, label=sink.place).detail() is not None
