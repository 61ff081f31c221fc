"""The wheel for clusters that bring their own Spark: this installation, but that pip doesn't install pyspark beside it.

pip would put pyspark from PyPI in front of the one that belongs to the cluster, and where a cluster is told of its
wheels there is no place for --no-deps. So those two requirements are left out, and the version says so: 0.2.0+cluster.
Nor is there a place for extras, so the wheel requires what the job's extras do.
"""

from __future__ import annotations

import base64
import hashlib
import io
import re
import zipfile
from collections.abc import Iterator, Sequence
from importlib.metadata import Distribution, distribution
from importlib.resources import files
from pathlib import Path

from sinks.errors import ConfigurationError

BROUGHT = ("pyspark", "delta-spark")
_PACKAGES = ("lakelock", "connector", "sinks")
_KEPT = re.compile(r"entry_points\.txt|licenses/.*")
_WHEEL = "Wheel-Version: 1.0\nGenerator: lakelock\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_TIME = (1980, 1, 1, 0, 0, 0)
"""The same wheel each time: a cluster installs a file that hasn't changed from its cache."""


def cluster_wheel(extras: Sequence[str]) -> tuple[str, bytes]:
    """The wheel's file name and its content. ``extras``: those that it always brings."""
    installed = distribution("lakelock")
    version = f"{installed.version}+cluster"
    info = f"lakelock-{version}.dist-info"
    made = io.BytesIO()
    record = []
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, content in (*_code(), *_about(installed, version, info, extras)):
            wheel.writestr(zipfile.ZipInfo(name, _TIME), content, zipfile.ZIP_DEFLATED)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(content)}\n")
        listed = "".join([*record, f"{info}/RECORD,,\n"])
        wheel.writestr(zipfile.ZipInfo(f"{info}/RECORD", _TIME), listed)
    return f"lakelock-{version}-py3-none-any.whl", made.getvalue()


def _code() -> Iterator[tuple[str, bytes]]:
    for package in _PACKAGES:
        top = Path(str(files(package)))
        for file in sorted(top.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                yield f"{package}/{file.relative_to(top).as_posix()}", file.read_bytes()


def _about(installed: Distribution, version: str, info: str, extras: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    metadata = installed.read_text("METADATA")
    if metadata is None:
        raise ConfigurationError(
            "This installation of Lakelock doesn't say what it requires, so no wheel can be made of it.",
            hint="Install it with pip.",
        )
    yield f"{info}/METADATA", _required(metadata, installed.version, version, extras).encode()
    yield f"{info}/WHEEL", _WHEEL.encode()
    for file in installed.files or ():
        name = file.as_posix().partition(".dist-info/")[2]
        if _KEPT.fullmatch(name):
            yield f"{info}/{name}", Path(str(file.locate())).read_bytes()


def _required(text: str, version: str, new_version: str, extras: Sequence[str]) -> str:
    """The metadata with the new version, without Spark, and with the extras' requirements as requirements of all."""
    head, blank, readme = text.partition("\n\n")
    head = head.replace(f"\nVersion: {version}", f"\nVersion: {new_version}")
    brought = re.compile(rf"Requires-Dist: ({'|'.join(BROUGHT)})\b(?!-)")
    lines = (_for_all(line, extras) for line in head.splitlines() if not brought.match(line))
    return "\n".join(lines) + blank + readme


def _for_all(line: str, extras: Sequence[str]) -> str:
    """The line, without its condition if that is one of the extras."""
    found = re.fullmatch(r"""(Requires-Dist: .*?) *; *extra == ['"](.*)['"]""", line)
    return found[1] if found and found[2] in extras else line
