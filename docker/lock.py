"""Writes what is in the images: `make locks`.

- docker/locks: every Python package, with its version and the digests of its files. A file that is there keeps its
  versions as far as pyproject.toml allows; delete it to get the newest ones. Needs uv.
- connector/spark/jars/*.sha256: the digests of the jars in this environment. With the argument ``jars`` only these.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import tomllib

from connector.spark import jars
from connector.spark.jars import digests

DOCKER = Path(__file__).parent
PYTHON = "3.11.7"
"""That of the base image."""
EXTRAS = {"job": "job", "notebooks": "notebooks"}
"""Which extra of the package each image has."""
# setuptools: pyspark comes as source only
BUILD = "setuptools"
FOR = "# For the dependencies with this digest: "


def dependencies(lock: str) -> list[str]:
    """What pyproject.toml asks for, of which a lock says the versions."""
    project = tomllib.loads((DOCKER.parent / "pyproject.toml").read_text(encoding="utf-8"))
    if lock == "build":
        return [BUILD, *project["build-system"]["requires"]]
    return sorted(set(_with_extra(project["project"], EXTRAS[lock])))


def _with_extra(project: dict[str, dict[str, list[str]]], extra: str) -> Iterator[str]:
    yield from project["dependencies"]
    own = f"{project['name']}["
    for dependency in project["optional-dependencies"][extra]:
        if dependency.startswith(own):
            for other in dependency.removeprefix(own).rstrip("]").split(","):
                yield from _with_extra(project, other)
        else:
            yield dependency


def header(lock: str) -> str:
    """The first lines of a lock."""
    digest = hashlib.sha256("\n".join(dependencies(lock)).encode()).hexdigest()
    return f"# Written by `make locks`, for Python {PYTHON} on Linux.\n{FOR}{digest}\n"


def write(lock: str) -> None:
    """Write one lock."""
    file = DOCKER / "locks" / f"{lock}.txt"
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--generate-hashes", "--no-annotate"]
    command += ["--no-header", "--python-version", PYTHON, "--python-platform", "linux", f"--output-file={file}", "-"]
    subprocess.run(command, input="\n".join(dependencies(lock)), text=True, check=True)
    file.write_text(header(lock) + file.read_text(encoding="utf-8"), encoding="utf-8")


def write_digests() -> None:
    """Write the digests of the jars of this environment."""
    for kind in jars.KINDS:
        if jars.find(kind):
            digests.write(jars.folder(kind), jars.pom_of(kind))


if __name__ == "__main__":
    write_digests()
    for name in () if sys.argv[1:] == ["jars"] else ("build", *EXTRAS):
        write(name)
