"""Tells a webhook what a person should know of a run: ``notify:``. docs/metrics.md lists the messages.

An observer decides what is worth a message, and ``webhook`` sends it.
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from connector.config import NotifyOptions, PipelineConfig
from connector.display import cut
from connector.protocol.steps import Event, Step, told_its_end
from connector.telemetry.progress import span
from connector.telemetry.webhook import Patience, Webhook, webhook
from sinks.errors import Fenced, NoRecordYet
from sinks.plurals import plural

log = logging.getLogger("lakelock.notify")

SET_ASIDE_EVERY = timedelta(minutes=1)
"""Between two messages about dead letters."""
_LONGEST = 1000
"""Characters of an error in a message."""
_WITH_LAG = (Step.LOOKED, Step.PLANNED, Step.COMMITTED, Step.WAITING)


@dataclass(frozen=True)
class Trouble:
    """An error as a message shows it."""

    type: str
    message: str
    hint: str = ""

    @classmethod
    def of(cls, error: BaseException) -> Trouble:
        """Of an error that isn't Lakelock's own, only the first line: the rest is a stack trace."""
        first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
        message, hint = getattr(error, "message", None) or first, getattr(error, "hint", "")
        return cls(type(error).__name__, cut(message, _LONGEST), cut(hint, _LONGEST))


def _now() -> datetime:
    return datetime.now(timezone.utc)


class Notifier:
    """An observer of one run. ``send`` takes the name and the body of a message, and returns at once."""

    def __init__(
        self,
        config: PipelineConfig,
        options: NotifyOptions,
        send: Callable[[str, dict[str, object]], None],
        now: Callable[[], datetime] = _now,
    ) -> None:
        self._config, self._events, self._bound, self._shape = config, options.events, options.bound, options.shape
        self._send, self._now = send, now
        self._lock = threading.Lock()
        self._run: str | None = None
        self._epoch: int | None = None
        self._offsets: dict[str, dict[str, int]] | None = None
        self._behind: int | None = None
        self._complete_to = now()
        """Everything that Kafka held then is committed. It begins with the run: what waited before may have come a
        moment ago."""
        self._told_behind = False
        self._read: tuple[int, str] = (0, "")
        """The dead letters of the current epoch, and the first one."""
        self._set_aside: tuple[int, str] = (0, "")
        """Those of committed epochs that no message has told yet."""
        self._told_set_aside: datetime | None = None

    def __call__(self, event: Event) -> None:
        """Take a step of the run."""
        with self._harmless():
            self._run = event.run or self._run
            if event.step in _WITH_LAG:
                self._see_lag(event)
            if event.step is Step.READ:
                self._read = event.letters, event.first_letter
            if event.step is Step.COMMITTED:
                self._set_aside, self._read = _sum(self._set_aside, self._read), _NOTHING
            self._tell_due()

    def ended(self, error: BaseException | None) -> None:
        """Tell how the run ended, if it failed, and what wasn't told yet."""
        with self._harmless():
            self._tell_set_aside()
            # A run that waits for a first record begins again; one that a person ends by a signal hasn't failed.
            if error is None or isinstance(error, NoRecordYet) or not isinstance(error, Exception):
                self._tell_lag()
            else:
                self._tell_end(error)

    def tick(self) -> None:
        """Tell what is due by now. Also called while nothing happens: a run that hangs falls behind as well."""
        with self._harmless():
            self._tell_due()

    @contextmanager
    def _harmless(self) -> Iterator[None]:
        """One at a time. No fault in here may stop a run, which would do without messages."""
        try:
            with self._lock:
                yield
        except Exception as error:
            log.warning("notify: a message of %s can't be made: %s", self._config.name, type(error).__name__)
            log.debug("notify: why", exc_info=True)

    def _tell_due(self) -> None:
        self._tell_lag()
        if self._told_set_aside is None or self._now() - self._told_set_aside >= SET_ASIDE_EVERY:
            self._tell_set_aside()

    def _see_lag(self, event: Event) -> None:
        planned = event.step is Step.PLANNED
        self._behind = event.behind + (event.epoch.span if planned else 0)
        if not planned:  # a planned epoch isn't committed
            self._epoch, self._offsets = event.epoch.number, event.epoch.offsets.to_dict()
        if not self._behind:
            self._complete_to = self._now()
        elif not planned and event.epoch.read_to is not None:
            self._complete_to = max(self._complete_to, event.epoch.read_to)

    def _tell_lag(self) -> None:
        if self._bound is None or self._behind is None:
            return
        late = self._now() - self._complete_to if self._behind else timedelta(0)
        if not self._told_behind and late > self._bound:
            self._told_behind = True
            waiting = plural(self._behind, "offset isn't", "offsets aren't")
            for_how_long = f"for {span(late.total_seconds())}, more than the {span(self._bound.total_seconds())}"
            self._tell(
                "behind",
                f"has been behind {for_how_long} of notify.behind: {waiting} committed",
                hint="`lakelock status FILE` says how far it is behind; docs/runbook.md#lag-grows says what to do.",
            )
        # A lag that stays around the bound gives two messages, not hundreds.
        elif self._told_behind and late <= self._bound / 2:
            self._told_behind = False
            self._tell("recovered", f"has caught up again: {plural(self._behind, 'offset')} behind")

    def _tell_set_aside(self) -> None:
        if not self._set_aside[0]:
            return
        (count, first), self._set_aside = self._set_aside, _NOTHING
        self._told_set_aside = self._now()
        letters = self._config.dead_letters
        records = plural(count, "record")
        self._tell(
            "dead_letters",
            f"has set aside {records}" + (f", the first: {first}" if first else ""),
            hint="`lakelock dead-letters FILE` lists them; docs/runbook.md#bad-records says what to do.",
            count=count,
            first=first or None,
            place=letters.place if letters is not None else None,
        )

    def _tell_end(self, error: BaseException) -> None:
        trouble = Trouble.of(error)
        event = "fenced" if isinstance(error, Fenced) else "failed"
        words = "was replaced by another run" if event == "fenced" else "has failed"
        shown = {"type": trouble.type, "message": trouble.message, "hint": trouble.hint}
        self._tell(event, f"{words}: {trouble.type}: {trouble.message}", hint=trouble.hint, error=shown)

    def _tell(self, event: str, words: str, *, hint: str = "", **fields: object) -> None:
        if (event if event != "recovered" else "behind") not in self._events:
            return
        behind = (self._now() - self._complete_to).total_seconds() if self._behind else 0.0
        body = {
            "event": event,
            "pipeline": self._config.name,
            "run": self._run,
            "time": self._now().isoformat(timespec="milliseconds"),
            "tables": [sink.place for sink in self._config.sinks],
            "epoch": self._epoch,
            "offsets": self._offsets,
            "behind": self._behind,
            "behind_seconds": round(behind, 1) if self._behind is not None else None,
            **fields,
        }
        self._send(event, shaped(self._shape, body, f"{self._config.name} {words.rstrip('.; ')}.", hint))


_NOTHING = (0, "")


def _sum(before: tuple[int, str], more: tuple[int, str]) -> tuple[int, str]:
    return before[0] + more[0], before[1] or more[1]


def shaped(shape: str, body: Mapping[str, object], text: str, hint: str = "") -> dict[str, object]:
    """The body in a shape of `notify.shape`, with the ``text`` for people."""
    if shape == "json":
        return {**body, "text": f"{text} {hint}".rstrip()}
    # Slack's own rule: these three are its markup. Otherwise a record's text could call everybody, or be a link.
    lines = [text, f"What to do: {hint}"] if hint else [text]
    escaped = "\n".join(lines).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return {"text": escaped}


def trial_message(config: PipelineConfig, options: NotifyOptions) -> dict[str, object]:
    """The body of a message that only shows that messages arrive."""
    body = {"event": "test", "pipeline": config.name, "time": _now().isoformat(timespec="milliseconds")}
    return shaped(options.shape, body, f"{config.name}: this is a test message. Nothing has happened.")


class QueryNotifier:
    """An observer of a streaming query, whose end nobody tells: the end of the process tells what is left."""

    def __init__(self, config: PipelineConfig, options: NotifyOptions, *, patience: Patience | None = None) -> None:
        if options.bound is not None:
            log.warning("notify: behind isn't told of a streaming query: only a run knows when all was read")
        events = tuple(event for event in options.events if event != "behind")
        self._webhook = Webhook(options.url, of=config.name, patience=patience or Patience())
        options = options.model_copy(update={"on": events, "behind": None})
        self._notifier = Notifier(config, options, self._webhook.send)
        self._webhook.tick = self._notifier.tick
        atexit.register(self._tell, None)

    def __call__(self, event: Event) -> None:
        """Take a step of the query."""
        self._notifier(event)

    def failed(self, error: Exception) -> None:
        """Tell an error that stops the query. Waits a moment: the process may end with the query."""
        self._tell(error)

    def _tell(self, error: Exception | None) -> None:
        self._notifier.ended(error)
        self._webhook.flush()


@contextmanager
def notified(config: PipelineConfig, options: NotifyOptions, *, patience: Patience | None = None) -> Iterator[Notifier]:
    """An observer within the block, which is told the block's error."""
    with webhook(options.url, of=config.name, patience=patience) as hook:
        notifier = Notifier(config, options, hook.send)
        hook.tick = notifier.tick
        with told_its_end(notifier):
            yield notifier


def tell_all(failed: Iterable[tuple[PipelineConfig, Exception]]) -> None:
    """Tell the webhooks of these pipelines why they have failed before they could begin. Waits for all together."""
    with ExitStack() as stack:
        for config, error in failed:
            if config.notify is not None:
                # Closing waits, so every message is on its way before the first is waited for.
                hook = stack.enter_context(webhook(config.notify.url, of=config.name))
                Notifier(config, config.notify, hook.send).ended(error)
