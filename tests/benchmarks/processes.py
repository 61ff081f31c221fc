"""CPU time and memory of a process and its descendants, as Linux reports them."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def family() -> list[int]:
    """The ids of this process and its descendants: the JVM, Python workers."""
    parents = {pid: parent for pid in _pids() if (parent := _parent(pid)) is not None}
    members = [os.getpid()]
    for pid in members:  # the list grows while it is read
        members += [child for child, parent in parents.items() if parent == pid]
    return members


def cpu_seconds() -> float:
    """The user and system time of the family so far."""
    return sum(_cpu(pid) for pid in family())


def peak_bytes() -> dict[str, int]:
    """The peak resident memory of the JVM and of this Python process."""
    names = {pid: _name(pid) for pid in family()}
    return {
        "java": sum(_peak(pid) for pid, name in names.items() if name == "java"),
        "python": _peak(os.getpid()),
    }


def peak_mebibytes() -> dict[str, float]:
    """The same in MiB, with their sum."""
    mebi = {f"{name}_MiB": value / 2**20 for name, value in peak_bytes().items()}
    return {"MiB": sum(mebi.values()), **mebi}


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _stat(pid: int) -> list[str]:
    """The fields after the name, which may contain any character."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # the process has ended
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
