"""Sends small messages to a webhook, from a thread of its own: no run waits for it, and none fails with it.

The URL is a secret. It is in no message and no error, also not in those of Python's own libraries, which quote it.
"""

from __future__ import annotations

import json
import logging
import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from pydantic import SecretStr

log = logging.getLogger("lakelock.notify")

_TICK_SECONDS = 0.5
MOST_WAITING = 100
"""Messages. A run sends a few an hour."""
_LONGEST_WAIT = 30.0
_HARMLESS = "This changes nothing about the run."
_REFUSED_FOR_NOW = (408, 425, 429)


class NotSent(Exception):
    """Why a message wasn't taken. ``again``: whether another attempt can help; ``after``: seconds, if the server says
    so."""

    def __init__(self, why: str, *, again: bool, after: float = 0.0) -> None:
        super().__init__(why)
        self.again, self.after = again, after


@dataclass(frozen=True)
class Patience:
    """How long a message is worth waiting for; times in seconds."""

    timeout: float = 5.0
    """For a connection, and for the answer."""
    attempts: int = 5
    wait: float = 1.0
    """After the first attempt. It doubles."""
    grace: float = 10.0
    """At the end of a run, for everything that isn't sent yet."""


class _NoRedirect(HTTPRedirectHandler):
    """A POST that is redirected becomes a GET, which says nothing, and looks like a success."""

    def redirect_request(self, *_: Any) -> None:
        return None


def post(url: SecretStr, body: Mapping[str, object], timeout: float) -> None:
    """Send one message. Raises NotSent, whose text has nothing of the URL."""
    request = Request(
        url.get_secret_value(),
        json.dumps(body, ensure_ascii=False).encode("utf-8", "replace"),
        {"Content-Type": "application/json; charset=utf-8", "User-Agent": "lakelock"},
        method="POST",
    )
    try:
        with build_opener(_NoRedirect).open(request, timeout=timeout):
            return
    except HTTPError as error:
        with suppress(Exception):
            error.close()
        raise _refused(error) from None
    except (OSError, HTTPException) as error:
        raise NotSent(_why(error, timeout), again=True) from None
    except Exception as error:  # whatever else is wrong with it would be so again
        raise NotSent(type(error).__name__, again=False) from None


def _refused(error: HTTPError) -> NotSent:
    if 300 <= error.code < 400:
        return NotSent(
            f"it answers with a redirect ({error.code}), which isn't followed; give the URL that it leads to",
            again=False,
        )
    after = error.headers.get("Retry-After", "") if error.headers else ""
    return NotSent(
        f"it answers with status {error.code}",
        again=error.code >= 500 or error.code in _REFUSED_FOR_NOW,
        after=float(after) if after.isascii() and after.isdigit() else 0.0,
    )


def _why(error: BaseException, timeout: float) -> str:
    if isinstance(error, URLError) and isinstance(error.reason, BaseException):
        error = error.reason
    if isinstance(error, TimeoutError):
        return f"no answer within {timeout:g} s"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate isn't trusted: {error.verify_message}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return type(error).__name__


class Webhook:
    """The messages of one run that are to be sent, and the thread that sends them."""

    def __init__(self, url: SecretStr, *, of: str, patience: Patience) -> None:
        self._url, self._of, self._patience = url, of, patience
        self.tick: Callable[[], None] = lambda: None
        """Called by the thread, twice a second while there is nothing to send."""
        self._waiting: deque[tuple[str, Mapping[str, object]]] = deque()
        """A message stays until it is sent, or given up."""
        self._changed, self._given_up = threading.Condition(), threading.Event()
        self._over = False
        self._thread = threading.Thread(target=self._run, name=f"lakelock-notify-{of}", daemon=True)
        self._thread.start()

    def send(self, what: str, body: Mapping[str, object]) -> None:
        """Have a message sent, and return at once. ``what`` names it in the log, if it can't be sent."""
        with self._changed:
            full = len(self._waiting) >= MOST_WAITING
            if not full:
                self._waiting.append((what, body))
                self._changed.notify()
        if full:
            self._lost(what, f"{MOST_WAITING} others wait already")

    def flush(self) -> None:
        """Wait until everything is sent, for so long as that is worth it. Unlike ``close`` it leaves the thread."""
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting, self._patience.grace)

    def close(self) -> None:
        """Send what is left, for so long as that is worth waiting."""
        with self._changed:
            self._over = True
            self._changed.notify()
        self._thread.join(self._patience.grace)
        if self._thread.is_alive():
            self._given_up.set()
            log.warning(
                "notify: %d of the messages of %s couldn't be sent within %g s of the run's end. %s",
                len(self._waiting), self._of, self._patience.grace, _HARMLESS,
            )  # fmt: skip

    def _run(self) -> None:
        while not self._given_up.is_set():
            with self._changed:
                if not self._waiting and not self._over:
                    self._changed.wait(_TICK_SECONDS)
                if not self._waiting and self._over:
                    return
                message = self._waiting[0] if self._waiting else None
            if message is None:
                self.tick()
                continue
            self._send(*message)
            with self._changed:
                self._waiting.popleft()
                self._changed.notify_all()

    def _send(self, what: str, body: Mapping[str, object]) -> None:
        wait = self._patience.wait
        for attempt in range(1, self._patience.attempts + 1):
            try:
                return post(self._url, body, self._patience.timeout)
            except NotSent as error:
                if not error.again or attempt == self._patience.attempts:
                    if not self._given_up.is_set():
                        self._lost(what, f"{error}")
                    return
                if self._given_up.wait(min(max(wait, error.after), _LONGEST_WAIT)):
                    return
                wait *= 2

    def _lost(self, what: str, why: str) -> None:
        log.warning(
            "notify: the message %r of %s couldn't be sent to notify.url: %s. %s", what, self._of, why, _HARMLESS
        )  # fmt: skip


@contextmanager
def webhook(url: SecretStr, *, of: str, patience: Patience | None = None) -> Iterator[Webhook]:
    """A webhook within the block, whose end waits a moment for what isn't sent yet.

    ``of``: the pipeline.
    """
    opened = Webhook(url, of=of, patience=patience or Patience())
    try:
        yield opened
    finally:
        opened.close()
