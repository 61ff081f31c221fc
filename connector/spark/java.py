"""Finds the Java of this machine, for Spark and for the embedded broker."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

THROUGHPUT = "-XX:+UseParallelGC"
"""For a JVM that works through a backlog on a few cores: the collector that takes least of them."""
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options for a JVM that lives for seconds: fast compilation rather than fast code, and a simple garbage collector."""


_OUTSIDE = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")


def chosen_outside() -> bool:
    """Whether the environment chooses the garbage collector: a JVM that is told two of them doesn't start."""
    return any("GC" in os.environ.get(name, "") for name in _OUTSIDE)


def find() -> Path | None:
    """Java's command, looked up as Spark does: in JAVA_HOME, else on the PATH. None if there is none."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home, "bin")) if home else None)
    return Path(found).resolve() if found else None
