"""This package for Spark's Python workers, on whose machines nobody has installed it."""

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
    """Have Spark send it to its workers, once for a session. What it imports from others has to be there.

    Where Spark doesn't let us, it has to be installed: the query that misses it fails.
    """
    from pyspark.errors import PySparkException

    source = Path(__file__).parents[1]  # sinks, whole
    # From an archive that spark-submit was given, it is on its way.
    if spark in _shipped or not source.is_dir():
        return
    with suppress(PySparkException):
        # Local workers find what the driver finds; a server of Spark Connect may be local to another machine.
        connect = hasattr(spark, "cloneSession")
        if connect or not (spark.conf.get("spark.master", "") or "").startswith("local"):
            spark.addArtifacts(str(_archive(source)), pyfile=True)
    _shipped.add(spark)


@cache
def _archive(source: Path) -> Path:
    """Named after its content: Spark takes a name once, and again only with the same bytes."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for file in sorted(source.rglob("*.py")):
            # Without the file's time.
            entry = zipfile.ZipInfo(file.relative_to(source.parent).as_posix())
            archive.writestr(entry, file.read_bytes(), compress_type=zipfile.ZIP_DEFLATED)
    name = f"lakelock-{hashlib.sha256(content.getvalue()).hexdigest()[:12]}.zip"
    folder = Path(_folder().name)
    (folder / name).write_bytes(content.getvalue())
    return folder / name


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """Until this process ends."""
    return tempfile.TemporaryDirectory(prefix="lakelock-")
