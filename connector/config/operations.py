"""The options for monitoring a run and for maintaining its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, SecretStr, StrictBool, field_validator, model_validator

from connector.config.kinds import REFERENCE, AlsoWritten, Duration, Name, Options, OptionText, Text, fits
from connector.config.registry import Secret, without_credentials


class Pushgateway(Options):
    """A Prometheus Pushgateway, and how to log in."""

    url: Name
    """The Pushgateway's URL, as http://pushgateway:9091."""
    username: OptionText | None = None
    """The user name for basic authentication. Needs ``password``."""
    password: Secret | None = None
    """The password. Only as ${env:NAME} or ${file:/path}."""

    @field_validator("url")
    @classmethod
    def _reachable(cls, url: str) -> str:
        return without_credentials(url)

    @fits
    def _one_login(self) -> None:
        if (self.username is None) != (self.password is None):
            raise ValueError("give username and password together")


def _as_gateway(value: object) -> object:
    return {"url": value} if isinstance(value, str) else value


class MetricsOptions(Options):
    """How Prometheus gets the metrics of a run."""

    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """The port where Prometheus can scrape the metrics, at ``/metrics``."""
    host: Text = "127.0.0.1"
    """The address to listen on. In a container write 0.0.0.0."""
    push: Annotated[Pushgateway | None, BeforeValidator(_as_gateway), AlsoWritten({"type": "string"})] = None
    """A Pushgateway, for runs that end before Prometheus can scrape them: its URL, or a mapping, see below."""

    @fits
    def _to_somebody(self) -> None:
        if self.port is None and self.push is None:
            raise ValueError("give port (Prometheus scrapes the run), push (the run pushes to a Pushgateway), or both")


NotifyEvent = Literal["failed", "fenced", "behind", "dead_letters"]
_WITHOUT_BOUND: Sequence[NotifyEvent] = ("failed", "fenced", "dead_letters")
BEHIND = timedelta(minutes=10)


class NotifyOptions(Options):
    """A webhook that hears of what a person should know."""

    url: Secret
    """The webhook's URL, which is a secret: who has it can write there. Only as ${env:NAME} or ${file:/path}."""
    on: Annotated[tuple[NotifyEvent, ...], Field(min_length=1)] | None = None
    """What to tell. ``failed`` and ``fenced``: how a run has ended. ``behind``: the pipeline is behind for longer than
    the bound, and that it has caught up again. ``dead_letters``: records were set aside. By default all of them, but
    ``behind`` only if the bound is given."""
    behind: Annotated[Duration, Field(gt=timedelta(0))] | None = None
    """The bound of ``behind``: 10 minutes, if only ``on`` names it. It counts within one run. Needs ``delivery:
    transactional``."""
    shape: Literal["json", "slack"] = "json"
    """What the body is: an object with fields for programs (``json``), or {"text": ...} (``slack``), which Slack and
    Mattermost take."""

    @model_validator(mode="before")
    @classmethod
    def _on_is_a_word(cls, options: object) -> object:
        """YAML reads the key ``on`` as true."""
        if not isinstance(options, Mapping) or True not in options:
            return options
        return {"on": options[True], **{name: value for name, value in options.items() if name is not True}}

    @field_validator("url")
    @classmethod
    def _can_be_called(cls, url: SecretStr) -> SecretStr:
        text = url.get_secret_value()
        if REFERENCE.fullmatch(text):
            return url  # in Python; of a file it is resolved before
        # What is wrong with it is said without the text, which Python's own errors quote.
        try:
            parts = urlsplit(text)
            fits = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            fits = False
        if not fits or not text.isascii() or not text.isprintable() or " " in text:
            raise ValueError("isn't a URL as in https://hooks.example.com/...")
        if "@" in parts.netloc:
            raise ValueError("must not contain a user name; write a URL that needs no login beside itself")
        return url

    @fits
    def _bound_is_used(self) -> None:
        if self.behind is not None and "behind" not in self.events:
            raise ValueError("behind: is never used: add behind to on, or remove it")

    @property
    def events(self) -> frozenset[NotifyEvent]:
        """What is told."""
        if self.on is not None:
            return frozenset(self.on)
        return frozenset((*_WITHOUT_BOUND, "behind") if self.behind is not None else _WITHOUT_BOUND)

    @property
    def bound(self) -> timedelta | None:
        """How long a pipeline may be behind before that is told. None: it isn't told."""
        return (self.behind or BEHIND) if "behind" in self.events else None


class Maintenance(Options):
    """The steps of ``lakelock maintain``."""

    optimize: StrictBool = True
    """Compact small files. Write ``false`` where another service does it, such as Databricks' predictive
    optimization."""
    vacuum: StrictBool = True
    """Remove files that no version needs any more. The table's ``delta.deletedFileRetentionDuration`` says how long to
    keep them."""
    leftovers: StrictBool = True
    """Remove staged rows and unfinished uploads of epochs that will never be committed. With several sinks only."""
    keep_entries: Annotated[Duration, Field(ge=timedelta(days=1))] = timedelta(days=30)
    """How long to keep entries of the coordinator log. ``lakelock history`` and ``snapshot`` can't go back further.
    The last two epochs are always kept."""
