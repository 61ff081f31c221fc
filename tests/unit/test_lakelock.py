"""The package that users import."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import connector
import lakelock

ROOT = Path(__file__).parents[2]


def test_it_hands_on_every_public_name() -> None:
    assert lakelock.__all__ == connector.__all__
    assert all(getattr(lakelock, name) is getattr(connector, name) for name in lakelock.__all__)


@pytest.mark.parametrize("name", ["connector", "sinks"])
@pytest.mark.parametrize("regular", [True, False], ids=["a package", "a folder"])
def test_a_folder_of_the_users_that_hides_ours_is_named(name: str, regular: bool, tmp_path: Path) -> None:
    hiding = tmp_path / name
    hiding.mkdir()
    if regular:
        (hiding / "__init__.py").touch()
    done = subprocess.run(
        [sys.executable, "-c", "import lakelock"],
        cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    # Python prefers a package anywhere on its path to a folder without an __init__.py.
    assert (done.returncode != 0) is regular
    if regular:
        assert f"The package {name!r} in {hiding} hides Lakelock's own" in done.stderr
