"""The Java of this machine, for Spark and for the embedded broker."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a JVM that lives for seconds: code that is compiled quickly, rather than well, and one collector."""


def find() -> Path | None:
    """Where Spark looks for it: in JAVA_HOME, else on the PATH."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home, "bin")) if home else None)
    return Path(found).resolve() if found else None
