"""What `maintain` leaves alone, without a table."""

from __future__ import annotations

import pytest

from connector.config import parse
from connector.operations.maintain import Maintained, needs_old_files
from connector.protocol.decided import Row, State
from sinks.contract import Epoch
from sinks.delta.maintenance import Upkeep
from sinks.offsets import Offsets


def row(state: State = State.DECIDED, *, batch: str = "", back_to: int | None = None) -> Row:
    epoch = Epoch("p", 7, "me", (), Offsets(), {}, None, None, batch=batch)
    return Row(state, epoch, "me", of_rewind=back_to)


@pytest.mark.parametrize(
    ("in_doubt", "needed_by"),
    [
        (None, None),
        (row(), None),
        (row(back_to=3), 7),
        (row(back_to=0), 7),
        (row(batch="dead letters/5"), 7),
        (row(State.BEGUN, batch="dead letters/5"), None),
    ],
)
def test_what_the_recovery_of_an_epoch_reads_is_left(in_doubt: Row | None, needed_by: int | None) -> None:
    assert needs_old_files(in_doubt) == needed_by


def test_the_page_names_the_epoch_and_the_way_on() -> None:
    config = parse(
        {
            "name": "p",
            "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "127.0.0.1:9092"}},
            "value": {"format": "string"},
            "sinks": [{"type": "delta_append", "path": "lake/t"}],
        }
    )
    shown = str(Maintained(config, [Upkeep("t", 1, 1, 0, 0, None, needed_by=7)], dry_run=False))
    assert "epoch 7 is in doubt" in shown
    assert "lakelock recover" in shown
