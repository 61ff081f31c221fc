"""The options for monitoring a run and for maintaining its tables."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from pydantic import BeforeValidator, Field, StrictBool, field_validator, model_validator

from connector.config.kinds import Duration, Options, OptionText, Text
from connector.config.registry import Secret, without_credentials


class Pushgateway(Options):
    """A Prometheus Pushgateway, and how to log in."""

    url: Text
    """The Pushgateway's URL, as http://pushgateway:9091."""
    username: OptionText | None = None
    """The user name for basic authentication. Needs ``password``."""
    password: Secret | None = None
    """The password. Only as ${env:NAME} or ${file:/path}."""

    @field_validator("url")
    @classmethod
    def _reachable(cls, url: str) -> str:
        return without_credentials(url)

    @model_validator(mode="after")
    def _one_login(self) -> Pushgateway:
        if (self.username is None) != (self.password is None):
            raise ValueError("give username and password together")
        return self


def _as_gateway(value: object) -> object:
    return {"url": value} if isinstance(value, str) else value


class MetricsOptions(Options):
    """How Prometheus gets the metrics of a run."""

    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """The port where Prometheus can scrape the metrics, at ``/metrics``."""
    host: Text = "127.0.0.1"
    """The address to listen on. In a container write 0.0.0.0."""
    push: Annotated[Pushgateway | None, BeforeValidator(_as_gateway)] = None
    """A Pushgateway, for runs that end before Prometheus can scrape them: its URL, or a mapping, see below."""

    @model_validator(mode="after")
    def _to_somebody(self) -> MetricsOptions:
        if self.port is None and self.push is None:
            raise ValueError("give port (Prometheus scrapes the run), push (the run pushes to a Pushgateway), or both")
        return self


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
