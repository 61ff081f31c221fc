"""The archive of classes: which one is used, and what becomes of it. The JVM is played by a script."""

import sys
from pathlib import Path

import pytest

from connector.spark.jars import archive
from sinks.errors import JarsMissing


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The jars' folder, with one of Spark's."""
    home = tmp_path / "jars"
    (home / "spark").mkdir(parents=True)
    (home / "spark" / "a.jar").write_bytes(b"a")
    monkeypatch.setenv("LAKELOCK_JARS", str(home))
    return home


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What runs instead of the rehearsal: it makes the file that it is told to make."""
    script = tmp_path / "python"
    script.write_text('#!/bin/sh\necho classes > "$3"\n', encoding="utf-8")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    return script


def test_it_is_made_once_and_found_from_then_on(home: Path, python: Path) -> None:
    assert archive.find() is None
    made = archive.make()
    assert made is not None
    assert made == archive.find()
    assert made.parent == home
    python.unlink()
    assert archive.make() == made


def test_with_other_jars_another_one_is_made_and_the_old_one_goes(home: Path, python: Path) -> None:
    made = archive.make()
    (home / "spark" / "b.jar").write_bytes(b"b")
    assert archive.find() is None
    assert archive.make() != made
    assert list(home.glob("*.jsa")) == [archive.find()]


def test_with_another_java_there_is_none(home: Path, python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert archive.make() is not None
    java = home / "bin" / "java"
    java.parent.mkdir()
    java.touch(mode=0o755)
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert archive.find() is None


def test_without_jars_or_java_there_is_nothing_to_make(
    home: Path, python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(home / "nowhere"))
    assert archive.make() is None
    monkeypatch.delenv("JAVA_HOME")
    (home / "spark" / "a.jar").unlink()
    assert archive.make() is None


def test_a_rehearsal_that_fails_leaves_nothing_and_says_why(home: Path, python: Path) -> None:
    python.write_text("#!/bin/sh\necho no memory >&2\nexit 3\n", encoding="utf-8")
    with pytest.raises(JarsMissing, match=r"exit code 3\):\nno memory") as failed:
        archive.make()
    assert "Everything works without it" in str(failed.value.hint)
    assert [each.name for each in home.iterdir()] == ["spark"]
