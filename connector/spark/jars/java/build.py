"""Builds ``lakelock-s3.jar`` from the Java source next to this file. Needs a JDK (17 or later) and `lakelock jars`.

The jar is kept next to its source, because users who install Lakelock have no compiler. It contains the source, which a
test compares.
"""

from __future__ import annotations

import subprocess
import tempfile
import zipfile
from pathlib import Path

import pyspark

from connector.spark.jars import LOG_STORE_JAR, find

HERE = Path(__file__).parent
# One time for all files, so that the same classes make the same jar.
TIME = (1980, 1, 1, 0, 0, 0)


def build(jar: Path) -> None:
    """Compile the source and write the jar."""
    path = [*find("spark"), *Path(pyspark.__file__).with_name("jars").glob("hadoop-client-api-*.jar")]
    sources = sorted(HERE.glob("*.java"))
    with tempfile.TemporaryDirectory() as folder:
        command = ["javac", "--release", "17", "-g:none", "-Xlint:all,-rawtypes,-classfile", "-d", folder]
        subprocess.run([*command, "-cp", ":".join(map(str, path)), *map(str, sources)], check=True)
        fresh = jar.with_suffix(".new")
        with zipfile.ZipFile(fresh, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(zipfile.ZipInfo("META-INF/MANIFEST.MF", TIME), "Manifest-Version: 1.0\r\n\r\n")
            for file in [*sorted(Path(folder).rglob("*.class")), *sources]:
                name = f"lakelock/{file.name}"
                archive.writestr(zipfile.ZipInfo(name, TIME), file.read_bytes())
        # In one step: a running Spark may have the old jar open.
        fresh.replace(jar)


if __name__ == "__main__":
    build(LOG_STORE_JAR)
