"""Which Delta Lake is built for which Spark, and the names of its jars: the pairs that Lakelock is tested with."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import NamedTuple

from sinks.errors import ConfigurationError


class Pair(NamedTuple):
    """A Spark version and the Delta Lake built for it."""

    spark: str
    delta: str
    """Major and minor version, as for Spark."""
    scala: str
    delta_artifact: str
    pom: str
    """The POM that `lakelock jars` downloads Spark's jars from."""
    s3_pom: str | None
    """The same for S3A, of the Hadoop that this Spark brings. None before Hadoop 3.4.2: its S3A has no conditional
    writes."""
    columnar_reader: bool
    """Whether the columnar reader of Kafka was built for this Spark."""

    @property
    def conditional_writes(self) -> bool:
        """Whether this Spark's S3A supports conditional writes."""
        return self.s3_pom is not None

    def packages(self, spark: str, delta: str) -> list[str]:
        """Maven coordinates of the jars for these very versions, for Spark to download."""
        own = (f"org.apache.spark:spark-{name}_{self.scala}:{spark}" for name in ("sql-kafka-0-10", "avro"))
        return [f"io.delta:{self.delta_artifact}:{delta}", *own]


PAIRS: Sequence[Pair] = (
    Pair("4.2", "4.4", "2.13", "delta-spark_4.2_2.13", "spark-4.2.xml", "s3-4.2.xml", columnar_reader=True),
    Pair("4.1", "4.4", "2.13", "delta-spark_4.1_2.13", "spark-4.1.xml", "s3-4.1.xml", columnar_reader=True),
    Pair("3.5", "3.3", "2.12", "delta-spark_2.12", "spark-3.5.xml", None, columnar_reader=False),
)


def installed() -> Pair:
    """The pair of the Python packages in this environment. Raises ConfigurationError if they aren't a pair.

    A session that is active already, on a cluster, has its own jars, and isn't checked.
    """
    spark, delta = version("pyspark"), version("delta-spark")
    for pair in PAIRS:
        if _minor(spark) == pair.spark and _minor(delta) == pair.delta:
            return pair
    raise ConfigurationError(
        f"pyspark {spark} and delta-spark {delta} are installed. Each Delta Lake is built for one Spark version, and "
        "these two don't fit, or Lakelock wasn't tested with them.",
        hint="Install a pair: "
        + " or ".join(f'pip install "pyspark=={p.spark}.*" "delta-spark=={p.delta}.*"' for p in PAIRS)
        + ".",
    )


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
