"""The options of what is around a run: who is told of it, and the upkeep of what it leaves."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from pydantic import BeforeValidator, Field, StrictBool, field_validator, model_validator

from connector.config.kinds import Duration, Options, OptionText, Text
from connector.config.registry import Secret, without_credentials


class Pushgateway(Options):
    url: Text
    """Where it is, as http://pushgateway:9091."""
    username: OptionText | None = None
    """With ``password``."""
    password: Secret | None = None
    """As ${env:NAME} or ${file:/path} only."""

    @field_validator("url")
    @classmethod
    def _reachable(cls, url: str) -> str:
        return without_credentials(url)

    @model_validator(mode="after")
    def _one_login(self) -> Pushgateway:
        if (self.username is None) != (self.password is None):
            raise ValueError("username and password belong together")
        return self


def _as_gateway(value: object) -> object:
    return {"url": value} if isinstance(value, str) else value


class MetricsOptions(Options):
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Where Prometheus asks for them, at ``/metrics``."""
    host: Text = "127.0.0.1"
    """The address that is listened on. In a container: 0.0.0.0."""
    push: Annotated[Pushgateway | None, BeforeValidator(_as_gateway)] = None
    """A Pushgateway, for runs that are over before anybody asks: its URL, or a mapping, see below."""

    @model_validator(mode="after")
    def _to_somebody(self) -> MetricsOptions:
        if self.port is None and self.push is None:
            raise ValueError("give port (Prometheus asks), push (a Pushgateway is told), or both")
        return self


class Maintenance(Options):
    optimize: StrictBool = True
    """Small files are put together. ``false`` where something else does it, as Databricks' predictive optimization."""
    vacuum: StrictBool = True
    """Files that no version needs are removed, as long as the table's ``delta.deletedFileRetentionDuration`` says."""
    leftovers: StrictBool = True
    """Of several sinks: rows that were staged, and uploads that were begun, for epochs that nobody will commit."""
    keep_entries: Annotated[Duration, Field(ge=timedelta(days=1))] = timedelta(days=30)
    """Of the coordinator's log: ``lakelock history`` and ``snapshot`` go back that far. The last two epochs stay."""
