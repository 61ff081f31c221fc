"""Where the schemas of Avro records are: a schema registry, Confluent's or AWS Glue's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, TypeAlias
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, SecretStr, field_validator, model_validator

from connector.config.kinds import Options, OptionText, Text, as_model

REFERENCED_SECRETS = ("username", "password", "token")
"""Options of a registry that stay wrapped when they come from ``${env:}`` or ``${file:}``."""


def _referenced(value: object) -> object:
    if isinstance(value, str):
        raise ValueError(
            "a secret doesn't belong in a pipeline file, which is kept, copied and shown: write ${env:NAME} or "
            "${file:/path}"
        )
    return value


Secret: TypeAlias = Annotated[SecretStr, BeforeValidator(_referenced)]


def without_credentials(url: str) -> str:
    parts = urlsplit(url)
    if parts.username is not None or parts.password is not None:
        raise ValueError("credentials don't belong in it: give username and password beside it")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError("write a URL as in https://schemas.example.com:8081")
    return url.rstrip("/")


def _urls(value: object) -> object:
    return [value] if isinstance(value, str) else value


class ConfluentRegistry(Options):
    """Confluent's REST API, which Karapace, Apicurio and Redpanda speak too."""

    url: Annotated[tuple[Text, ...], BeforeValidator(_urls), Field(min_length=1)]
    """Where it is. Several: each is tried when the one before doesn't answer."""
    username: OptionText | None = None
    """With ``password``."""
    password: Secret | None = None
    """As ${env:NAME} or ${file:/path} only."""
    token: Secret | None = None
    """A bearer's, as ${env:NAME} or ${file:/path} only."""
    ca: Text | None = None
    """Path of a PEM file with the authorities to trust, instead of the public ones."""
    subject: Text | None = None
    """Whose schemas they are, where it isn't the topic's name with ``-key`` or ``-value``."""

    @property
    def names_schemas(self) -> bool:
        """Whatever the topic is called."""
        return self.subject is not None

    @field_validator("url")
    @classmethod
    def _reachable(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(without_credentials(url) for url in urls)

    @field_validator("ca")
    @classmethod
    def _is_there(cls, ca: str | None) -> str | None:
        if ca is not None and not Path(ca).is_file():
            raise ValueError(f"the file {ca} isn't there")
        return ca

    @model_validator(mode="after")
    def _one_way_in(self) -> ConfluentRegistry:
        if (self.username is None) != (self.password is None):
            raise ValueError("username and password belong together")
        if self.token is not None and self.username is not None:
            raise ValueError("give either username and password, or token")
        return self


class GlueOptions(Options):
    """Credentials come by boto3's own chain: environment, profile, web identity, the machine's role."""

    registry: Text = "default-registry"
    """Its name."""
    schema_: Annotated[Text | None, Field(alias="schema")] = None
    """Where it isn't named after the topic, as AWS's serializer does."""
    region: Text | None = None
    """AWS's; boto3's own if left out."""
    endpoint: Text | None = None
    """Another address, for tests."""


class GlueRegistry(Options):
    glue: GlueOptions
    """AWS Glue's, see below."""

    @property
    def names_schemas(self) -> bool:
        """Whatever the topic is called."""
        return self.glue.schema_ is not None


def _registry(value: object) -> object:
    if not isinstance(value, Mapping):
        raise ValueError("write {url: https://schemas.example.com:8081} or {glue: {region: eu-central-1}}")
    return as_model(GlueRegistry if "glue" in value else ConfluentRegistry, value)


RegistryOptions: TypeAlias = Annotated[ConfluentRegistry | GlueRegistry, BeforeValidator(_registry)]
