"""Stores rows durably where no reader looks, as Parquet files in a folder per call.

A folder is named ``<folder>/<attempt>-<unique>/``. Nothing is ever written twice to one folder, so a replaced process
can't touch the rows that its successor has staged. The attempt number says whether anybody may still need them.

The receipt lists the files. A folder that has lost or gained a file is lost as a whole.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sinks.contract import Prepared
from sinks.errors import PreparedLost
from sinks.spark.checksum import fingerprinted
from sinks.spark.files import folders, if_there, listed, no_glob, remove

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_NAME = re.compile(r"(\d{12,})-[0-9a-f]{8}")


class Staging:
    """The staged rows of one sink of one pipeline, in ``folder``."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._spark = spark
        self._folder = folder.rstrip("/")
        self._own: set[str] = set()

    def put(self, rows: DataFrame, attempt: int) -> Prepared:
        """Stage rows in one Spark job, which also counts and checksums them."""
        return self.put_and_read(rows, attempt)[0]

    def put_and_read(self, rows: DataFrame, attempt: int) -> tuple[Prepared, DataFrame]:
        """Stage rows, and give them as they are staged: a query over them reads exactly the files of the receipt."""
        name = f"{attempt:012d}-{uuid.uuid4().hex[:8]}"
        self._own.add(name)
        observed, fingerprint = fingerprinted(rows)
        observed.write.parquet(f"{self._folder}/{name}")
        found = fingerprint()
        staged, files = self._with_files(name, rows.schema)
        receipt = {"staged": name, "schema": rows.schema.json(), "files": str(files.count), "names": files.names}
        return Prepared(found.rows, found.checksum, receipt), staged

    def get(self, prepared: Prepared) -> DataFrame:
        """The staged rows. Their schema is in the receipt, so no file is opened. Raises PreparedLost."""
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
                f"The rows that were staged at {self._folder}/{receipt['staged']} have changed: "
                f"{found.count} of {receipt['files']} files are there, or there are other files."
            )
        return rows

    def _with_files(self, name: str, schema: StructType) -> tuple[DataFrame, _Files]:
        rows = self._read(name, schema)
        return rows, _Files.of(rows)

    def _read(self, name: str, schema: StructType) -> DataFrame:
        """The rows of a folder. The query fails if a file goes missing later, whatever the session's settings are."""
        reader = self._spark.read.schema(schema).options(ignoreMissingFiles="false", ignoreCorruptFiles="false")
        return reader.parquet(no_glob(f"{self._folder}/{name}"))

    def _refuse_unmarked(self, name: str) -> None:
        """Check a receipt without files, of an older version: Spark writes the mark once all files are there."""
        marked = self._spark.read.format("binaryFile")
        if if_there(lambda: marked.load(no_glob(f"{self._folder}/{name}") + "/_SUCCESS").schema) is None:
            raise PreparedLost(f"The rows that were staged at {self._folder}/{name} are no longer there.")

    def clear(self, before: int) -> None:
        """Remove the rows staged under attempts below ``before``.

        Where listing takes a Spark job, only those that this object has staged: ``clear_all`` finds the others.
        """
        if listed(self._folder):
            self.clear_all(before)
            return
        for folder in self._below(before, list(self._own)):
            remove(self._spark, folder)
            self._own.discard(folder.rpartition("/")[2])

    def clear_all(self, before: int) -> None:
        """Remove the rows staged under attempts below ``before``, by any process."""
        for folder in self.prepared(before):
            remove(self._spark, folder)

    def prepared(self, before: int) -> list[str]:
        """The folders of rows staged under attempts below ``before``."""
        return self._below(before, folders(self._spark, self._folder))

    def _below(self, before: int, names: Sequence[str]) -> list[str]:
        return [f"{self._folder}/{name}" for name in names if (of := _NAME.fullmatch(name)) and int(of[1]) < before]


@dataclass(frozen=True)
class _Files:
    """The files of a folder: their number, and a hash of their names, which Spark makes unique."""

    count: int
    names: str

    @classmethod
    def of(cls, rows: DataFrame) -> _Files:
        """The files listed when ``rows`` was created. A query over ``rows`` reads exactly these."""
        names = sorted(file.rsplit("/", 1)[-1] for file in rows.inputFiles())
        return cls(len(names), hashlib.sha256("\n".join(names).encode()).hexdigest()[:16])
