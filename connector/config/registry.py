"""The options of ``registry``: a schema registry with a Confluent API, or AWS Glue's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, TypeAlias
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, SecretStr, WithJsonSchema, field_validator

from connector.config.kinds import NAME_OR_NAMES, REFERENCE, Name, Options, OptionText, as_model, fits


def _referenced(value: object) -> object:
    if isinstance(value, str) and REFERENCE.fullmatch(value):
        return SecretStr(value)  # in Python; of a file it is resolved before
    if isinstance(value, str):
        raise ValueError(
            "a secret must not be written in a pipeline file, which is stored, copied and shown: write ${env:NAME} or "
            "${file:/path}"
        )
    return value


Secret: TypeAlias = Annotated[
    SecretStr, BeforeValidator(_referenced), WithJsonSchema({"type": "string", "pattern": REFERENCE.pattern})
]


def without_credentials(url: str) -> str:
    """Check a URL, and return it without a final slash. Raises ValueError."""
    parts = urlsplit(url)
    if parts.username is not None or parts.password is not None:
        raise ValueError("a URL must not contain credentials: give username and password beside it")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError("write a URL as in https://schemas.example.com:8081")
    return url.rstrip("/")


def _urls(value: object) -> object:
    return [value] if isinstance(value, str) else value


class ConfluentRegistry(Options):
    """A registry with Confluent's REST API: Confluent's, Karapace, Apicurio or Redpanda."""

    url: Annotated[tuple[Name, ...], BeforeValidator(_urls), Field(min_length=1), WithJsonSchema(NAME_OR_NAMES)]
    """The registry's URL, or a list of URLs. Each is tried when the one before doesn't answer, or hasn't the schema."""
    username: OptionText | None = None
    """The user name for basic authentication. Needs ``password``."""
    password: Secret | None = None
    """The password. Only as ${env:NAME} or ${file:/path}."""
    token: Secret | None = None
    """A bearer token, instead of a user name. Only as ${env:NAME} or ${file:/path}."""
    ca: Name | None = None
    """The path of a PEM file with the certificate authorities to trust. By default the public ones."""
    subject: Name | None = None
    """The subject of the schemas. By default the topic's name with ``-key`` or ``-value``. In a context it has the
    context's name before its own, as in ``:.dr:orders-value``. Required if ``topics`` is a pattern."""

    @property
    def names_schemas(self) -> bool:
        """Whether a subject is given, so that the topic's name isn't needed."""
        return self.subject is not None

    @field_validator("url")
    @classmethod
    def _reachable(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(without_credentials(url) for url in urls)

    @field_validator("ca")
    @classmethod
    def _is_there(cls, ca: str | None) -> str | None:
        if ca is not None and not Path(ca).is_file():
            raise ValueError(f"the file {ca} doesn't exist")
        return ca

    @fits
    def _one_way_in(self) -> Iterator[str]:
        if (self.username is None) != (self.password is None):
            yield "give username and password together"
        if self.token is not None and self.username is not None:
            yield "give either username and password, or token"


class GlueOptions(Options):
    """AWS Glue's schema registry. Credentials come from boto3: environment, profile, web identity or instance role."""

    registry: Name = "default-registry"
    """The registry's name."""
    schema_: Name | None = Field(default=None, alias="schema")
    """The schema's name. By default the topic's name, as with AWS's serializer. Required if ``topics`` is a
    pattern."""
    region: Name | None = None
    """The AWS region. By default the one that boto3 is configured with."""
    endpoint: Name | None = None
    """Another endpoint URL, for tests."""


class GlueRegistry(Options):
    """``registry: {glue: ...}``."""

    glue: GlueOptions
    """AWS Glue's schema registry. See below."""

    @property
    def names_schemas(self) -> bool:
        """Whether a schema name is given, so that the topic's name isn't needed."""
        return self.glue.schema_ is not None


def _registry(value: object) -> object:
    if isinstance(value, ConfluentRegistry | GlueRegistry):
        return value
    if not isinstance(value, Mapping):
        raise ValueError("write {url: https://schemas.example.com:8081} or {glue: {region: eu-central-1}}")
    return as_model(GlueRegistry if "glue" in value else ConfluentRegistry, value)


RegistryOptions: TypeAlias = Annotated[ConfluentRegistry | GlueRegistry, BeforeValidator(_registry)]
