"""Serves the page until Ctrl-C or SIGTERM."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

from waitress.server import create_server

from connector.ui.board import Board, Refresher
from connector.ui.page import is_loopback, page
from sinks.errors import ConfigurationError

__all__ = ["is_loopback", "serve"]


def serve(
    files: Sequence[Path],
    overrides: Sequence[str] = (),
    *,
    host: str,
    port: int,
    every: float,
    reports: Sequence[Path] = (),
    with_rows: bool = False,
    debug: bool,
    say: Callable[[str], None],
) -> None:
    """Serve the page of these pipeline files until Ctrl-C or SIGTERM. ``every``: seconds between two looks.
    ``reports``: files that runs have left, and folders with such files. ``with_rows``: show some rows, too.

    ``say`` is given the page's URL. Raises ConfigurationError if ``host`` and ``port`` can't be listened on.
    """
    board = Board(files)
    try:
        server = create_server(page(board, host=host), host=host, port=port, ident=None)
    except OSError as error:
        raise ConfigurationError(
            f"Can't listen on {host}, port {port}: {error.strerror or error}.", hint="Give another --port."
        ) from None
    refresher = Refresher(board, overrides, every=every, debug=debug, reports=reports, with_rows=with_rows)
    before = signal.signal(signal.SIGTERM, _as_ctrl_c)
    refresher.start()
    try:
        shown = f"[{host}]" if ":" in host else host
        say(f"http://{shown}:{server.effective_port}/")
        with suppress(KeyboardInterrupt):
            server.run()
    finally:
        server.close()
        refresher.stop()
        signal.signal(signal.SIGTERM, before)


def _as_ctrl_c(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
