"""What a pipeline file takes from the place where it runs: variables, secrets, and other files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from connector.config import checked_elsewhere, options_in
from connector.config.kinds import REFERENCE, dotted
from connector.config.relative_paths import is_file
from connector.config.secret_places import holds_secret, in_pipeline
from sinks.errors import ConfigurationError
from sinks.kafka import SECRET

_Path = tuple[str | int, ...]
_PLACES = ("sinks", "route", "tables", "coordinator", "dead_letters")
"""The options that name tables."""


@dataclass
class Needs:
    """What a pipeline file needs beside itself."""

    file: Path
    name: str
    """What the file calls its pipeline, or its pipelines; the file's own name if it leaves that to a variable."""
    variables: list[str] = field(default_factory=list)
    """``${env:NAME}`` that hold no secret."""
    secrets: list[str] = field(default_factory=list)
    """``${env:NAME}`` that hold one."""
    secret_files: list[str] = field(default_factory=list)
    """``${file:/path}``."""
    beside: list[str] = field(default_factory=list)
    """Names of files in the folder of the pipeline file, such as a schema. They go along."""
    tables: list[str] = field(default_factory=list)
    """Absolute paths of tables: folders of a volume that stays."""
    there: list[str] = field(default_factory=list)
    """Absolute paths of files that the place has to have, such as certificates."""
    never_ends: bool = False
    """Whether a run goes on until it is stopped."""
    extras: list[str] = field(default_factory=list)
    """Extras of Lakelock with the libraries that a run or `lakelock verify` needs."""


def needs(file: Path, overrides: Sequence[str] = ()) -> Needs:
    """Check a pipeline file as far as it can be checked here, and find out what it needs. Raises ConfigurationError.

    ``overrides``: options to change, as in ``load``.
    """
    name, options = checked_elsewhere(file, overrides), options_in(file, overrides)
    assert isinstance(options, Mapping)
    found = Needs(file, name, never_ends=_goes_on(options))
    for path, text in _texts(options, ()):
        _note(found, path, text)
    for extra in _extras(options):
        _add(found.extras, extra)
    # A variable that holds a secret somewhere is one everywhere.
    found.variables = [name for name in found.variables if name not in found.secrets]
    return found


def _goes_on(options: Mapping[object, object]) -> bool:
    """Whether a pipeline of the file has an interval: that of one topic is enough."""
    tables = options.get("tables")
    overrides = tables.get("overrides") if isinstance(tables, Mapping) else None
    each = (options, *(overrides.values() if isinstance(overrides, Mapping) else ()))
    return any(isinstance(one, Mapping) and isinstance(one.get("trigger"), Mapping) for one in each)


def _note(found: Needs, path: _Path, text: str) -> None:
    for kind, name in (match.groups() for match in REFERENCE.finditer(text)):
        _add(found.secret_files if kind == "file" else found.secrets if _is_secret(path) else found.variables, name)
    if REFERENCE.match(text):
        return
    option, own = dotted(path), in_pipeline(path)
    if path[0] in _PLACES and path[-1] == "path" and ":" not in text:
        if not Path(text).is_absolute():
            raise ConfigurationError(
                f"{found.file}: {option}: {text!r} is a folder beside the pipeline file, and a job has none.",
                hint="Write the table's URI, as in s3a://lake/flights, or an absolute path of a volume.",
            )
        _add(found.tables, text)
    if own[:2] == ("source", "kafka") and option.endswith(".location") and Path(text).is_absolute():
        _add(found.there, text)
    if is_file(own) and ":" not in text:
        if Path(text).is_absolute():
            _add(found.there, text)
        elif Path(text).name != text or not (found.file.parent / text).is_file():
            raise ConfigurationError(
                f"{found.file}: {option}: {text!r} is no file in the folder of the pipeline file.",
                hint="Put the file there: it goes along. Or write an absolute path that the job will find.",
            )
        else:
            _add(found.beside, text)


def _is_secret(path: _Path) -> bool:
    """Most options of Kafka's clients and of Spark may stand in a job's definition, as bootstrap.servers does."""
    own = in_pipeline(path)
    usual = own[:2] == ("source", "kafka") or own[0] == "spark"
    return bool(SECRET.search(str(path[-1]))) or (holds_secret(path) and not usual)


def _texts(value: object, path: _Path) -> Iterator[tuple[_Path, str]]:
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield from _texts(each, (*path, str(name)))
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _texts(each, (*path, number))
    elif isinstance(value, str) and path:
        yield path, value


def _extras(options: object) -> Iterator[str]:
    if isinstance(options, list):
        for each in options:
            yield from _extras(each)
    if not isinstance(options, Mapping):
        return
    kind = options.get("format")
    if kind == "avro" or (kind == "debezium" and "registry" in options):
        yield "avro"
    if kind == "protobuf":
        yield "protobuf"
    if kind == "json" and (options.get("validate") or "schema_file" in options):
        yield "json-schema"
    if options.get("traces") or options.get("lineage"):
        yield "telemetry"
    for each in options.values():
        yield from _extras(each)


def _add(names: list[str], name: str) -> None:
    if name not in names:
        names.append(name)
