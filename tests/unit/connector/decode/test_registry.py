"""The registries: Confluent's REST API from a small server of ours, AWS Glue's on moto."""

import json
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import boto3
import pytest
from golden_files import assert_told
from moto import mock_aws
from pydantic import SecretStr
from registry import RegistryServer, registry_server

from connector.audit.registries import OfConfluent
from connector.config.registry import ConfluentRegistry, GlueOptions
from connector.decode.avro_schema import AvroSchema
from connector.decode.registry import AVRO, JSON
from connector.decode.registry.confluent import Confluent
from connector.decode.registry.glue import Glue
from connector.decode.registry.registry import Registry
from connector.decode.registry.wire_format import ConfluentWire, GlueWire
from sinks.errors import ConfigurationError, LakelockError, RegistryUnreachable, UnknownSchema, UnusableSchema

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


def confluent(*urls: str, attempts: int = 3, **options: Any) -> Confluent[AvroSchema]:
    return Confluent(ConfluentRegistry(url=urls, **options), AVRO, attempts=attempts, wait=lambda _: 0.0)


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
    with pytest.raises(UnusableSchema, match=r"PROTOBUF, not Avro\.") as caught:
        confluent(server.url).schema("20")
    assert "format: protobuf" in caught.value.hint


def test_json_schemas_are_had_from_a_registry_for_them_and_no_others(server: RegistryServer) -> None:
    order = {"type": "object", "properties": {"id": {"type": "integer"}}}
    server.register("o-value", 31, order, "JSON")
    server.register("o-value", 32, "string")
    server.register("o-value", 33, {**order, "properties": {"id": {"type": "string"}}}, "JSON")
    # What it refers to isn't asked for: such a schema gives no columns, and its records need none.
    server.answers["/schemas/ids/34"] = {
        "schema": "{}", "schemaType": "JSON", "references": [{"name": "x", "subject": "gone", "version": 1}]
    }  # fmt: skip
    registry = Confluent(ConfluentRegistry(url=(server.url,)), JSON, attempts=1)
    assert registry.latest("o", "value").schema.columns == "`id` STRING"
    assert list(registry.known("o", "value")) == ["31", "33"]
    assert registry.schema("31").schema.columns == "`id` BIGINT"
    assert registry.schema("34").id == "34"
    with pytest.raises(UnusableSchema, match=r"32 in .* is of type AVRO, not JSON Schema") as caught:
        registry.schema("32")
    assert "format: avro" in caught.value.hint
    with pytest.raises(UnusableSchema, match=r"31 in .* is of type JSON, not Avro") as caught:
        confluent(server.url).schema("31")
    assert "format: json" in caught.value.hint


def test_the_auditor_asks_for_json_schemas_with_requests_of_its_own(server: RegistryServer) -> None:
    first, second = ({"type": "object", "properties": {"id": {"type": kind}}} for kind in ("integer", "string"))
    server.register("o-key", 31, first, "JSON")
    server.register("o-key", 32, "string")
    server.register("o-key", 33, second, "JSON")
    schemas = OfConfluent(ConfluentRegistry(url=(server.url,)), "key", "JSON")
    assert schemas.versions("o") == [(json.dumps(first),), (json.dumps(second),)]
    assert schemas.of(b"\0\0\0\0\x1f") == (json.dumps(first),)
    for header in (b"\0\0\0\0\x20", b"\0\0\0\0\x63", b"\1\0\0\0\x1f", b"\0\0\0\x1f"):
        assert schemas.of(header) is None
    assert OfConfluent(ConfluentRegistry(url=(server.url,)), "key").versions("o") == [('"string"',)]


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


def test_confluents_header() -> None:
    right = ConfluentWire().header("7") + b"{}"
    assert ConfluentWire.body_of(right) == b"{}"
    assert ConfluentWire.body_of(right[:5]) == b""
    for wrong in (None, b"", right[:4], b"\1" + right[1:], b'{"id": 1}'):
        assert ConfluentWire.body_of(wrong) is None


def test_the_next_url_is_asked_where_one_does_not_answer(server: RegistryServer) -> None:
    registry = confluent(nobody(), server.url, attempts=1)
    assert registry.schema("7").id == "7"
    assert registry.latest("t", "value").id == "9"


@pytest.mark.parametrize("down", [False, True])
def test_a_node_that_lags_behind_is_believed_only_if_no_other_has_the_schema(
    server: RegistryServer, down: bool
) -> None:
    with registry_server() as behind:
        urls = (*((nobody(),) if down else ()), behind.url, server.url)
        registry = confluent(*urls, attempts=1)
        assert (registry.schema("7").id, registry.latest("t", "value").id) == ("7", "9")
        assert list(registry.known("t", "value")) == ["7", "9"]
        with pytest.raises(UnknownSchema, match="no such schema"):
            registry.schema("8")
        assert [path for path in server.asked if path.endswith("/8")] == ["/schemas/ids/8"]
        of_audit = OfConfluent(ConfluentRegistry(url=urls), "value")
        assert of_audit.of(ConfluentWire().header("7")) == ('"int"',)
        assert of_audit.of(ConfluentWire().header("8")) is None
        behind.answers["/schemas/ids/8"] = LONG
        assert registry.schema("8").schema.root == "long"
        assert of_audit.of(ConfluentWire().header("8")) == ('"long"',)


def test_ids_and_references_are_of_the_subjects_context(server: RegistryServer) -> None:
    """The default context has others with the same ids and names."""
    twin = {"id": 11, "schema": '"string"'}
    city = {"id": 3, "schema": '{"type": "enum", "name": "City", "symbols": ["DR"], "aliases": ["x"]}'}
    other = {**CITY, "references": [{"name": "x", "subject": "far", "version": 2}]}
    server.answers = {
        "/schemas/ids/11": twin, "/subjects/city/versions/1": CITY, "/schemas/ids/11?subject=orders-value": twin,
        "/schemas/ids/11?subject=%3A.dr%3Aorders-value": ORDER, "/subjects/%3A.dr%3Acity/versions/1": city,
        "/subjects/%3A.dr%3Aorders-value/versions": [1], "/subjects/%3A.dr%3Aorders-value/versions/1": ORDER,
        "/subjects/%3A.dr%3Aorders-value/versions/latest": ORDER,
        # To another context, and on within that one.
        "/schemas/ids/12?subject=%3A.dr%3Aorders-value": {
            **ORDER, "references": [{"name": "City", "subject": ":.eu:city", "version": 1}]
        },
        "/subjects/%3A.eu%3Acity/versions/1": other, "/subjects/%3A.eu%3Afar/versions/2": INT,
    }  # fmt: skip
    options = ConfluentRegistry(url=(server.url,), subject=":.dr:orders-value")
    registry = Confluent(options, AVRO, attempts=1)
    (known,) = registry.known("t", "value").values()
    for found in (registry.schema("11"), registry.latest("t", "value"), known):
        assert found.schema.root["fields"][0]["type"]["symbols"] == ["DR"]
    assert registry.schema("12").schema.root["fields"][0]["type"]["symbols"] == ["A"]
    of_audit = OfConfluent(options, "value")
    assert of_audit.of(ConfluentWire().header("11")) == (city["schema"], ORDER["schema"])
    assert of_audit.versions("t") == [(city["schema"], ORDER["schema"])]
    assert of_audit.of(ConfluentWire().header("12")) == (INT["schema"], CITY["schema"], ORDER["schema"])
    assert all("%3A." in path for path in server.asked)
    assert confluent(server.url, subject="orders-value").schema("11").schema.root == "string"


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


QUESTIONS: dict[str, Callable[[Registry], object]] = {
    "/schemas/ids/11": lambda registry: registry.schema("11"),
    "/subjects/t-value/versions": lambda registry: registry.known("t", "value"),
    "/subjects/t-value/versions/latest": lambda registry: registry.latest("t", "value"),
    "/subjects/city/versions/1": lambda registry: registry.schema("11"),
}
"""One of each kind, by its path. The last one is asked for because another schema refers to it."""
ANYTHING = (None, True, 5, -1, 1.5, "x", [], [5], {}, {"id": 5}, [None])
DEEP = b"[" * 10_000 + b"]" * 10_000


def spoiled(answer: Any) -> Iterator[Any]:
    """Something else in its place, and in the place of each of its parts; and the answer without each of its fields."""
    yield from ANYTHING
    if isinstance(answer, dict):
        for name in answer:
            yield {each: value for each, value in answer.items() if each != name}
        for name, value in answer.items():
            yield from ({**answer, name: other} for other in spoiled(value))
    elif isinstance(answer, list):
        for at, item in enumerate(answer):
            yield from ([*answer[:at], other, *answer[at + 1 :]] for other in spoiled(item))


def refusal(ask: Callable[[Any], object], registry: Registry) -> LakelockError | None:
    """None: it answers all the same. Any other exception gets out."""
    try:
        ask(registry)
    except LakelockError as error:
        return error
    return None


@pytest.mark.parametrize("path", QUESTIONS)
def test_a_broken_answer_is_an_error_that_names_it(path: str, server: RegistryServer) -> None:
    right = server.answers["/subjects/t-value/versions/latest"] = {**ORDER, "schemaType": "AVRO"}
    right = right if path.endswith("latest") else server.answers[path]
    refused = 0
    for body in [*spoiled(right), DEEP, b'{"schema": ' + DEEP + b"}", b'{"schema": 1' + b"0" * 5000 + b"}", b"no JSON"]:
        server.answers[path] = body
        server.asked.clear()
        error = refusal(QUESTIONS[path], confluent(server.url))
        if error is not None:
            assert any(asked in error.message for asked in server.asked), error.message
            assert server.url in error.message
            assert error.hint
            refused += 1
    # Only a few are as good as the right one: without its `schemaType` and such.
    assert refused > 10


def test_what_is_said_of_each_broken_answer(server: RegistryServer) -> None:
    told: dict[str, str] = {}
    for body in spoiled(server.answers["/schemas/ids/11"]):
        server.answers["/schemas/ids/11"] = body
        if error := refusal(QUESTIONS["/schemas/ids/11"], confluent(server.url)):
            told.setdefault(error.message, json.dumps(body))
    text = "\n\n".join(f"{body}\n{message}" for message, body in told.items()) + "\n"
    assert_told("broken_answers_of_a_registry", text, url=server.url)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (None, "it is null, not an object"),
        ([1], "it is a list, not an object"),
        ({"id": 7}, "it has no 'schema'"),
        ({"schema": '"int"'}, "it has no 'id'"),
        ({"id": "7", "schema": '"int"'}, "its 'id' is text, not a whole number"),
        ({"id": True, "schema": '"int"'}, "its 'id' is true or false, not a whole number"),
        ({"id": 2**32, "schema": '"int"'}, "its 'id' is 4294967296, which isn't a whole number from 0 to 4294967295"),
        ({"id": 7, "schema": 5}, "its 'schema' is a whole number, not text"),
        ({"id": 7, "schema": '"int"', "references": 5}, "its 'references' is a whole number, not a list"),
        (
            {"id": 7, "schema": '"int"', "references": [{"name": "City"}]},
            "latest can't be used: it has no 'subject'",
        ),
        (DEEP, "it is nested too deeply"),
    ],
)
def test_the_error_says_what_is_wrong_with_the_answer(answer: Any, why: str, server: RegistryServer) -> None:
    server.answers["/subjects/t-value/versions/latest"] = answer
    with pytest.raises(UnusableSchema, match=re.escape(why)) as caught:
        confluent(server.url).latest("t", "value")
    of = f"he schema registry's answer to GET {server.url}/subjects/t-value/versions/latest can't be used: "
    assert of in caught.value.message
    assert "Ask the registry for the same yourself" in caught.value.hint


def test_a_schema_that_is_not_avro_is_named_by_where_it_is(server: RegistryServer) -> None:
    server.answers["/schemas/ids/7"] = {"schema": '{"type": "record", "name": "R", "fields": 5}'}
    with pytest.raises(
        UnusableSchema, match='/schemas/ids/7 is malformed: the fields of "R" are 5, which isn\'t a list'
    ):
        confluent(server.url).schema("7")


def refers(subject: str, schema_id: int = 1) -> Mapping[str, Any]:
    return {"id": schema_id, "schema": '"int"', "references": [{"name": "R", "subject": subject, "version": 1}]}


def test_references_that_lead_back_are_found(server: RegistryServer) -> None:
    server.answers |= {f"/subjects/{name}/versions/1": refers(to) for name, to in (("a", "b"), ("b", "a"))}
    server.answers["/schemas/ids/7"] = refers("a")
    with pytest.raises(
        UnusableSchema, match="its references lead back to it: schemas/ids/7 -> subjects/a/versions/1 -> "
    ):
        confluent(server.url).schema("7")
    assert len(server.asked) == 3


def test_a_chain_of_references_has_an_end(server: RegistryServer) -> None:
    server.answers |= {f"/subjects/{at}/versions/1": refers(str(at + 1)) for at in range(2000)}
    server.answers["/schemas/ids/7"] = refers("0")
    with pytest.raises(UnusableSchema, match="more than 50 schemas refer to each other"):
        confluent(server.url).schema("7")


def test_a_schema_that_many_refer_to_is_read_once(server: RegistryServer) -> None:
    for at in range(30):
        twice = [{"name": "R", "subject": str(at + 1), "version": 1}] * 2
        server.answers[f"/subjects/{at}/versions/1"] = {"id": 1, "schema": '"int"', "references": twice}
    server.answers |= {"/subjects/30/versions/1": INT, "/schemas/ids/7": refers("0")}
    assert confluent(server.url).schema("7").schema.root == "int"
    assert len(server.asked) == 32


def test_a_reference_that_is_not_there_is_said_to_be_one(server: RegistryServer) -> None:
    server.answers["/schemas/ids/7"] = refers("gone")
    with pytest.raises(UnusableSchema, match="/schemas/ids/7 can't be used: it refers to a schema that isn't there"):
        confluent(server.url).schema("7")


@pytest.mark.parametrize("path", ["1", "2"])
def test_a_broken_old_version_is_left_out(path: str, server: RegistryServer) -> None:
    right = server.answers[f"/subjects/t-value/versions/{path}"]
    others = {"7", "9"} - {str(right["id"])}
    for body in [*spoiled(right), DEEP]:
        server.answers[f"/subjects/t-value/versions/{path}"] = body
        registry = confluent(server.url)
        assert others <= registry.known("t", "value").keys()
        assert registry.latest("t", "value").id == "9"


def test_a_version_that_the_registry_refuses_is_left_out_too(server: RegistryServer) -> None:
    refused = {"error_code": 42202, "message": "no"}
    server.statuses["/subjects/t-value/versions/1"] = 422
    server.answers["/subjects/t-value/versions/1"] = refused
    assert confluent(server.url).known("t", "value").keys() == {"9"}


def test_the_versions_of_a_subject_are_asked_for_again_but_each_only_once(server: RegistryServer) -> None:
    registry = confluent(server.url)
    registry.known("t", "value")
    server.answers["/subjects/t-value/versions"] = [1, 2, 4, 5]
    server.answers["/subjects/t-value/versions/5"] = {"id": 14, "schema": '"double"'}
    server.asked.clear()
    assert registry.known("t", "value").keys() == {"7", "9", "14"}
    assert server.asked == ["/subjects/t-value/versions", "/subjects/t-value/versions/5"]


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


@pytest.fixture
def broken_glue(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], Glue]:
    """Glue behind an endpoint that gives these answers, whatever it is asked."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")

    def opened(server: RegistryServer) -> Glue:
        return Glue(GlueOptions(registry="shop", region="us-east-1", endpoint=server.url), attempts=1)

    return opened


OF_GLUE = {
    "LatestSchemaVersion": 1,
    "SchemaVersionId": str(uuid.UUID(int=1)),
    "DataFormat": "AVRO",
    "SchemaDefinition": '"int"',
}


def test_a_broken_answer_of_glue_is_an_error_that_names_it(
    server: RegistryServer, broken_glue: Callable[[Any], Glue]
) -> None:
    server.answers["/"] = OF_GLUE
    assert broken_glue(server).latest("t", "value").schema.root == "int"
    registry, refused = broken_glue(server), 0
    for number, body in enumerate([*spoiled(OF_GLUE), DEEP]):
        server.answers["/"] = body
        # Each is asked for once: what it has answered, it isn't asked again.
        schema_id, topic = str(uuid.UUID(int=number)), f"topic-{number}"
        questions: Mapping[str, Callable[[Any], object]] = {
            schema_id: lambda registry, schema_id=schema_id: registry.schema(schema_id),
            topic: lambda registry, topic=topic: registry.latest(topic, "value"),
        }
        for named, ask in questions.items():
            error = refusal(ask, registry)
            if error is not None:
                assert "'shop'" in error.message, error.message
                assert named in error.message
                assert error.hint
                refused += 1
    assert refused > 20


def test_a_glue_that_does_not_answer_is_unreachable() -> None:
    registry = Glue(GlueOptions(region="us-east-1", endpoint=nobody()), attempts=1)
    with pytest.raises(RegistryUnreachable) as caught:
        registry.schema(str(uuid.uuid4()))
    assert caught.value.transient


def test_headers_are_those_of_the_producers_serializers() -> None:
    assert ConfluentWire().header("258") == bytes([0, 0, 0, 1, 2])
    name = uuid.uuid4()
    assert GlueWire().header(str(name)) == b"\x03\x00" + name.bytes
