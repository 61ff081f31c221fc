"""Relative paths belong to the pipeline file, wherever a run is started."""

import os
from pathlib import Path

import pytest
import yaml

from connector.config import AvroFormat, DeltaPlace, ProtobufFormat, load, parse
from sinks.errors import ConfigurationError

FILE = {
    "name": "p",
    "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "127.0.0.1:9092"}},
    "value": {"format": "avro", "schema_file": "schemas/p.avsc"},
    "sinks": [{"type": "delta_append", "path": "lake/p"}],
    "on_bad_record": "dead_letter",
    "dead_letters": {"path": "lake/dead"},
    "coordinator": {"path": "/var/lake/log"},
}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pipeline file that isn't in the working directory."""
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    file = tmp_path / "pipelines" / "p.yaml"
    file.write_text(yaml.safe_dump(FILE))
    return file


def test_paths_in_a_file_are_relative_to_it(file: Path) -> None:
    config = load(file)
    sink, letters, log = config.sinks[0], config.dead_letters, config.coordinator
    assert isinstance(sink, DeltaPlace)
    assert letters is not None
    assert log is not None
    assert sink.folder == sink.address == str(file.parent / "lake" / "p")
    assert letters.folder == str(file.parent / "lake" / "dead")
    assert log.folder == "/var/lake/log"
    assert isinstance(config.value, AvroFormat)
    assert config.value.schema_file == str(file.parent / "schemas" / "p.avsc")
    protobuf = {"format": "protobuf", "descriptor_file": "schemas/p.desc", "message": "M"}
    file.write_text(yaml.safe_dump({**FILE, "value": protobuf, "key": protobuf}))
    config = load(file)
    for format in (config.value, config.key):
        assert isinstance(format, ProtobufFormat)
        assert format.descriptor_file == str(file.parent / "schemas" / "p.desc")


def test_so_are_they_if_the_file_is_named_by_a_relative_path(file: Path) -> None:
    sink = load(os.path.relpath(file)).sinks[0]
    assert isinstance(sink, DeltaPlace)
    assert sink.folder == str(file.parent / "lake" / "p")


def test_what_the_log_and_the_letters_call_a_sink_stays_as_it_is_written(file: Path) -> None:
    assert load(file).sinks[0].place == "lake/p"


def test_secrets_in_files_are_found_beside_the_file_too(file: Path) -> None:
    (file.parent / "password").write_text("swordfish\n")
    file.write_text(yaml.safe_dump(FILE | {"spark": {"spark.password": "${file:password}"}}))
    assert load(file).spark_options["spark.password"] == "swordfish"


def test_uris_and_names_stay(file: Path) -> None:
    file.write_text(yaml.safe_dump(FILE | {"sinks": [{"type": "delta_append", "path": "s3a://lake/p"}]}))
    sink = load(file).sinks[0]
    assert isinstance(sink, DeltaPlace)
    assert sink.folder == "s3a://lake/p"


def test_options_without_a_file_belong_to_the_working_directory(tmp_path: Path, file: Path) -> None:
    sink = parse(yaml.safe_load(file.read_text())).sinks[0]
    assert isinstance(sink, DeltaPlace)
    assert sink.folder == str(tmp_path / "elsewhere" / "lake" / "p")


@pytest.mark.parametrize("option", ["sinks[0]", "dead_letters"])
def test_a_table_in_the_working_directory_is_not_silently_started_again_elsewhere(file: Path, option: str) -> None:
    written = {"sinks[0]": "lake/p", "dead_letters": "lake/dead"}[option]
    Path(written, "_delta_log").mkdir(parents=True)
    with pytest.raises(ConfigurationError) as caught:
        load(file)
    assert f"{option}.path: '{written}' is relative to the pipeline file" in str(caught.value)
    assert str(Path(written).absolute()) in str(caught.value)
    (file.parent / written / "_delta_log").mkdir(parents=True)
    load(file)  # The file's own table is there: it is the one that counts.
