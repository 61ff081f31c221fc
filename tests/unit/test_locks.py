"""The locks of the images fit pyproject.toml, each file has a digest, and nothing in them says where it was made."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

pytest.importorskip("tomllib", reason="Python 3.10 can't read pyproject.toml")
DOCKER = Path(__file__).parents[2] / "docker"
LOCKS = ("build", "job", "notebooks")


def _tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("lock", DOCKER / "lock.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TOOL = _tool()


def text(lock: str) -> str:
    return (DOCKER / "locks" / f"{lock}.txt").read_text(encoding="utf-8")


def versions(lock: str) -> dict[str, str]:
    return dict(re.findall(r"^([\w.-]+)==(\S+)", text(lock), flags=re.M))


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_is_of_the_dependencies_that_pyproject_has(lock: str) -> None:
    assert text(lock).startswith(TOOL.header(lock)), "pyproject.toml has changed since: make locks"
    locked = versions(lock)
    for dependency in map(Requirement, TOOL.dependencies(lock)):
        assert dependency.specifier.contains(locked[canonicalize_name(dependency.name)]), "make locks"


@pytest.mark.parametrize("lock", LOCKS)
def test_every_package_has_digests_and_none_says_where_it_came_from(lock: str) -> None:
    packages = re.split(r"\n(?=[a-z])", text(lock).partition(TOOL.FOR)[2])[1:]
    assert packages
    for package in packages:
        assert re.fullmatch(r"[\w.-]+==\S+( ; [^\\\n]+)?( \\\n    --hash=sha256:[0-9a-f]{64})+\n?", package)


def test_both_images_have_the_same_versions() -> None:
    assert versions("job").items() <= versions("notebooks").items()


def test_the_image_takes_nothing_that_is_not_in_a_lock() -> None:
    dockerfile = (DOCKER / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    assert f"ARG BASE=python:{TOOL.PYTHON}-" in dockerfile
    installs = re.findall(r"pip (?:install|wheel) [^&\n]*", dockerfile)
    assert len(installs) >= len(LOCKS)
    for install in installs:
        assert "--require-hashes" in install or "--no-deps" in install, install
        assert "--require-hashes" in install or "--no-index" in install or "/src" in install, install
    assert set(re.findall(r"/locks/(\w+)\.txt", dockerfile)) == set(LOCKS)
