"""The jars that Spark and the embedded Kafka broker need: where they are, and how they get there.

There are three sets, each described by a Maven POM next to this file: ``spark`` (what pip's pyspark lacks for Kafka and
Delta Lake), ``s3`` (what it lacks for s3a:// paths), both with a POM per Spark version, see `built_for`, and ``kafka``
(a complete broker). They are stored in the virtual environment, so that environments with other versions don't share
them, or in ``$LAKELOCK_JARS/<kind>``, for example in a container image.

Four more jars are part of this package, with their Java sources in ``java``: `LOG_STORE_JAR`, `READER_JAR`,
`PROTOBUF_JAR` and `JSON_JAR`.

`find` only looks. `fetch` is the only function here that may use the network.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Literal, get_args

from connector.spark.jars import digests
from connector.spark.jars.built_for import installed
from sinks.errors import JarsMissing

Kind = Literal["spark", "s3", "kafka"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_POMS = Path(__file__).parent
LOG_STORE_JAR = _POMS / "lakelock-s3.jar"
"""The jar with the log store `LOG_STORE`, which makes Delta's commits on S3 conditional writes."""
LOG_STORE = "lakelock.ConditionalLogStore"
LOCAL_LOG_STORE = "lakelock.LocalLogStore"
"""Makes Delta's commits on a local disk hard links. In `LOG_STORE_JAR`, too."""
READER_JAR = _POMS / "lakelock-kafka.jar"
"""The jar with the columnar reader of Kafka, see `connector.source.columnar`. For Spark 4."""
PROTOBUF_JAR = _POMS / "lakelock-protobuf.jar"
"""The jar with the function that decodes Protobuf, see `connector.decode.protobuf`. It needs no library."""
JSON_JAR = _POMS / "lakelock-json.jar"
"""The jar with the function that validates by JSON Schemas, see `connector.decode.validated`. It needs no library."""
# Maven repeats these lines after every failure. The cause stands above them.
_BOILERPLATE = ("To see the full stack", "Re-run Maven", "For more information", "[Help", "After correcting")


def folder(kind: Kind) -> Path:
    """The folder for jars of this kind. It may not exist yet."""
    root = os.environ.get("LAKELOCK_JARS")
    return (Path(root).absolute() if root else Path(sys.prefix, "share", "lakelock", "jars")) / kind


def own() -> list[Path]:
    """The jars of this package that were built for the installed Spark. Raises as `built_for.installed` does."""
    return [LOG_STORE_JAR, PROTOBUF_JAR, JSON_JAR, *([READER_JAR] if installed().columnar_reader else [])]


def find(kind: Kind) -> list[Path]:
    """The jars in the folder, sorted. Empty if there are none. Any jar counts, whoever put it there."""
    return sorted(folder(kind).glob("*.jar"))


def pom_of(kind: Kind) -> Path:
    """The POM of this kind, for the installed Spark. Raises as `built_for.installed` does, and `JarsMissing` for S3A
    where this Spark has none that is safe."""
    pair = installed()
    name = {"spark": pair.pom, "s3": pair.s3_pom}.get(kind, f"{kind}.xml")
    if name is None:
        raise JarsMissing(
            f"there is no S3A with conditional writes for Spark {pair.spark}",
            hint="Use Spark 4 for tables on S3.",
        )
    return _POMS / name


def fetch(kind: Kind) -> list[Path]:
    """Let Maven download the jars into `folder`, and return them.

    Does nothing if the folder already contains the jars of this very POM. Otherwise the folder is replaced as a whole,
    by a rename at the end: an interrupted download leaves the old jars or none, never a part.

    Raises `JarsMissing` if Maven isn't installed or fails, if a jar isn't the tested one (`digests`), or if the
    folder contains files that no download has put there: these are never deleted. Raises `ConfigurationError` as
    `built_for.installed` does.
    """
    target, pom = folder(kind), pom_of(kind)
    if _complete(target, pom):
        return find(kind)
    if target.is_dir() and any(target.iterdir()) and not (target / "pom.xml").is_file():
        raise JarsMissing(
            f"{target} contains files, but not those of a completed download",
            hint="Use these jars as they are, empty the folder, or set LAKELOCK_JARS to another one.",
        )
    maven = shutil.which("mvn")
    if maven is None:
        raise JarsMissing(
            f"the {kind} jars must be downloaded into {target}, and Maven's command `mvn` isn't on the PATH",
            hint=f"Install Apache Maven, or set LAKELOCK_JARS to a folder in which `{kind}` contains the jars.",
        )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # Next to the target: a rename is atomic only within one file system.
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{kind}-") as work:
            fresh = Path(work, "fresh")
            fresh.mkdir()
            # Maven works on a copy, so that it can't write into the package. The copy stays with the jars and says
            # which POM they are from.
            shutil.copyfile(pom, fresh / "pom.xml")
            _run(maven, kind, fresh)
            digests.check(fresh, pom)
            _swap(fresh, target, pom, Path(work, "old"))
    except OSError as error:
        raise JarsMissing(
            f"the {kind} jars can't be put into {target}: {error}",
            hint="Set LAKELOCK_JARS to a folder that you may write to.",
        ) from error
    return find(kind)


def _complete(target: Path, pom: Path) -> bool:
    marker = target / "pom.xml"
    return marker.is_file() and marker.read_bytes() == pom.read_bytes() and any(target.glob("*.jar"))


def _run(maven: str, kind: Kind, fresh: Path) -> None:
    command = [maven, "-B", "-q", "-f", str(fresh / "pom.xml"), "dependency:copy-dependencies"]
    command += ["-DincludeScope=runtime", f"-DoutputDirectory={fresh}"]
    done = subprocess.run(
        command,
        cwd=fresh,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0 or not any(fresh.glob("*.jar")):
        raise JarsMissing(
            f"Maven could not download the {kind} jars (exit code {done.returncode}):\n{_cause(done.stdout)}",
            hint="Maven needs Java and a reachable Maven repository (see its settings.xml).",
        )


def _cause(output: str) -> str:
    """The last lines of Maven's output about the cause, without colours, boilerplate and passwords in URLs."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", output)
    plain = re.sub(r"://[^/\s@]+@", "://***@", plain)
    errors = [line.removeprefix("[ERROR]").strip() for line in plain.splitlines() if line.startswith("[ERROR]")]
    lines = errors or [line.strip() for line in plain.splitlines()]
    return "\n".join([line for line in lines if line and not line.startswith(_BOILERPLATE)][-10:])


def _swap(fresh: Path, target: Path, pom: Path, old: Path) -> None:
    """Put the finished folder in place.

    A folder can't be renamed over a full one, so the old one is renamed first. A process that looks in between sees no
    jars, which is better than some of them.
    """
    with contextlib.suppress(FileNotFoundError):
        target.rename(old)
    try:
        fresh.rename(target)
    except OSError:
        # Another download may have finished a moment earlier. Its jars are as good.
        if not _complete(target, pom):
            raise
