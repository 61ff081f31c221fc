"""Finds the Java of this machine, for Spark and for the embedded broker."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options for a JVM that lives for seconds: fast compilation rather than fast code, and a simple garbage collector."""


def find() -> Path | None:
    """Java's command, looked up as Spark does: in JAVA_HOME, else on the PATH. None if there is none."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home, "bin")) if home else None)
    return Path(found).resolve() if found else None
