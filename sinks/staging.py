"""Rows put down durably where no reader looks: Parquet in a folder of their own.

``<folder>/<attempt>-<something unique>/``. Nothing is ever written twice to one folder, so a process that was replaced
can't touch what its successor has staged; and an attempt's number tells whether anybody may still want it.
"""

from __future__ import annotations

import json
import re
import uuid
from typing import TYPE_CHECKING

from sinks.contract import Prepared
from sinks.errors import PreparedLost
from sinks.files import folders, if_there, no_glob, remove
from sinks.fingerprint import fingerprinted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NAME = re.compile(r"(\d{12,})-[0-9a-f]{8}")


class Staging:
    """``folder`` belongs to one sink of one pipeline."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._spark = spark
        self._folder = folder.rstrip("/")

    def put(self, rows: DataFrame, attempt: int) -> Prepared:
        """One Spark job, which counts and checksums the rows on the way."""
        name = f"{attempt:012d}-{uuid.uuid4().hex[:8]}"
        observed, fingerprint = fingerprinted(rows)
        observed.write.parquet(f"{self._folder}/{name}")
        found = fingerprint()
        return Prepared(found.rows, found.checksum, {"staged": name, "schema": rows.schema.json()})

    def get(self, prepared: Prepared) -> DataFrame:
        """Raises PreparedLost. What the rows are is known from the receipt: nothing has to look into the files."""
        from pyspark.sql.types import StructType

        path = no_glob(f"{self._folder}/{prepared.receipt['staged']}")
        schema = StructType.fromJson(json.loads(prepared.receipt["schema"]))
        marked = self._spark.read.format("binaryFile")  # Spark writes the mark when all files are there
        if if_there(lambda: marked.load(f"{path}/_SUCCESS").schema) is None:
            raise PreparedLost(f"The rows that were staged at {path} are no longer there.")
        return self._spark.read.schema(schema).parquet(path)

    def clear(self, before: int) -> None:
        """Remove what was staged under lower attempts."""
        for folder in self.prepared(before):
            remove(self._spark, folder)

    def prepared(self, before: int) -> list[str]:
        """Folders that were staged under lower attempts."""
        names = folders(self._spark, self._folder)
        return [f"{self._folder}/{name}" for name in names if (of := _NAME.fullmatch(name)) and int(of[1]) < before]
