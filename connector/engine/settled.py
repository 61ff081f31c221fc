"""An epoch in doubt comes first: the newest schemas of its decision aren't those of the epochs that follow."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from connector.delivery.ports import Work
from connector.delivery.transactional import finish_doubted
from connector.engine.assembly import Assembly


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
