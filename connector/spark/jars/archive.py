"""An archive of Spark's classes, found, read and checked in advance. It cuts start-up time by a third (Java's class
data sharing).

The JVM writes the archive at the end of a rehearsal, and ignores an archive of another JVM. So the archive's name
contains a hash of everything that it depends on, the Java and the jars, and `find` looks for that name only.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from connector.spark import jars, java
from sinks.errors import JarsMissing

_SUFFIX = ".jsa"


def find() -> Path | None:
    """The archive for this Java and these jars. None if it doesn't exist."""
    path = _path()
    return path if path is not None and path.is_file() else None


def make() -> Path | None:
    """Create the archive in a separate process, unless it exists. None if this environment has no Spark or no jars.

    Deletes archives for other Javas and jars. Raises `JarsMissing` if the archive can't be written.
    """
    path = _path()
    if path is None or path.is_file():
        return path
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".classes-") as work:
            fresh = Path(work, path.name)
            command = [sys.executable, "-m", "connector.engine.warm_up", str(fresh), work]
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
            if done.returncode != 0 or not fresh.is_file():
                raise JarsMissing(
                    f"the archive of classes could not be made (exit code {done.returncode}):\n{done.stderr[-2000:]}",
                    hint="Everything works without it, but starts more slowly.",
                )
            for old in path.parent.glob(f"classes-*{_SUFFIX}"):
                old.unlink()
            fresh.rename(path)
    except OSError as error:
        raise JarsMissing(
            f"the archive of classes can't be put into {path.parent}: {error}",
            hint="Set LAKELOCK_JARS to a folder that you may write to.",
        ) from error
    return path


def _path() -> Path | None:
    spark = find_spec("pyspark")
    program, fetched = java.find(), jars.find("spark")
    if spark is None or spark.origin is None or program is None or not fetched:
        return None
    places = [*sorted(Path(spark.origin).parent.glob("jars/*.jar")), *fetched, *jars.find("s3"), *jars.own()]
    said = hashlib.sha256()
    # The JVM compares paths, sizes and times of the jars, too.
    for place in [program, *places]:
        found = place.stat()
        said.update(f"{place} {found.st_size} {found.st_mtime_ns}\n".encode())
    return jars.folder("spark").parent / f"classes-{said.hexdigest()[:12]}{_SUFFIX}"
