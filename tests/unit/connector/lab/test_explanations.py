"""What the lab's page explains about a crash."""

from __future__ import annotations

import pytest

from connector.lab.show.explanations import what_follows
from connector.lab.trials.matrix import Cell, cells


@pytest.mark.parametrize("cell", cells(), ids=lambda cell: cell.name)
def test_every_crash_of_the_matrix_is_explained_in_whole_sentences(cell: Cell) -> None:
    text = what_follows(cell.delivery, cell.sink, cell.crash_point)
    assert text.endswith(".")
    # a name in braces is an f-string that lacks its prefix
    assert not {"{", "}"} & set(text)


def test_a_write_that_was_cut_off_is_done_again_by_asking_the_table() -> None:
    assert "The next run asks the table where it stands" in what_follows("transactional", "append", "mid_write")
