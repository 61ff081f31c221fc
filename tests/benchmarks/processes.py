"""What a process and its children have used, as Linux tells it."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def family() -> list[int]:
    """This process and all that it started: the JVM, Python workers."""
    parents = {pid: parent for pid in _pids() if (parent := _parent(pid)) is not None}
    found = [os.getpid()]
    for pid in found:  # it grows
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def cpu_seconds() -> float:
    """User and system time of the family so far."""
    return sum(_cpu(pid) for pid in family())


def peak_bytes() -> dict[str, int]:
    """The most memory that was resident at once, of the JVM and of this Python process."""
    found = {pid: _name(pid) for pid in family()}
    return {
        "java": sum(_peak(pid) for pid, name in found.items() if name == "java"),
        "python": _peak(os.getpid()),
    }


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _stat(pid: int) -> list[str]:
    """The fields behind the name, which may hold anything."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has ended
        return []


def _parent(pid: int) -> int | None:
    fields = _stat(pid)
    return int(fields[1]) if fields else None


def _cpu(pid: int) -> float:
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / _TICKS if fields else 0.0


def _name(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def _peak(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0
