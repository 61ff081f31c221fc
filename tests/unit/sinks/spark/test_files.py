"""Whether this process may make files in a folder, found out without making one."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sinks.errors import ConfigurationError
from sinks.spark.files import folder_made, refuse_unwritable


@pytest.fixture
def nobody() -> Iterator[None]:
    """root may write everywhere: somebody who may not."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    yield
    os.seteuid(before)


def test_a_folder_that_can_be_made_passes(tmp_path: Path) -> None:
    refuse_unwritable(str(tmp_path / "a" / "b"))
    refuse_unwritable(f"file:{tmp_path}/a")
    refuse_unwritable("s3a://bucket/elsewhere")
    refuse_unwritable("")
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="/file' is a file"):
        refuse_unwritable(str(tmp_path / "file" / "t"))


def test_a_folder_without_permission_is_named(tmp_path: Path, nobody: None) -> None:
    locked = tmp_path / "locked"
    with pytest.raises(ConfigurationError, match="no permission"):
        refuse_unwritable(str(locked / "t"))


def test_what_spark_could_not_make_is_told_with_what_is_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    text = "[DELTA_CANNOT_CREATE_LOG_PATH] Cannot create file:/there/_delta_log"
    for folder, said in (
        (tmp_path / "file" / "t", "/file' is a file"),
        (tmp_path / "t", "Spark can't make the folder"),
    ):
        with pytest.raises(ConfigurationError, match=said), folder_made(str(folder)):
            raise RuntimeError(text)
    # Elsewhere it may pass, and so may other failures.
    for folder, other in (("s3a://bucket/t", text), (str(tmp_path / "file" / "t"), "the store is slow")):
        with pytest.raises(RuntimeError), folder_made(folder):
            raise RuntimeError(other)
