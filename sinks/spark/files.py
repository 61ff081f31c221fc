"""Lists and removes folders where Spark reads and writes. Spark has no public call for it."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote, urlsplit

from sinks.errors import ConfigurationError
from sinks.s3 import hadoop as s3a
from sinks.spark.probes import probing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Result = TypeVar("Result")
_NOT_MADE = (
    "DELTA_CANNOT_CREATE_LOG_PATH",
    "ParentNotDirectory",
    "Parent path is not a directory",
    "Permission denied",
)


def absolute(path: str, folder: str = "") -> str:
    """The path, which belongs to ``folder`` if it is relative, by default to the working directory. A URI stays.

    Spark's working directory may differ from that of this process.
    """
    return path if ":" in path else os.path.abspath(os.path.join(folder, path))  # noqa: PTH100, PTH118


def listed(folder: str) -> bool:
    """Whether this process can list and remove folders there by itself: local ones, and those on S3."""
    return s3a.place(folder) is not None or local(folder) is not None


def folders(spark: SparkSession, parent: str) -> list[str]:
    """The names of the folders in ``parent``. Empty if it doesn't exist.

    Where only Spark can list (``gs://``, ``abfss://``, ``hdfs://``), those that have Parquet files.
    """
    at = s3a.place(parent)
    if at is not None:
        return s3a.folders(spark, at)
    path = local(parent)
    if path is None:
        reader = spark.read.format("binaryFile")
        files = if_there(lambda: reader.load(f"{no_glob(parent.rstrip('/'))}/*/*.parquet").inputFiles()) or ()
        return sorted({file.rsplit("/", 2)[-2] for file in files})
    return sorted(each.name for each in path.iterdir() if each.is_dir()) if path.is_dir() else []


def remove(spark: SparkSession, folder: str) -> None:
    """Remove the folder with everything in it, if it exists.

    Where only Spark can remove, the folder stays, with an empty file: Spark removes files by overwriting them.
    """
    at = s3a.place(folder)
    if at is not None:
        s3a.remove(spark, at)
        return
    path = local(folder)
    if path is not None:
        shutil.rmtree(path, ignore_errors=True)
    else:
        spark.range(0, 0, 1, 1).selectExpr("CAST(id AS STRING) AS value").write.mode("overwrite").text(folder)


def refuse_unwritable(folder: str) -> None:
    """Check, without writing, that this process may make files in a folder of its own file system.

    Raises ConfigurationError. Folders elsewhere pass.
    """
    path = local(folder) if folder else None
    if path is None:
        return
    there, *below = reversed((path.absolute(), *path.absolute().parents))
    for each in below:
        # What is in a folder that may not be searched can't even be seen.
        if not _may(there, os.X_OK) or not each.exists():
            break
        there = each
    if not there.is_dir():
        raise ConfigurationError(
            f"{folder!r} can't be a folder: {str(there)!r} is a file.", hint="Choose another path, or move that file."
        )
    if not _may(there, os.W_OK | os.X_OK):
        raise ConfigurationError(
            f"{folder!r} can't be written: no permission to make files in {str(there)!r}.",
            hint="Give this user the permission, or choose another path.",
        )


@contextmanager
def folder_made(folder: str) -> Iterator[None]:
    """Where Spark can't make the folder, say what is in the way. Raises ConfigurationError, or what Spark raises.

    Only afterwards: a path without a scheme may be one of a cluster's file system, which this process doesn't see.
    """
    try:
        yield
    except Exception as error:
        if not folder or local(folder) is None or not any(sign in str(error) for sign in _NOT_MADE):
            raise
        refuse_unwritable(folder)
        raise ConfigurationError(
            f"Spark can't make the folder {folder!r}.", hint="Choose another path, or a user who may write there."
        ) from error


def _may(folder: Path, what: int) -> bool:
    return os.access(folder, what, effective_ids=os.access in os.supports_effective_ids)


def local(folder: str) -> Path | None:
    """The folder on this machine that a path or URI names. None: it is elsewhere."""
    parts = urlsplit(folder)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return Path(folder) if not parts.scheme else None


def if_there(read: Callable[[], Result]) -> Result | None:
    """The result of ``read``. None if Spark finds no file at its path.

    ``read`` must run a query: with Spark Connect, loading a DataFrame looks for no file yet.
    """
    from pyspark.errors import AnalysisException

    try:
        with probing():
            return read()
    except AnalysisException as error:
        if "PATH_NOT_FOUND" in str(error):
            return None
        raise


def twice(path: str) -> list[str]:
    """The path, given twice, for questions to which a file that comes twice gives the same answer.

    Of a single path Spark asks first whether a streaming query has written it. If nothing is there, as with every
    pattern, Spark logs that with the trace of the JVM.
    """
    return [path, path]


def no_glob(path: str) -> str:
    """Escape the path, because Spark's file readers take patterns and would expand brackets and stars."""
    return re.sub(r"([\\\[\]{}*?])", r"\\\1", path)
