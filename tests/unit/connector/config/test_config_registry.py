"""The options of a registry, as they come out of a pipeline file."""

from pathlib import Path

import pytest
from pydantic import SecretStr, TypeAdapter, ValidationError

from connector.config import FormatOptions, JsonFormat, parse
from connector.config.references import References
from connector.config.registry import ConfluentRegistry, GlueRegistry, RegistryOptions
from sinks.errors import ConfigurationError

ADAPTER: TypeAdapter[RegistryOptions] = TypeAdapter(RegistryOptions)
FORMAT: TypeAdapter[FormatOptions] = TypeAdapter(FormatOptions)
URL = "https://schemas.example.com:8081"


def read(options: object) -> RegistryOptions:
    references = References()
    resolved = references.resolve({"value": {"registry": options}})
    assert references.faults == []
    assert isinstance(resolved, dict)
    return ADAPTER.validate_python(resolved["value"]["registry"])


def fault(options: object) -> str:
    with pytest.raises(ValidationError) as caught:
        read(options)
    return str(caught.value.errors(include_url=False)[0]["msg"])


def test_a_url_is_enough_and_several_are_tried_in_turn() -> None:
    one = read({"url": URL + "/"})
    assert isinstance(one, ConfluentRegistry)
    assert one.url == (URL,)
    two = read({"url": [URL, "http://b:8081"]})
    assert isinstance(two, ConfluentRegistry)
    assert two.url == (URL, "http://b:8081")


def test_secrets_come_by_reference_and_stay_wrapped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REGISTRY_KEY", "key-id")
    (tmp_path / "secret").write_text("s3cret\n")
    options = read({"url": URL, "username": "${env:REGISTRY_KEY}", "password": f"${{file:{tmp_path}/secret}}"})
    assert isinstance(options, ConfluentRegistry)
    assert (options.username, options.password) == (SecretStr("key-id"), SecretStr("s3cret"))
    assert "s3cret" not in repr(options)
    assert "key-id" not in repr(options)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (
            {"url": URL, "username": "me", "password": "s3cret"},
            "password: a secret must not be written in a pipeline file",
        ),
        ({"url": URL, "token": "s3cret"}, "token: a secret must not be written in a pipeline file"),
        ({"url": "https://me:s3cret@registry"}, "url: a URL must not contain credentials"),
        ({"url": "registry:8081"}, "write a URL as in"),
        ({"url": []}, "at least 1 item"),
        ({"url": URL, "username": "me"}, "give username and password together"),
        ({"url": URL, "ca": "/nowhere/ca.pem"}, "ca: the file /nowhere/ca.pem doesn't exist"),
        ({"url": URL, "user": "me"}, "user: "),
        ({"glue": {"name": "x"}}, "glue.name: "),
        (URL, "write {url: "),
    ],
)
def test_what_is_wrong_is_named_without_the_secret(options: object, why: str) -> None:
    said = fault(options)
    assert why in said
    assert "s3cret" not in said


def test_glues_schemas_are_in_the_default_registry_unless_it_is_named() -> None:
    options = read({"glue": {"region": "eu-central-1", "schema": "orders"}})
    assert isinstance(options, GlueRegistry)
    assert (options.glue.registry, options.glue.schema_) == ("default-registry", "orders")


@pytest.mark.parametrize(
    ("options", "framed"),
    [
        ({"schema": "id INT"}, False),
        ({"schema": "id INT", "wire_format": "confluent"}, True),
        ({"registry": {"url": URL}}, True),
        ({"registry": {"url": URL}, "schema": "inferred"}, True),
    ],
)
def test_json_has_confluents_header_if_the_file_says_so_or_names_a_registry(options: object, framed: bool) -> None:
    format = FORMAT.validate_python({"format": "json", **options})  # type: ignore[dict-item]
    assert isinstance(format, JsonFormat)
    assert format.framed is framed


@pytest.mark.parametrize(
    ("options", "validated"),
    [
        ({"schema_file": "a.json"}, True),
        ({"schema_file": "a.json", "schema": "id INT", "wire_format": "confluent"}, True),
        ({"registry": {"url": URL}, "validate": True}, True),
        ({"registry": {"url": URL}, "validate": False}, False),
        ({"registry": {"url": URL}}, False),
    ],
)
def test_json_is_validated_if_the_file_says_so_or_names_a_schema(options: object, validated: bool) -> None:
    format = FORMAT.validate_python({"format": "json", **options})  # type: ignore[dict-item]
    assert isinstance(format, JsonFormat)
    assert format.validated is validated


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "schema: is missing: write the columns"),
        ({"wire_format": "confluent"}, "schema: is missing: write the columns"),
        ({"schema": "id INT", "wire_format": "glue"}, "Input should be 'confluent'"),
        ({"schema": "id INT", "validate": True}, "validate: is for the JSON Schemas of a registry"),
        ({"schema_file": "a.json", "validate": True}, "validate: is for the JSON Schemas of a registry"),
        ({"schema_file": "a.json", "validate": False}, "By a schema_file all records are validated anyway, so remove"),
        (
            {"schema_file": "a.json", "registry": {"url": URL}},
            "schema_file: is for records whose schema no registry has",
        ),
        ({"schema_file": "a.json", "mode": "permissive"}, "mode: permissive takes what no JSON Schema describes"),
        (
            {"registry": {"url": URL}, "validate": True, "mode": "permissive"},
            "mode: permissive takes what no JSON Schema describes",
        ),
        ({"registry": {"glue": {}}}, "registry: JSON is read with a registry with Confluent's API only"),
    ],
)
def test_json_needs_columns_and_takes_confluents_registries_only(options: dict[str, object], why: str) -> None:
    with pytest.raises(ValidationError) as caught:
        FORMAT.validate_python({"format": "json", **options})
    assert why in str(caught.value)


def test_an_option_for_texts_is_refused_beside_what_has_none() -> None:
    with pytest.raises(ValidationError, match="mode: permissive is for events in JSON, with schema"):
        FORMAT.validate_python({"format": "debezium", "registry": {"url": URL}, "mode": "permissive"})
    FORMAT.validate_python({"format": "debezium", "schema": "id INT", "mode": "permissive"})


@pytest.mark.parametrize("value", [{"format": "string"}, {"format": "avro", "registry": {"url": URL}}])
def test_unmatched_is_about_the_fields_of_json(value: dict[str, object]) -> None:
    options = {
        "name": "p",
        "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "127.0.0.1:9092"}},
        "value": value,
        "sinks": [{"type": "delta_append", "path": "lake/t"}],
        "unmatched": "warn",
    }
    with pytest.raises(ConfigurationError, match=f"not about {value['format']}; remove it"):
        parse(options)
    parse({**options, "key": {"format": "json", "schema": "id INT"}})
