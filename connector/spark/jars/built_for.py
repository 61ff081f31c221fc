"""Which Delta Lake is built for which Spark, and what its jars are called: the pairs that Lakelock is tested with."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import NamedTuple

from sinks.errors import ConfigurationError


class Pair(NamedTuple):
    spark: str
    delta: str
    """Major and minor version, as Spark's."""
    scala: str
    delta_artifact: str
    pom: str
    """What `lakelock jars` fetches."""
    conditional_writes: bool
    """Whether the S3A that goes with this Spark's Hadoop has them: Hadoop 3.4.2 or later."""

    def packages(self, spark: str, delta: str) -> list[str]:
        """The same for Spark to fetch, of these very versions."""
        own = (f"org.apache.spark:spark-{name}_{self.scala}:{spark}" for name in ("sql-kafka-0-10", "avro"))
        return [f"io.delta:{self.delta_artifact}:{delta}", *own]


PAIRS: Sequence[Pair] = (
    Pair("4.1", "4.4", "2.13", "delta-spark_4.1_2.13", "spark.xml", conditional_writes=True),
    Pair("3.5", "3.3", "2.12", "delta-spark_2.12", "spark-3.5.xml", conditional_writes=False),
)


def installed() -> Pair:
    """By the Python packages of this environment. Raises ConfigurationError where they are no pair.

    A session that is there already, on a cluster, has jars of its own, and isn't asked.
    """
    spark, delta = version("pyspark"), version("delta-spark")
    for pair in PAIRS:
        if _minor(spark) == pair.spark and _minor(delta) == pair.delta:
            return pair
    raise ConfigurationError(
        f"pyspark {spark} and delta-spark {delta} are installed: each Delta Lake is built for one Spark, and these two "
        "aren't made for one another, or not tried with Lakelock.",
        hint="Install a pair: "
        + " or ".join(f'pip install "pyspark=={p.spark}.*" "delta-spark=={p.delta}.*"' for p in PAIRS)
        + ".",
    )


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
