"""Each notebook, run from a clean state in a kernel of its own: what its cells print is what is kept in it."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
RUN = [
    pytest.param(file, marks=pytest.mark.spark4("it reads objects through S3A")) if file.stem.startswith("05") else file
    for file in NOTEBOOKS
]
VARIES = "varies"
"""Tag of a cell whose output is another one each time."""


def printed(notebook: NotebookNode) -> list[str]:
    """What each cell that doesn't vary has printed, or shown as text."""
    return [
        "".join(
            output.get("text", "") or output.get("data", {}).get("text/plain", "")
            for output in cell.outputs
            if "image/png" not in output.get("data", {})
        )
        for cell in notebook.cells
        if cell.cell_type == "code" and VARIES not in cell.metadata.get("tags", ())
    ]


def pictures(notebook: NotebookNode) -> list[int]:
    """How many each cell shows."""
    return [sum("image/png" in output.get("data", {}) for output in cell.get("outputs", ())) for cell in notebook.cells]


@pytest.mark.notebooks
@pytest.mark.parametrize("file", RUN, ids=lambda file: file.stem)
def test_a_notebook_runs_and_says_what_is_kept_in_it(file: Path, tmp_path: Path) -> None:
    kept = nbformat.read(file, as_version=4)
    fresh = nbformat.read(file, as_version=4)
    for cell in fresh.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    client = NotebookClient(fresh, timeout=300, coalesce_streams=True, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    assert printed(fresh) == printed(kept)
    assert pictures(fresh) == pictures(kept)


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_is_kept_as_it_ran(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    notebook = nbformat.reads(text, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]
    assert not re.search(r"/(home|root|tmp|Users)/", text), "a path of somebody's machine"


def test_there_are_notebooks() -> None:
    assert len(NOTEBOOKS) == 10
