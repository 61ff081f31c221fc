"""Builds ``lakelock-s3.jar``, ``lakelock-kafka.jar``, ``lakelock-protobuf.jar`` and ``lakelock-json.jar`` from the Java
sources next to this file.

Needs a JDK (17 or later) and `lakelock jars`. The jars are kept in the package, because users who install Lakelock have
no compiler. Each contains its source, which a test compares.
"""

from __future__ import annotations

import subprocess
import tempfile
import zipfile
from pathlib import Path

import pyspark

from connector.spark.jars import JSON_JAR, LOG_STORE_JAR, PROTOBUF_JAR, READER_JAR, find

HERE = Path(__file__).parent
# One time for all files, so that the same classes make the same jar.
TIME = (1980, 1, 1, 0, 0, 0)


def build(folder: Path, jar: Path) -> None:
    """Compile the sources in a folder and write the jar."""
    path = [*find("spark"), *Path(pyspark.__file__).with_name("jars").glob("*.jar")]
    sources = sorted(folder.glob("*.java"))
    with tempfile.TemporaryDirectory() as classes:
        command = [
            "javac",
            "--release",
            "17",
            "-g:none",
            "-Xlint:all,-rawtypes,-classfile,-path,-serial",
            "-d",
            classes,
        ]
        subprocess.run([*command, "-cp", ":".join(map(str, path)), *map(str, sources)], check=True)
        fresh = jar.with_suffix(".new")
        with zipfile.ZipFile(fresh, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(zipfile.ZipInfo("META-INF/MANIFEST.MF", TIME), "Manifest-Version: 1.0\r\n\r\n")
            compiled = sorted(Path(classes).rglob("*.class"))
            package = compiled[0].parent.relative_to(classes)
            for file in [*compiled, *sources]:
                entry = zipfile.ZipInfo(f"{package}/{file.name}", TIME)
                archive.writestr(entry, file.read_bytes(), zipfile.ZIP_DEFLATED)
        # In one step: a running Spark may have the old jar open.
        fresh.replace(jar)


if __name__ == "__main__":
    build(HERE / "log_store", LOG_STORE_JAR)
    build(HERE / "reader", READER_JAR)
    build(HERE / "protobuf", PROTOBUF_JAR)
    build(HERE / "json", JSON_JAR)
