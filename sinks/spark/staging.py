"""Rows put down durably where no reader looks: Parquet in a folder of their own.

``<folder>/<attempt>-<something unique>/``. Nothing is ever written twice to one folder, so a process that was replaced
can't touch what its successor has staged; and an attempt's number tells whether anybody may still want it.

The receipt tells which files there are. A folder that has lost one, or got another, is lost as a whole.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sinks.contract import Prepared
from sinks.errors import PreparedLost
from sinks.spark.checksum import fingerprinted
from sinks.spark.files import folders, if_there, no_glob, remove

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

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
        files = _Files.of(self._read(name, rows.schema))
        receipt = {"staged": name, "schema": rows.schema.json(), "files": str(files.count), "names": files.names}
        return Prepared(found.rows, found.checksum, receipt)

    def get(self, prepared: Prepared) -> DataFrame:
        """Raises PreparedLost. What the rows are is known from the receipt: nothing has to look into the files."""
        from pyspark.sql.types import StructType

        receipt = prepared.receipt
        schema = StructType.fromJson(json.loads(receipt["schema"]))
        staged = if_there(lambda: self._with_files(receipt["staged"], schema))
        if staged is None:
            raise PreparedLost(f"The rows that were staged at {self._folder}/{receipt['staged']} are no longer there.")
        rows, found = staged
        if "files" not in receipt:
            self._refuse_unmarked(receipt["staged"])
        elif found != _Files(int(receipt["files"]), receipt["names"]):
            raise PreparedLost(
                f"The rows that were staged at {self._folder}/{receipt['staged']} are no longer what they were: "
                f"{found.count} of its {receipt['files']} files are there, or others."
            )
        return rows

    def _with_files(self, name: str, schema: StructType) -> tuple[DataFrame, _Files]:
        rows = self._read(name, schema)
        return rows, _Files.of(rows)

    def _read(self, name: str, schema: StructType) -> DataFrame:
        """Fails where a file of it goes missing later, whatever the session is set to."""
        reader = self._spark.read.schema(schema).options(ignoreMissingFiles="false", ignoreCorruptFiles="false")
        return reader.parquet(no_glob(f"{self._folder}/{name}"))

    def _refuse_unmarked(self, name: str) -> None:
        """Of a version that kept no files in the receipt: Spark writes the mark when all files are there."""
        marked = self._spark.read.format("binaryFile")
        if if_there(lambda: marked.load(no_glob(f"{self._folder}/{name}") + "/_SUCCESS").schema) is None:
            raise PreparedLost(f"The rows that were staged at {self._folder}/{name} are no longer there.")

    def clear(self, before: int) -> None:
        """Remove what was staged under lower attempts."""
        for folder in self.prepared(before):
            remove(self._spark, folder)

    def prepared(self, before: int) -> list[str]:
        """Folders that were staged under lower attempts."""
        names = folders(self._spark, self._folder)
        return [f"{self._folder}/{name}" for name in names if (of := _NAME.fullmatch(name)) and int(of[1]) < before]


@dataclass(frozen=True)
class _Files:
    """Of a folder: how many, and a hash of their names, each of which is Spark's own."""

    count: int
    names: str

    @classmethod
    def of(cls, rows: DataFrame) -> _Files:
        """As they were listed when ``rows`` was made: those, and no others, are what a query of it reads."""
        names = sorted(file.rsplit("/", 1)[-1] for file in rows.inputFiles())
        return cls(len(names), hashlib.sha256("\n".join(names).encode()).hexdigest()[:16])
