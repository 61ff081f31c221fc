"""What Spark's Python workers are sent, where nobody has installed it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import sinks
from sinks.spark import worker_code as shipped

IMPORTS = """
import sys
sys.path.insert(0, sys.argv[1])
import sinks.objects.upload, sinks.topic.messages
print(sinks.__file__)
print("connector" in sys.modules)
"""


def test_the_archive_is_all_that_a_worker_needs() -> None:
    archive = shipped._archive(Path(sinks.__file__).parent)
    done = subprocess.run([sys.executable, "-I", "-c", IMPORTS, str(archive)], capture_output=True, text=True)
    assert done.stdout.splitlines() == [str(archive / "sinks" / "__init__.py"), "False"], done.stderr


def test_the_same_code_has_the_same_name() -> None:
    source = Path(sinks.__file__).parent
    assert shipped._archive(source) == shipped._archive.__wrapped__(source)
