"""What a real kernel shows of a run: one line, and the result once. And that there is no line elsewhere."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from connector.telemetry import notebook

ROOT = Path(__file__).parents[4]
RUN = """
import time
from connector.protocol.steps import Event, Step
from connector.telemetry.notebook import told_in_notebook
from sinks.contract import Committed, Epoch, Position
from sinks.offsets import OffsetRange, Offsets, TopicPartition

at = TopicPartition("flights", 0)
position = Position(2, Offsets({at: 120}), version=2)
epoch = Epoch("flights", 2, "run", (OffsetRange("flights", 0, 20, 120),), position.offsets, {}, None, None)
with told_in_notebook("flights") as observers:
    (observe,) = observers
    observe(Event(Step.PLANNED, epoch, behind=7))
    observe(Event(Step.WRITING, epoch, behind=7))
    time.sleep(0.2)
    observe(Event(Step.COMMITTED, epoch, Committed(position, 95), behind=7))
"""

RESULT = """
from connector.delivery.ports import Delivered
Delivered(epochs=1, rows=95, behind=7)
"""


@pytest.fixture(scope="module")
def cells() -> Any:
    """The cells of a notebook after its run."""
    book = nbformat.v4.new_notebook()
    book.cells = [nbformat.v4.new_code_cell(code) for code in (RUN, "raise_it = True\n" + failing(), RESULT)]
    NotebookClient(book, timeout=120, allow_errors=True, resources={"metadata": {"path": str(ROOT)}}).execute()
    return book.cells


def failing() -> str:
    return textwrap.dedent(
        """
        with told_in_notebook("flights") as observers:
            raise RuntimeError("gone")
        """
    )


def test_a_result_is_shown_once_as_html_and_as_text(cells: Any) -> None:
    (shown,) = cells[2].outputs
    assert shown.output_type == "execute_result"
    assert shown.data["text/plain"] == "1 epoch, 95 rows written, 7 offsets behind."
    assert "<div" in shown.data["text/html"]


def test_a_notebook_has_one_line_which_ends_with_what_was_done(cells: Any) -> None:
    (shown,) = cells[0].outputs
    assert shown.output_type == "display_data"
    text = shown.data["text/plain"]
    assert text.startswith("flights  done: 1 epoch, 95 rows written in ")
    assert text.endswith(", 7 offsets behind")


def test_a_run_that_fails_says_so_before_its_trace(cells: Any) -> None:
    shown, error = cells[1].outputs
    assert shown.data["text/plain"].startswith("flights  failed: 0 epochs, 0 rows written in ")
    assert error.ename == "RuntimeError"


def test_the_line_says_where_the_run_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebook, "_EVERY", 0.01)
    lines: list[str] = []
    monkeypatch.setattr(notebook, "line", lambda: lines.append)
    exec(
        compile(RUN.replace('notebook("flights")', 'notebook("flights", line)'), "cell", "exec"),
        {"line": notebook.line},
    )
    assert lines[0].startswith("flights  starting")
    assert any("epoch 2: writing" in line and "behind 107" in line for line in lines)
    assert lines[-1].startswith("flights  done: 1 epoch")


def test_a_script_has_no_line_and_imports_no_ipython() -> None:
    program = """
import sys
from connector.telemetry.notebook import told_in_notebook
with told_in_notebook("flights") as observers:
    assert observers == []
assert "IPython" not in sys.modules
import IPython
with told_in_notebook("flights") as observers:
    assert observers == []
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
