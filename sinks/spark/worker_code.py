"""Sends this package to Spark's Python workers, where it isn't installed."""

from __future__ import annotations

import hashlib
import io
import tempfile
import weakref
import zipfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_shipped: weakref.WeakSet[SparkSession] = weakref.WeakSet()


def ship(spark: SparkSession) -> None:
    """Make Spark send the package to its workers, once per session. Its dependencies must be installed there.

    Where Spark refuses, the package must be installed too, or the query fails.
    """
    from pyspark.errors import PySparkException

    source = Path(__file__).parents[1]  # sinks, whole
    # A package inside an archive was given to spark-submit, which sends it.
    if spark in _shipped or not source.is_dir():
        return
    with suppress(PySparkException):
        # Local workers can import what the driver can. With Spark Connect, "local" may mean another machine.
        connect = hasattr(spark, "cloneSession")
        if connect or not (spark.conf.get("spark.master", "") or "").startswith("local"):
            spark.addArtifacts(str(_archive(source)), pyfile=True)
    _shipped.add(spark)


@cache
def _archive(source: Path) -> Path:
    """The package as a zip file, named after its content: Spark takes a name again only with the same bytes."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for file in sorted(source.rglob("*.py")):
            # Without the file's time, so that the same content gives the same bytes.
            entry = zipfile.ZipInfo(file.relative_to(source.parent).as_posix())
            archive.writestr(entry, file.read_bytes(), compress_type=zipfile.ZIP_DEFLATED)
    name = f"lakelock-{hashlib.sha256(content.getvalue()).hexdigest()[:12]}.zip"
    folder = Path(_folder().name)
    (folder / name).write_bytes(content.getvalue())
    return folder / name


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """A temporary folder that lasts as long as this process."""
    return tempfile.TemporaryDirectory(prefix="lakelock-")
