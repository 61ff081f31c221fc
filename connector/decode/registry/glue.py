"""AWS Glue's schema registry, by boto3. AWS's serializer gives key and value schemas alike the topic's name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from connector.config.registry import GlueOptions
from connector.decode.avro_schema import AvroSchema, parse
from connector.decode.registry.answers import Answer
from connector.decode.registry.registry import Part, WriterSchema
from connector.decode.registry.wire_format import GlueWire
from sinks.errors import ConfigurationError, RegistryUnreachable, UnknownSchema, UnusableSchema

_ATTEMPTS = 8


class Glue:
    """AWS Glue's schema registry. See ``Registry``."""

    wire = GlueWire()

    def __init__(self, options: GlueOptions, *, attempts: int = _ATTEMPTS) -> None:
        """``attempts`` is the number for each request, including the first. boto3 waits with exponential backoff."""
        import boto3
        from botocore.config import Config

        config = Config(
            region_name=options.region,
            retries={"mode": "standard", "total_max_attempts": attempts},
            connect_timeout=5,
            read_timeout=15,
        )
        self._options = options
        self._client: Any = boto3.session.Session().client("glue", endpoint_url=options.endpoint, config=config)
        self._answers: dict[tuple[str, str], Answer] = {}

    def schema(self, schema_id: str) -> WriterSchema[AvroSchema]:
        """See ``Registry.schema``."""
        return _read(self._ask("get_schema_version", f"schema {schema_id}", SchemaVersionId=schema_id))

    def known(self, topic: str, part: Part) -> Mapping[str, WriterSchema[AvroSchema]]:  # noqa: ARG002
        """See ``Registry.known``."""
        return {each.id: each for each in self._versions(self._name_of(topic))}

    def former(self, topic: str, part: Part) -> Sequence[WriterSchema[AvroSchema]]:  # noqa: ARG002
        """See ``Registry.former``."""
        return [each for name in dict.fromkeys((self._name_of(topic), topic)) for each in self._versions(name)]

    def _versions(self, name: str) -> Sequence[WriterSchema[AvroSchema]]:
        try:
            newest = self._newest(name, again=True)
        except UnknownSchema:
            return []
        found = []
        for number in range(1, newest + 1):
            try:
                found.append(self._version(name, number))
            except (UnknownSchema, UnusableSchema):
                # Deleted, or not usable: a record with this schema will be reported.
                continue
        return found

    def latest(self, topic: str, part: Part) -> WriterSchema[AvroSchema]:  # noqa: ARG002
        """See ``Registry.latest``."""
        name = self._name_of(topic)
        return self._version(name, self._newest(name))

    def _newest(self, name: str, *, again: bool = False) -> int:
        """The number of the newest version. ``again``: of now, even if Glue was asked before."""
        answer = self._ask("get_schema", f"schema {name}", again=again, SchemaId=self._id(name))
        return answer.number("LatestSchemaVersion")

    def _version(self, name: str, number: int) -> WriterSchema[AvroSchema]:
        what = f"version {number} of the schema {name}"
        return _read(
            self._ask(
                "get_schema_version", what, SchemaId=self._id(name), SchemaVersionNumber={"VersionNumber": number}
            )
        )

    def _name_of(self, topic: str) -> str:
        return self._options.schema_ or topic

    def _id(self, name: str) -> dict[str, str]:
        return {"RegistryName": self._options.registry, "SchemaName": name}

    def _ask(self, method: str, what: str, *, again: bool = False, **parameters: object) -> Answer:
        from botocore.exceptions import (
            BotoCoreError,
            ClientError,
            ConnectionError,
            HTTPClientError,
            NoCredentialsError,
            ReadTimeoutError,
        )

        question = method, repr(parameters)
        of = f"the answer of AWS Glue's schema registry {self._options.registry!r} for the {what}"
        try:
            if again or question not in self._answers:
                self._answers[question] = Answer(of, getattr(self._client, method)(**parameters))
            return self._answers[question]
        except ClientError as error:
            code, status = error.response["Error"]["Code"], error.response["ResponseMetadata"]["HTTPStatusCode"]
            if code == "EntityNotFoundException":
                raise UnknownSchema(
                    f"AWS Glue's schema registry {self._options.registry!r} has no {what}.",
                    hint="Check registry.glue.registry, schema and region. By default the schema has the topic's name.",
                ) from None
            if status >= 500 or "Throttling" in code:
                raise _unreachable(code) from None
            raise ConfigurationError(
                f"AWS Glue's schema registry refuses to show the {what}: {code}.",
                hint="Reading it needs glue:GetSchema and glue:GetSchemaVersion. Credentials come by AWS's own chain.",
            ) from None
        except NoCredentialsError:
            raise ConfigurationError(
                "AWS Glue's schema registry can't be asked: there are no AWS credentials.",
                hint="Give credentials as for AWS's own tools, e.g. in the environment, or as an instance role.",
            ) from None
        except (ConnectionError, HTTPClientError, ReadTimeoutError) as error:
            raise _unreachable(type(error).__name__) from None
        except BotoCoreError as error:
            raise ConfigurationError(f"AWS Glue's schema registry can't be asked: {error}.") from None
        except Exception as error:
            # botocore doesn't expect that an answer has another shape than AWS's own: it fails as it happens to.
            raise Answer(of, None).unusable(f"botocore can't read it ({type(error).__name__}: {error})") from None


def _unreachable(reason: str) -> RegistryUnreachable:
    return RegistryUnreachable(
        f"AWS Glue's schema registry gave no answer ({reason}). Nothing of this epoch was written.",
        hint="Check registry.glue.region, and that this machine can reach AWS. Then start the run again.",
    )


def _read(answer: Answer) -> WriterSchema[AvroSchema]:
    schema_id, kind = answer.text("SchemaVersionId"), answer.text("DataFormat")
    try:
        # As the header of a record gives it.
        schema_id = str(UUID(schema_id))
    except ValueError:
        raise answer.unusable(f"its 'SchemaVersionId' is {schema_id!r}, which isn't a UUID") from None
    if kind != "AVRO":
        raise answer.of_another_language(schema_id, kind, "AVRO")
    return WriterSchema(schema_id, parse(answer.text("SchemaDefinition"), of=f"The Avro schema in {answer.of}"))
