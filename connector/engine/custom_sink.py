"""A sink by a class of the user's own."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from connector.config import CustomSink
from connector.config.user_class import own_class
from sinks.contract import TwoPhaseSink
from sinks.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def custom_sink(sink: CustomSink, spark: SparkSession, staging: str) -> TwoPhaseSink[DataFrame]:
    """The user's own sink. Raises ConfigurationError where its class doesn't take the options."""
    made = own_class(sink.option("sink"), sink.sink)
    # A folder of this sink alone, whatever is in its name.
    own = f"{staging}/{hashlib.sha256(sink.name.encode()).hexdigest()[:16]}"
    try:
        found: TwoPhaseSink[DataFrame] = made(spark, name=sink.name, staging=own, **sink.arguments)
    except TypeError as error:
        raise ConfigurationError(
            f"{sink.option('options')}: {sink.sink} doesn't take them: {error}.",
            hint="It is called with the Spark session, name, staging, and what options says.",
        ) from error
    if found.name != sink.name:
        raise ConfigurationError(
            f"{sink.option('sink')}: {sink.sink} calls itself {found.name!r}: it has to keep the name that it is given."
        )
    return found
