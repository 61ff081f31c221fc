"""Has Delta compute the state of a table's newest version before a commit asks for it.

Delta works that state out of its log, in a few Spark jobs, when the first commit after another one looks for its
``txn``. It keeps the state for all sessions of the JVM, and works it out once, whoever asks. So it may be asked for
while Spark has little to do. A commit still looks whether there is a newer version, and then has its state computed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from sinks.delta.table import DeltaTable

log = logging.getLogger("lakelock.delta")


def compute_state(table: DeltaTable) -> None:
    """Have the state computed now. Changes nothing, and nothing depends on it: an error will meet the commit too."""
    try:
        # The number of files is a part of the state.
        table.spark.sql(f"DESCRIBE DETAIL {table.sql}").collect()
    except Exception as error:
        log.debug("%s: its state wasn't computed early: %s", table.label, error)


@contextmanager
def state_beside(table: DeltaTable) -> Iterator[None]:
    """Have the state computed beside the block, and end with it. It depends on no setting."""
    with ThreadPoolExecutor(1, thread_name_prefix="lakelock-state") as pool:
        pool.submit(compute_state, table)
        yield
