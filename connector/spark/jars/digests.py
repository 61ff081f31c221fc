"""The SHA-256 digests that downloaded jars must have. Beside each POM a file lists them, as `sha256sum` does.

`make locks` writes these files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from sinks.errors import JarsMissing
from sinks.plurals import plural

_SHOWN = 5


def file_for(pom: Path) -> Path:
    """The file with the digests of a POM's jars."""
    return pom.with_suffix(".sha256")


def expected(pom: Path) -> dict[str, str]:
    """The digest of each jar that a POM asks for, by the jar's name."""
    lines = file_for(pom).read_text(encoding="utf-8").splitlines()
    return {name: digest for digest, name in (line.split(maxsplit=1) for line in lines)}


def found(folder: Path) -> dict[str, str]:
    """The digest of each jar in a folder, by the jar's name."""
    return {jar.name: _digest(jar) for jar in sorted(folder.glob("*.jar"))}


def _digest(jar: Path) -> str:
    with jar.open("rb") as opened:
        digest = hashlib.sha256()
        while part := opened.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()


def check(folder: Path, pom: Path) -> None:
    """Raises JarsMissing unless the folder has the very jars that were tested with this POM."""
    faults = list(_faults(expected(pom), found(folder)))
    if faults:
        more = [f"and {plural(len(faults) - _SHOWN, 'other')}"] if len(faults) > _SHOWN else []
        raise JarsMissing(
            "Maven brought other jars than those that were tested, and they aren't used: "
            f"{'; '.join([*faults[:_SHOWN], *more])}.",
            hint="Delete these jars from Maven's local repository (~/.m2/repository), and fetch them again. If the "
            "digests still differ, ask who runs the Maven repository: it serves other files than Maven Central.",
        )


def _faults(wanted: dict[str, str], there: dict[str, str]) -> Iterator[str]:
    for name in sorted(wanted | there):
        if name not in there:
            yield f"{name} is missing"
        elif name not in wanted:
            yield f"{name} was never asked for"
        elif there[name] != wanted[name]:
            yield f"{name} has the SHA-256 digest {there[name]}, not {wanted[name]}"


def write(folder: Path, pom: Path) -> None:
    """Write the digests of the jars in a folder as those of a POM."""
    lines = (f"{digest}  {name}\n" for name, digest in found(folder).items())
    file_for(pom).write_text("".join(lines), encoding="utf-8")
