"""Shows a run in a notebook: one line below the cell, which is renewed while the run goes on."""

from __future__ import annotations

import contextvars
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from connector.protocol.steps import Observer, all_of
from connector.telemetry.progress import now, span
from connector.telemetry.run_report import RunReport
from connector.telemetry.tracker import Observed
from sinks.plurals import plural

_EVERY = 0.5
"""Seconds between two updates of the line."""

Update = Callable[[str], None]
"""Replaces the line."""


def line() -> Update | None:
    """Begins a line below the cell that runs. None outside a notebook, such as in a script or in IPython's terminal.

    A kernel has imported IPython before it runs anything, so it is only looked for among the modules that are there.
    """
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if getattr(shell, "kernel", None) is None:
        return None
    from IPython.display import display

    handle: Any = display({"text/plain": ""}, raw=True, display_id=True)  # type: ignore[no-untyped-call]
    return lambda text: handle.update({"text/plain": text}, raw=True)


@contextmanager
def told_in_notebook(pipeline: str, begin: Callable[[], Update | None] = line) -> Iterator[Sequence[Observer]]:
    """Observers that keep the line current within the block, and its last words at the end. None outside a notebook.

    ``begin`` begins the line.
    """
    update = begin()
    if update is None:
        yield []
        return
    began, ended = time.monotonic(), threading.Event()
    observed, report = Observed(lambda _: None), RunReport(pipeline, say=lambda _: None)

    def renew() -> None:
        while not ended.wait(_EVERY):
            update(str(now(pipeline, observed)))

    update(str(now(pipeline, observed)))
    # The cell that the line belongs to is known by the context.
    renewing = threading.Thread(target=contextvars.copy_context().run, args=(renew,), daemon=True)
    renewing.start()
    word = "failed"
    try:
        yield [all_of([observed, report])]
        word = "done"
    finally:
        ended.set()
        renewing.join()
        behind = "" if observed.behind is None else f", {plural(observed.behind, 'offset')} behind"
        took = span(time.monotonic() - began)
        written = f"{plural(report.epochs, 'epoch')}, {plural(report.rows, 'row')} written in {took}{behind}"
        update(f"{pipeline}  {word}: {written}")
