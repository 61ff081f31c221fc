"""An epoch in doubt comes first: the newest schemas of its decision aren't those of the epochs that follow.

One of a streaming query may need the query for that, and nothing else does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from connector.delivery.ports import Work
from connector.delivery.transactional import finish_doubted
from connector.engine.assembly import Assembly
from connector.source.records import no_records
from sinks.errors import PreparedLost
from sinks.offsets import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@contextmanager
def settled_first(
    begin: Callable[[], AbstractContextManager[Assembly]],
    works_with: Callable[[Assembly], Work],
    stop: threading.Event | None = None,
) -> Iterator[tuple[Assembly, Work]]:
    """An assembly that is ready to commit other epochs than one in doubt. Whoever commits any begins here.

    ``begin``: assembles a run; ``works_with``: see ``Assembly.work``. If an epoch in doubt has to be read by older
    schemas, the run finishes that epoch and nothing else, and another one is assembled with the newest ones. A crash in
    between leaves the epoch in doubt, or done: the next run begins here as well.
    """
    while True:
        with begin() as assembly:
            assembly.make_ready()
            assembly.look_back()
            work = works_with(assembly)
            if not assembly.newest.outdated:
                yield assembly, work
                return
            finish_doubted(work, stop=stop or threading.Event())


def without_query(assembly: Assembly) -> Assembly:
    """With ``value: {format: rows}``, whose records only a streaming query has: reads none, which is all that an epoch
    without records needs, or one whose rows are staged."""

    def read(ranges: Sequence[OffsetRange], values: object = None) -> DataFrame:  # noqa: ARG001
        if ranges:
            raise PreparedLost(
                "An epoch that was begun is to be finished first, and only the streaming query has its rows.",
                hint="Start the query: it finishes the epoch, and stops. Then give this command again.",
            )
        return no_records(assembly.spark)

    return replace(assembly, read=read) if assembly.config.of_rows else assembly
