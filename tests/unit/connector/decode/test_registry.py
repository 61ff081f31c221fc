"""The registries: Confluent's REST API from a small server of ours, AWS Glue's on moto."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import boto3
import pytest
from moto import mock_aws
from pydantic import SecretStr
from registry import RegistryServer, registry_server
from tenacity import wait_none

from connector.config.registry import ConfluentRegistry, GlueOptions
from connector.decode.registry.confluent import Confluent
from connector.decode.registry.glue import Glue
from connector.decode.registry.wire_format import ConfluentWire, GlueWire
from sinks.errors import ConfigurationError, RegistryUnreachable, UnknownSchema, UnusableSchema

INT = {"id": 7, "schema": '"int"'}
LONG = {"id": 9, "schema": '"long"'}
CITY = {"id": 3, "schema": '{"type": "enum", "name": "City", "symbols": ["A"]}'}
ORDER = {
    "id": 11,
    "schema": '{"type": "record", "name": "Order", "fields": [{"name": "to", "type": "City"}]}',
    "references": [{"name": "City", "subject": "city", "version": 1}],
}
ANSWERS: dict[str, Any] = {
    "/schemas/ids/7": INT,
    "/schemas/ids/11": ORDER,
    "/schemas/ids/20": {"schema": 'syntax = "proto3";', "schemaType": "PROTOBUF"},
    "/subjects/t-value/versions": [1, 2, 4],
    "/subjects/t-value/versions/1": INT,
    "/subjects/t-value/versions/2": LONG,
    "/subjects/t-value/versions/4": {"id": 12, "schema": "{}"},
    "/subjects/t-value/versions/latest": LONG,
    "/subjects/city/versions/1": CITY,
    "/subjects/a%2Fb%20c/versions/latest": INT,
}


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with registry_server(ANSWERS) as started:
        yield started


def nobody() -> str:
    """A URL at which nothing listens."""
    unused = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    unused.server_close()
    return f"http://127.0.0.1:{unused.server_port}"


def confluent(*urls: str, attempts: int = 3, **options: Any) -> Confluent:
    return Confluent(ConfluentRegistry(url=urls, **options), attempts=attempts, wait=wait_none())


def test_a_schema_is_asked_for_once(server: RegistryServer) -> None:
    registry = confluent(server.url)
    assert [registry.schema("7").schema.root for _ in range(2)] == ["int", "int"]
    assert server.asked == ["/schemas/ids/7"]
    assert server.authorizations == {None}


def test_all_versions_of_the_topics_subject_are_known_but_those_of_no_use(server: RegistryServer) -> None:
    registry = confluent(server.url)
    assert {key: each.schema.root for key, each in registry.known("t", "value").items()} == {"7": "int", "9": "long"}
    assert registry.latest("t", "value").id == "9"
    assert registry.known("t", "key") == {}


def test_a_subject_may_be_given_and_hold_any_character(server: RegistryServer) -> None:
    assert confluent(server.url, subject="a/b c").latest("t", "value").id == "7"


def test_references_are_filled_in(server: RegistryServer) -> None:
    field = confluent(server.url).schema("11").schema.root["fields"][0]
    assert field["type"] == {"type": "enum", "name": "City", "namespace": "", "symbols": ["A"]}


def test_an_id_or_subject_that_the_registry_does_not_have_is_unknown(server: RegistryServer) -> None:
    with pytest.raises(UnknownSchema, match="no such schema"):
        confluent(server.url).schema("8")
    with pytest.raises(UnknownSchema, match="no such subject") as caught:
        confluent(server.url).latest("t", "key")
    assert "registry.subject" in caught.value.hint
    assert len(server.asked) == 2


def test_a_schema_that_is_not_avro_is_refused(server: RegistryServer) -> None:
    with pytest.raises(UnusableSchema, match=r"PROTOBUF, not Avro\. Protobuf isn't supported yet"):
        confluent(server.url).schema("20")


def test_an_error_of_the_registrys_own_is_asked_again(server: RegistryServer) -> None:
    troubles = iter([500, 503, None])
    server.trouble = lambda: next(troubles)
    assert confluent(server.url).schema("7").id == "7"
    assert len(server.asked) == 3


def test_one_that_never_answers_well_is_unreachable(server: RegistryServer) -> None:
    server.trouble = lambda: 500
    with pytest.raises(RegistryUnreachable, match="HTTP status 500") as caught:
        confluent(server.url).schema("7")
    assert caught.value.transient
    assert len(server.asked) == 3
    with pytest.raises(RegistryUnreachable, match="refused"):
        confluent(nobody()).schema("7")


def test_the_next_url_is_asked_where_one_does_not_answer(server: RegistryServer) -> None:
    registry = confluent(nobody(), server.url, attempts=1)
    assert registry.schema("7").id == "7"
    assert registry.latest("t", "value").id == "9"


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        ({"username": "me", "password": SecretStr("pä:ss")}, "Basic bWU6cMOkOnNz"),
        ({"token": SecretStr("secret-token")}, "Bearer secret-token"),
    ],
)
def test_credentials_are_sent_and_never_shown(server: RegistryServer, options: dict[str, Any], sent: str) -> None:
    registry = confluent(server.url, **options)
    registry.schema("7")
    assert server.authorizations == {sent}
    server.trouble = lambda: 401
    with pytest.raises(ConfigurationError, match="refuses access") as caught:
        registry.schema("11")
    for secret in ("pä:ss", "secret-token"):
        assert secret not in f"{caught.value} {caught.value.hint} {vars(caught.value)} {registry!r}"
        assert secret not in repr(ConfluentRegistry(url=server.url, **options))


def test_what_is_no_registry_is_named(server: RegistryServer) -> None:
    server.trouble = lambda: 404
    with pytest.raises(ConfigurationError, match="isn't a schema registry"):
        confluent(server.url).schema("7")


@contextmanager
def glue() -> Iterator[tuple[Any, Glue]]:
    with mock_aws():
        client = boto3.client("glue", region_name="us-east-1")
        client.create_registry(RegistryName="shop")
        yield client, Glue(GlueOptions(registry="shop", region="us-east-1"))


def registered(client: Any, text: str, name: str = "t", kind: str = "AVRO") -> str:
    made = client.create_schema(
        RegistryId={"RegistryName": "shop"},
        SchemaName=name,
        DataFormat=kind,
        Compatibility="NONE",
        SchemaDefinition=text,
    )
    return str(made["SchemaVersionId"])


R = '{"type": "record", "name": "R", "fields": []}'
WITH_A = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}'


def test_glues_schemas_are_found_by_id_and_by_topic() -> None:
    with glue() as (client, registry):
        first = registered(client, R)
        second = client.register_schema_version(
            SchemaId={"RegistryName": "shop", "SchemaName": "t"}, SchemaDefinition=WITH_A
        )["SchemaVersionId"]
        assert registry.known("t", "value").keys() == {first, second}
        assert registry.latest("t", "value").id == second
        assert registry.schema(first).schema.root["fields"] == []


def test_what_glue_does_not_have_is_unknown_and_what_is_not_avro_refused() -> None:
    with glue() as (client, registry):
        assert registry.known("t", "value") == {}
        with pytest.raises(UnknownSchema, match="has no schema t"):
            registry.latest("t", "value")
        with pytest.raises(UnknownSchema):
            registry.schema(str(uuid.uuid4()))
        of_json = registered(client, '{"$schema": "http://json-schema.org/draft-07/schema#"}', "j", "JSON")
        with pytest.raises(UnusableSchema, match="JSON, not Avro"):
            registry.schema(of_json)


def test_a_glue_that_does_not_answer_is_unreachable() -> None:
    registry = Glue(GlueOptions(region="us-east-1", endpoint=nobody()), attempts=1)
    with pytest.raises(RegistryUnreachable) as caught:
        registry.schema(str(uuid.uuid4()))
    assert caught.value.transient


def test_headers_are_those_of_the_producers_serializers() -> None:
    assert ConfluentWire().header("258") == bytes([0, 0, 0, 1, 2])
    name = uuid.uuid4()
    assert GlueWire().header(str(name)) == b"\x03\x00" + name.bytes
