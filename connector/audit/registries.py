"""The schemas of records, as the auditor asks for them: of a file, of Confluent's registry, or of AWS Glue's."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias
from urllib.parse import quote, unquote
from uuid import UUID

from connector.config import ConfluentRegistry, RegistryOptions
from connector.config.registry import GlueRegistry
from connector.config.registry_login import logged_in
from sinks.errors import ConfigurationError, RegistryUnreachable

_SECONDS = 15
_ATTEMPTS = 3
_CONTEXT = re.compile(r"subjects?[/=](:\.[^:]*:)")
"""A subject's context, in a path that names the subject."""


Texts: TypeAlias = tuple[str, ...]
"""A schema as JSON text, after those that it refers to."""


class Schemas(Protocol):
    """Where the schemas of a topic's records are. Its methods raise RegistryUnreachable and ConfigurationError."""

    header: int
    """The number of bytes before the value."""

    def of(self, header: bytes) -> Texts | None:
        """The schema that this header names. None: there is none, or it can't be used."""
        ...

    def versions(self, topic: str) -> Sequence[Texts]:
        """Those of the topic, oldest first."""
        ...

    def former(self, topic: str) -> Sequence[Texts]:
        """Those that the topic has had as well, and those of its own subject if the file names another one."""
        ...


def schemas_of(registry: RegistryOptions, part: str) -> Schemas:
    """Those of a registry. ``part``: key or value."""
    return OfConfluent(registry, part) if isinstance(registry, ConfluentRegistry) else OfGlue(registry)


class OfFile:
    """One schema, which no record names."""

    header = 0

    def __init__(self, schema: Texts) -> None:
        self._schema = schema

    def of(self, header: bytes) -> Texts | None:  # noqa: ARG002
        """See ``Schemas.of``."""
        return self._schema

    def versions(self, topic: str) -> Sequence[Texts]:  # noqa: ARG002
        """See ``Schemas.versions``."""
        return [self._schema]

    def former(self, topic: str) -> Sequence[Texts]:
        """See ``Schemas.former``."""
        return self.versions(topic)


class OfConfluent:
    """A registry with Confluent's API: a zero byte, then the ID in four bytes."""

    header = 5

    def __init__(self, options: ConfluentRegistry, part: str, kind: str = "AVRO") -> None:
        """``part``: key or value. ``kind``: of its schemas those of this type, AVRO or JSON."""
        self._options, self._part, self._kind = options, part, kind
        self._session = logged_in(options)

    def of(self, header: bytes) -> Texts | None:
        """See ``Schemas.of``."""
        if len(header) != self.header or header[0] != 0:
            return None
        path, subject = f"schemas/ids/{int.from_bytes(header[1:], 'big')}", self._options.subject or ""
        return self._texts(f"{path}?subject={quote(subject, safe='')}" if subject.startswith(":.") else path)

    def versions(self, topic: str) -> Sequence[Texts]:
        """See ``Schemas.versions``."""
        return self._versions(self._options.subject or f"{topic}-{self._part}")

    def former(self, topic: str) -> Sequence[Texts]:
        """See ``Schemas.former``."""
        own, named = f"{topic}-{self._part}", self._options.subject
        context = re.match(r":\.[^:]*:", named or "")
        subjects = {named or own, (context[0] if context else "") + own}
        return [each for subject in sorted(subjects) for each in self._versions(subject, "?deleted=true")]

    def _versions(self, subject: str, which: str = "") -> Sequence[Texts]:
        path = f"subjects/{quote(subject, safe='')}/versions"
        numbers = self._get(path + which)
        found = (self._texts(f"{path}/{int(number)}{which}") for number in sorted(numbers or ()))
        return [each for each in found if each is not None]

    def _texts(self, path: str, depth: int = 0) -> Texts | None:
        answer = self._get(path)
        if not isinstance(answer, dict) or (answer.get("schemaType") or "AVRO") != self._kind or depth > 50:
            return None
        if self._kind == "JSON":  # which refers to others only where it gives no columns
            return (str(answer["schema"]),)
        texts: list[str] = []
        for each in answer.get("references") or ():
            inner = self._texts(referred(each, path), depth + 1)
            if inner is None:
                return None
            texts += [text for text in inner if text not in texts]
        return (*texts, str(answer["schema"]))

    def _get(self, path: str) -> Any:
        """What is there. None: nothing, or nothing that can be read."""
        import requests

        said = ""
        for _ in range(_ATTEMPTS):
            answered = False
            for url in self._options.url:  # where one has nothing, another may be ahead of it
                try:
                    answer = self._session.get(f"{url}/{path}", timeout=_SECONDS)
                except requests.RequestException as error:
                    said = f"{url}: {type(error).__name__}"
                    continue
                if answer.status_code in (401, 403):
                    raise ConfigurationError(
                        f"The schema registry at {url} refuses access (HTTP status {answer.status_code}).",
                        hint="Check registry.username and registry.password, or registry.token, and their permissions.",
                    )
                if answer.status_code == 200:
                    try:
                        return answer.json()
                    except (ValueError, RecursionError):
                        return None
                answered |= answer.status_code < 500 and answer.status_code not in (408, 429)
                said = f"{url}: HTTP status {answer.status_code}"
            if answered:
                return None
        raise RegistryUnreachable(
            f"The schema registry gave no answer to GET /{path} ({said}).",
            hint="Check that registry.url is right and reachable from this machine. Then verify again.",
        )


def referred(reference: Mapping[str, Any], path: str) -> str:
    """The path of a schema that the one at another path refers to: in the same context, if it names none."""
    subject = str(reference["subject"])
    if not subject.startswith(":.") and (context := _CONTEXT.search(unquote(path))):
        subject = context[1] + subject
    return f"subjects/{quote(subject, safe='')}/versions/{int(reference['version'])}"


class OfGlue:
    """AWS Glue's registry: the bytes 3 and 0, then the 16 of a UUID."""

    header = 18

    def __init__(self, registry: GlueRegistry) -> None:
        """Credentials come by boto3's own chain."""
        import boto3

        options = self._options = registry.glue
        session = boto3.session.Session(region_name=options.region)
        self._client: Any = session.client("glue", endpoint_url=options.endpoint)

    def of(self, header: bytes) -> Texts | None:
        """See ``Schemas.of``."""
        if len(header) != self.header or header[:2] != b"\x03\x00":
            return None
        return self._texts(SchemaVersionId=str(UUID(bytes=header[2:])))

    def versions(self, topic: str) -> Sequence[Texts]:
        """See ``Schemas.versions``."""
        return self._versions(self._options.schema_ or topic)

    def former(self, topic: str) -> Sequence[Texts]:
        """See ``Schemas.former``."""
        return [each for name in {self._options.schema_ or topic, topic} for each in self._versions(name)]

    def _versions(self, schema: str) -> Sequence[Texts]:
        name = {"RegistryName": self._options.registry, "SchemaName": schema}
        newest = self._ask("get_schema", SchemaId=name)
        numbers = range(1, int(newest["LatestSchemaVersion"]) + 1) if newest else ()
        found = (self._texts(SchemaId=name, SchemaVersionNumber={"VersionNumber": number}) for number in numbers)
        return [each for each in found if each is not None]

    def _texts(self, **which: object) -> Texts | None:
        answer = self._ask("get_schema_version", **which)
        return (answer["SchemaDefinition"],) if answer and answer.get("DataFormat") == "AVRO" else None

    def _ask(self, method: str, **what: object) -> Any:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return getattr(self._client, method)(**what)
        except ClientError as error:
            if error.response["Error"]["Code"] == "EntityNotFoundException":
                return None
            raise ConfigurationError(
                f"AWS Glue's schema registry refuses an answer: {error.response['Error']['Code']}.",
                hint="Reading it needs glue:GetSchema and glue:GetSchemaVersion. Credentials come by AWS's own chain.",
            ) from None
        except BotoCoreError as error:
            raise RegistryUnreachable(
                f"AWS Glue's schema registry gave no answer: {error}.",
                hint="Check registry.glue.region, and that this machine can reach AWS. Then verify again.",
            ) from None
