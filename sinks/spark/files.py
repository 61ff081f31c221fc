"""Folders of files, where Spark reads and writes them: listed and removed, which Spark has no public call for."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote, urlsplit

from sinks.s3 import hadoop as s3a

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Result = TypeVar("Result")


def folders(spark: SparkSession, parent: str) -> list[str]:
    """Names of the folders in ``parent``; none where it isn't there, or where its kind of store can't be listed."""
    at = s3a.place(parent)
    if at is not None:
        return s3a.folders(spark, at)
    path = _local(parent)
    if path is None or not path.is_dir():
        return []
    return sorted(each.name for each in path.iterdir() if each.is_dir())


def remove(spark: SparkSession, folder: str) -> None:
    """With all that is in it. What isn't there is fine."""
    at = s3a.place(folder)
    if at is not None:
        s3a.remove(spark, at)
        return
    path = _local(folder)
    if path is not None:
        shutil.rmtree(path, ignore_errors=True)


def _local(folder: str) -> Path | None:
    parts = urlsplit(folder)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return Path(folder) if not parts.scheme else None


def if_there(read: Callable[[], Result]) -> Result | None:
    """What ``read`` gives; None where Spark finds no file at its path. It has to ask for something: through Spark
    Connect to load a DataFrame asks for nothing yet."""
    from pyspark.errors import AnalysisException

    try:
        return read()
    except AnalysisException as error:
        if "PATH_NOT_FOUND" in str(error):
            return None
        raise


def no_glob(path: str) -> str:
    """Spark's file readers take patterns: a folder's own brackets and stars must not be read as one."""
    return re.sub(r"([\\\[\]{}*?])", r"\\\1", path)
