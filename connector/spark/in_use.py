"""The session that a call of Lakelock has started, and the other calls of this process that use it meanwhile.

The call that started the session may end first: stopping the session then would end the others in mid-epoch. So the
last one out stops it. All of them share its settings, as the pipelines of a fleet do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from connector.spark.compat import is_connect
from connector.spark.row_settings import ALWAYS
from connector.spark.session import active_session, another, isolated, session, wanted
from sinks.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Thing = TypeVar("Thing")


class InUse(Generic[Thing]):
    """Something that the first of its users opens, and that the last one out closes."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        """Held while the thing is opened or closed. Whoever holds it can rely on ``thing``."""
        self.thing: Thing | None = None
        """None: nobody uses it."""
        self._users = 0
        self._opened = ExitStack()

    @contextmanager
    def joined(self, opened: Callable[[], AbstractContextManager[Thing]]) -> Iterator[Thing]:
        """Use the thing. ``opened``: opens it, if nobody uses it yet."""
        with self.lock:
            if self.thing is None:
                self.thing = self._opened.enter_context(opened())
            thing = self.thing
            self._users += 1
        try:
            yield thing
        finally:
            with self.lock:
                self._users -= 1
                if not self._users:
                    self.thing = None
                    self._opened.close()


@dataclass(frozen=True)
class _Started:
    """A session that Lakelock has started."""

    spark: SparkSession
    options: Mapping[str, str]
    """What was asked for."""
    settings: Mapping[str, str]
    """The settings that it was started with, of those that were asked for, and of those that every run sets. Its first
    user may change them for itself."""


_OWN: InUse[_Started] = InUse()


@contextmanager
def shared_session(
    options: Mapping[str, str],
    *,
    name: str,
    s3: bool = False,
    debug: bool = False,
    short: Callable[[], bool] = lambda: False,
    given: SparkSession | None = None,
) -> Iterator[SparkSession]:
    """``session`` for calls that may overlap in a process: a session that one of them starts ends with the last one.

    The arguments are those of ``session``. Raises ConfigurationError if another call has started the session with
    settings that clash with ``options``.
    """
    with ExitStack() as used:
        with _OWN.lock:  # so that nobody stops the session between the look at it and its use
            if given is not None or _users_own():
                own = used.enter_context(session(options, name=name, given=given))
            else:
                first = _OWN.thing is None
                started = used.enter_context(
                    _OWN.joined(lambda: _start(session(options, name=name, s3=s3, debug=debug, short=short), options))
                )
                refuse_other_settings(options, started.options)
                own = started.spark
                if is_connect(own):
                    own = used.enter_context(isolated(own))
                elif not first:
                    own = another(own, started.settings)
        yield own


def refuse_other_settings(options: Mapping[str, str], of_session: Mapping[str, str]) -> None:
    """Raises ConfigurationError if ``options`` clash with those that the session was started with."""
    clashing = [
        setting
        for setting in sorted({*options, *of_session})
        if None not in (values := {wanted(setting, options), wanted(setting, of_session)}) and len(values) > 1
    ]
    if clashing:
        raise ConfigurationError(
            f"The Spark session of this process was started with another value of {', '.join(map(repr, clashing))}.",
            hint="Pipelines that run at the same time in one process share a session. Give them the same settings "
            "under `spark:`, or run them one after the other or in processes of their own.",
        )


def _users_own() -> bool:
    """Whether a session is active that none of Lakelock's calls has started."""
    active = active_session()
    if active is None or _OWN.thing is None:
        return active is not None
    # A process has one classic context, and the call in use has started it.
    return is_connect(active) and active is not _OWN.thing.spark


@contextmanager
def _start(starting: AbstractContextManager[SparkSession], options: Mapping[str, str]) -> Iterator[_Started]:
    with starting as spark:
        settings = {name: spark.conf.get(name, None) for name in (*ALWAYS, *options)}
        yield _Started(spark, options, {name: value for name, value in settings.items() if value is not None})
