"""Where a pipeline stands whose offsets are in a consumer group: what `status` and `check` show."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from connector.operations.status import _unfolded, stands
from sinks.contract import Position
from sinks.errors import ConfigurationError
from sinks.offsets import Offsets, TopicPartition

P0 = TopicPartition("t", 0)
HANDED_OVER = Position(4, Offsets({P0: 500}), topics={"t": "id"}, delivery="manual_commit", group="team")


def assembly(position: Position, group: str, log: Any = None) -> Any:
    sink = SimpleNamespace(position=lambda: position)
    table = SimpleNamespace(derivation=SimpleNamespace(sink=sink, log=log), table=SimpleNamespace(detail=lambda: {}))
    return SimpleNamespace(
        config=SimpleNamespace(name="orders", merged_on_read=None), log=None, table=table,
        group=SimpleNamespace(name=group, committed=lambda: Offsets({P0: 900})),
        source=SimpleNamespace(look=lambda: SimpleNamespace(ends={P0: 1000}, ids={"t": "id"})),
    )  # fmt: skip


def test_the_offsets_of_the_group_that_the_table_names_are_shown() -> None:
    assert stands(assembly(HANDED_OVER, "team"))[1] == {P0: 900}
    assert stands(assembly(replace(HANDED_OVER, group=""), "orders"))[1] == {P0: 900}  # 0.2 noted no group


def test_another_group_than_the_one_with_the_offsets_shows_nothing() -> None:
    with pytest.raises(ConfigurationError, match="'team' has the offsets of pipeline 'orders'") as refused:
        stands(assembly(HANDED_OVER, "orders"))
    assert 'group.id: "team"' in refused.value.hint


def test_offsets_of_epochs_that_a_restore_has_undone_are_not_shown() -> None:
    undone = replace(HANDED_OVER, epoch=20, source="restored", restored_to=4, undid_offsets=True)
    with pytest.raises(ConfigurationError, match=r"up to 20\. Their records would be missing"):
        stands(assembly(undone, "team"))


@pytest.mark.parametrize("left", [3, 0])
def test_what_an_earlier_file_has_appended_is_part_of_the_position(left: int) -> None:
    """The file merges on write by now, and no run has folded the change log since."""
    table = Position(4, Offsets({P0: 500}))
    appended = replace(table, epoch=4 + left, offsets=Offsets({P0: 800}))
    log = SimpleNamespace(
        started=True, standing=lambda: SimpleNamespace(unfolded=left), position=lambda: appended,
        folded=table if left else None,
    )  # fmt: skip
    here = assembly(table, "orders", log)
    position = stands(here)[0]
    assert position == (appended if left else table)
    assert _unfolded(here.config, here, position) == (left or None)
    log.started = False
    assert stands(here)[0] == table
