"""Reads the pipeline file and checks all of it before a run touches anything. Every error names its option.

``pipeline``, ``source`` and ``sinks`` hold the options, ``kinds`` the types that they are made of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import yaml

from connector.config.all_faults import checked
from connector.config.fault_texts import shown
from connector.config.faults import Fault, Moved, configuration_error
from connector.config.formats import (
    AvroFormat,
    BytesFormat,
    DebeziumFormat,
    FormatOptions,
    JsonFormat,
    ProtobufFormat,
    RowsFormat,
    StringFormat,
)
from connector.config.half_pairs import half_pairs
from connector.config.kafka_key import with_kafkas_key
from connector.config.kinds import OWN_COLUMNS, REFERENCE
from connector.config.marks import Marks
from connector.config.nearest import by_a_slip
from connector.config.operations import MetricsOptions, NotifyOptions, Pushgateway
from connector.config.overrides import overridden
from connector.config.pacing import EveryRecords, Interval
from connector.config.pipeline import PipelineConfig
from connector.config.places import DeadLetters, DeltaPlace, DeltaSink, tables_of_letters
from connector.config.references import References
from connector.config.registry import ConfluentRegistry, RegistryOptions
from connector.config.relative_paths import beside_file, tables_beside_file
from connector.config.route import OTHER, Route
from connector.config.routed_sinks import from_route, with_route
from connector.config.several import Several
from connector.config.sink_by_sink import EVENTUAL, SinkBySink
from connector.config.sink_by_sink import OPTION as TOGETHER
from connector.config.sinks import (
    CustomSink,
    DeltaAggregateSink,
    DeltaAppendSink,
    DeltaHistorySink,
    DeltaUpsertSink,
    Fold,
    KafkaTopicSink,
    KeyedSink,
    S3ObjectsSink,
    Window,
)
from connector.config.source import FromOffsets, FromTimestamp, Source, Start, TopicPattern, Translated
from connector.config.steps import Step
from connector.config.table_per_topic import OPTION as TABLES
from connector.config.table_per_topic import TablePerTopic, Template
from connector.config.yaml_text import read_yaml
from sinks.delta.table import COORDINATES
from sinks.errors import ConfigurationError

__all__ = [
    "COORDINATES",
    "OTHER",
    "OWN_COLUMNS",
    "AvroFormat",
    "BytesFormat",
    "ConfluentRegistry",
    "CustomSink",
    "DeadLetters",
    "DebeziumFormat",
    "DeltaAggregateSink",
    "DeltaAppendSink",
    "DeltaHistorySink",
    "DeltaPlace",
    "DeltaSink",
    "DeltaUpsertSink",
    "EveryRecords",
    "Fold",
    "FormatOptions",
    "FromOffsets",
    "FromTimestamp",
    "Interval",
    "JsonFormat",
    "KafkaTopicSink",
    "KeyedSink",
    "MetricsOptions",
    "NotifyOptions",
    "PipelineConfig",
    "ProtobufFormat",
    "Pushgateway",
    "RegistryOptions",
    "Route",
    "RowsFormat",
    "S3ObjectsSink",
    "Several",
    "SinkBySink",
    "Source",
    "Start",
    "Step",
    "StringFormat",
    "TablePerTopic",
    "Template",
    "TopicPattern",
    "Translated",
    "Window",
    "checked_elsewhere",
    "file_and_part",
    "has_several",
    "is_meant",
    "load",
    "load_any",
    "loads",
    "parse",
    "peek",
    "tables_of_letters",
]


def load(path: str | Path, overrides: Sequence[str] = (), *, reads_tables: bool = False) -> PipelineConfig:
    """Read and check a pipeline file. Relative paths belong to its folder.

    ``overrides`` are options to change, such as ``sinks[0].path=s3a://lake/flights``. Of a file that has several
    pipelines, ``FILE#PART`` is one: that of a topic (``tables``), or of a sink (``together: eventual``).
    ``reads_tables``: the tables alone are read, so that variables and files of Kafka and of a registry may be missing
    here. Raises one ConfigurationError that lists all errors of the file.
    """
    found = load_any(path, overrides, reads_tables=reads_tables)
    if isinstance(found, Several):
        raise ConfigurationError(
            f"{path} has a pipeline of each {found.of}, and this is for one.",
            hint=f"Name one: '{path}#PART'. All of them: lakelock run, check, status, verify, maintain.",
        )
    return found


def file_and_part(path: str | Path) -> tuple[str, str]:
    """What ``FILE#PART`` names; no part if there is a file of this very name."""
    file, _, part = str(path).partition("#") if not Path(path).exists() else (str(path), "", "")
    return file, part


def load_any(
    path: str | Path, overrides: Sequence[str] = (), *, reads_tables: bool = False
) -> PipelineConfig | Template | SinkBySink:
    """The same of any pipeline file: its pipeline, or what makes one of each topic or sink."""
    file, part = file_and_part(path)
    folder = str(Path(file).absolute().parent)
    document, marks = _document(Path(file), overrides)
    parsed = partial(_parsed, folder=folder, marks=marks, reads_tables=reads_tables)
    kind = _several(document)
    if kind is not None:
        several = kind(file, document, parsed, marks)  # type: ignore[arg-type]
        return several.named(part) if part else several
    if part:
        raise ConfigurationError(f"{file} has one pipeline, and no part {part!r}.")
    return parsed(document, file)


def _several(document: object) -> type[Template | SinkBySink] | None:
    """What makes several pipelines of the document; None: it is one."""
    if not isinstance(document, Mapping):
        return None
    if TABLES in document:
        return Template
    return SinkBySink if document.get(TOGETHER) == EVENTUAL else None


def peek(path: Path) -> Mapping[object, object] | None:
    """The options of a file, unchecked: empty if it isn't a mapping, None if it can't be read. Reading it says why."""
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, OSError, UnicodeDecodeError, RecursionError):
        return None
    return document if isinstance(document, Mapping) else {}


def is_meant(path: Path) -> bool:
    """Whether a YAML file is meant as a pipeline file, also if it is broken or empty: reading it says what is wrong.

    A file of comments alone isn't, nor one of another tool, which has few options of a pipeline file.
    """
    try:
        text = path.read_text(encoding="utf-8")
        document = yaml.safe_load(text)
    except (yaml.YAMLError, OSError, UnicodeDecodeError, RecursionError):
        return True
    if document is None:
        return not text.strip()
    if isinstance(document, list):
        return any(isinstance(each, Mapping) and _is_meant(each) for each in document)
    return _is_meant(document)


def _is_meant(document: object) -> bool:
    if not isinstance(document, Mapping):
        return isinstance(document, str)  # as of a file that was cut off in its first line
    names = {TABLES, *PipelineConfig.model_fields}
    ours = [name for name in map(str, document) if name in names or by_a_slip(name, names) is not None]
    return "source" in document or 2 * len(ours) > len(document)


def has_several(path: Path) -> bool:
    """Whether the file has several pipelines. False if it can't be read."""
    return _several(peek(path)) is not None


def checked_elsewhere(path: str | Path, overrides: Sequence[str] = ()) -> str:
    """Check the file of a pipeline that will run on another machine, and return the pipeline's name.

    Environment variables and files that are missing here are not an error, and the options that refer to them are not
    checked. Of a file with several pipelines, each is checked; with ``tables``, those of the topics that the file
    names, as Kafka isn't asked for others. Raises ConfigurationError.
    """
    document, marks = _document(Path(path), overrides)
    if not isinstance(document, dict):
        raise _no_options(document, str(path))
    check, kind = partial(_known_here, marks=marks), _several(document)
    if kind is None:
        with suppress(_KnownElsewhere):
            check(document, str(path))
    else:
        several = kind(str(path), document, check, marks)
        for part in several.known_parts:
            with suppress(_KnownElsewhere):
                several.pipeline(part)
    name = document.get("name")
    return name if isinstance(name, str) and not REFERENCE.search(name) else Path(path).stem


class _KnownElsewhere(Exception):
    """Raised for options that are right as far as they are known here, which is too little to make a pipeline."""


def _known_here(
    options: Mapping[str, object],
    origin: str,
    moved: Moved = lambda path: path,
    faults: Sequence[Fault] = (),
    *,
    marks: Marks,
) -> PipelineConfig:
    """The pipeline, if this machine knows all of its values. Raises _KnownElsewhere if not, or ConfigurationError."""
    references = References()
    resolved = {key: references.resolve(value, (key,)) for key, value in options.items()}
    references.forgive()
    config, found = _checked(resolved, references, "", moved)
    if faults or found:
        raise configuration_error(origin, [*faults, *found], marks, references.texts)
    if config is None:
        raise _KnownElsewhere
    return config


def loads(text: str, *, folder: str | Path = "") -> PipelineConfig:
    """Check the text of a pipeline file. Relative paths belong to ``folder``, by default to the working directory.

    Raises ConfigurationError.
    """
    document, marks = read_yaml(text, "pipeline")
    return _parsed(document, "pipeline", folder=str(Path(folder).absolute()), marks=marks)


def _parsed(
    document: object,
    origin: str,
    moved: Moved = lambda path: path,
    faults: Sequence[Fault] = (),
    *,
    folder: str,
    marks: Marks,
    reads_tables: bool = False,
) -> PipelineConfig:
    """The pipeline of a file. ``faults``: those that were found already, to be told with the others."""
    parsed = _pipeline(document, origin, folder, marks, moved, faults, reads_tables=reads_tables)
    config, elsewhere = tables_beside_file(parsed, folder, moved)
    if elsewhere:
        raise configuration_error(origin, elsewhere, marks)
    config.remember(document)
    return config


def options_in(path: Path, overrides: Sequence[str] = ()) -> object:
    """The options of a pipeline file as it has them, unchecked. Raises ConfigurationError."""
    return _document(path, overrides)[0]


def _document(path: Path, overrides: Sequence[str]) -> tuple[object, Marks]:
    """What a file holds, with the overrides, and where."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(
            f"The pipeline file {str(path)!r} can't be read: {error.strerror}.",
            hint="Give the path of a file; `lakelock init FILE` writes one to start from.",
        ) from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"The pipeline file {str(path)!r} isn't UTF-8 text.") from None
    document, marks = read_yaml(text, str(path))
    if isinstance(document, dict):
        document = overridden(document, overrides, marks, origin=str(path))
    return document, marks


def parse(
    document: object,
    *,
    origin: str = "pipeline",
    folder: str = "",
    marks: Marks | None = None,
    moved: Moved = lambda path: path,
) -> PipelineConfig:
    """Check a pipeline given as a mapping, and return it.

    ``origin`` names the pipeline in errors. Relative paths of files to read belong to ``folder``, by default to the
    working directory. ``marks`` has the lines of a file for errors, and ``moved`` says where the file has an option of
    this pipeline. Raises one ConfigurationError that lists all errors.
    """
    return _pipeline(document, origin, folder, marks, moved)


def _pipeline(
    document: object,
    origin: str,
    folder: str,
    marks: Marks | None,
    moved: Moved,
    faults: Sequence[Fault] = (),
    *,
    reads_tables: bool = False,
) -> PipelineConfig:
    if not isinstance(document, Mapping):
        raise _no_options(document, origin)
    kind = _several(document)
    if kind is not None:
        raise ConfigurationError(
            f"{origin}: {kind.makes}, and this is for one pipeline.",
            hint="Write it into a file, and run the file: `lakelock run FILE`, or connector.run_all([FILE]).",
        )
    halves = [*half_pairs(document)]
    if halves:
        raise configuration_error(origin, halves, marks)
    references = References(folder)
    resolved = {key: references.resolve(value, (key,)) for key, value in document.items()}
    if reads_tables:
        references.forgive(lambda path: path[:2] == ("source", "kafka") or "registry" in path)
    config, found = _checked(resolved, references, folder, moved)
    if config is None or faults or found:
        raise configuration_error(origin, [*faults, *(found or references.forgiven)], marks, references.texts)
    config.remember(document)
    return config


def _no_options(document: object, origin: str) -> ConfigurationError:
    return ConfigurationError(
        f"{origin}: a pipeline file is a mapping of options (`name: ...`), this one is "
        f"{'empty' if document is None else shown(document)}.",
        hint="`lakelock init FILE` writes one to start from.",
    )


def _checked(
    options: Mapping[str, object], references: References, folder: str, moved: Moved = lambda path: path
) -> tuple[PipelineConfig | None, list[Fault]]:
    """The pipeline with these options, or None and all faults."""
    options = beside_file(options, folder)
    with_sinks, of_route = with_route(options)
    with_key, of_key = with_kafkas_key(with_sinks, options)
    config, found = checked(
        with_key,
        PipelineConfig,
        moved=lambda path: moved(from_route(options, path)),
        beside=(TABLES,),
    )
    early = [replace(fault, path=moved(fault.path)) for fault in (*references.faults, *of_route, *of_key)]
    return config, [*early, *references.without_unknown(found)]
