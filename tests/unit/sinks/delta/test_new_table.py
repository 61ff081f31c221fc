"""Whether a table is new, which decides how the first rows get in."""

from __future__ import annotations

from typing import Any

import pytest

from sinks.delta import table as module
from sinks.delta.table import DeltaTable


@pytest.mark.parametrize(
    ("logs", "new"),
    [
        ([{0}, {0}], [True, True]),
        ([{0}, {0, 1}, {0, 1}], [True, False, False]),
        # Delta has removed the old versions from the log, and kept the table.
        ([{0, 1}, set()], [False, False]),
        ([{0, 1}, {0}], [False, False]),
        ([set()], [False]),
    ],
)
def test_a_table_that_had_rows_is_never_new_again(
    logs: list[set[int]], new: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    spark: Any = None
    table = DeltaTable(spark, path="/lake/t")
    table._was_new = True
    found: list[bool] = []
    for there in logs:

        class Log:
            def among(self, *versions: int, there: set[int] = there) -> frozenset[int]:
                return frozenset(there & {*versions})

        monkeypatch.setattr(module.DeltaTable, "log", property(lambda _: Log()))
        found.append(table.is_new)
    assert found == new
