"""Reads the pipeline file and checks all of it before a run touches anything. Every error names its option.

``pipeline``, ``source`` and ``sinks`` hold the options, ``kinds`` the types that they are made of.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, SecretStr, ValidationError

from connector.config.formats import (
    FORMATS,
    AvroFormat,
    BytesFormat,
    DebeziumFormat,
    FormatOptions,
    JsonFormat,
    RowsFormat,
    StringFormat,
)
from connector.config.kafka_key import with_kafkas_key
from connector.config.kinds import OWN_COLUMNS, dotted
from connector.config.operations import Maintenance, MetricsOptions, NotifyOptions, Pushgateway
from connector.config.overrides import overridden
from connector.config.pacing import EpochBound, EveryRecords, Interval, Retry
from connector.config.pipeline import PipelineConfig
from connector.config.places import DeadLetters, DeltaPlace, DeltaSink
from connector.config.registry import REFERENCED_SECRETS, ConfluentRegistry, RegistryOptions
from connector.config.relative_paths import beside_file, tables_beside_file
from connector.config.route import OPTION as ROUTE
from connector.config.route import OTHER, Route
from connector.config.several import Several
from connector.config.sink_by_sink import EVENTUAL, SinkBySink
from connector.config.sink_by_sink import OPTION as TOGETHER
from connector.config.sinks import (
    SINK_TYPES,
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
from connector.config.table_per_topic import OPTION as TABLES
from connector.config.table_per_topic import TablePerTopic, Template
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
    "Pushgateway",
    "RegistryOptions",
    "Route",
    "RowsFormat",
    "S3ObjectsSink",
    "Several",
    "SinkBySink",
    "Source",
    "Start",
    "StringFormat",
    "TablePerTopic",
    "Template",
    "TopicPattern",
    "Translated",
    "Window",
    "checked_elsewhere",
    "has_several",
    "load",
    "load_any",
    "options_in",
    "parse",
    "peek",
]


def load(path: str | Path, overrides: Sequence[str] = ()) -> PipelineConfig:
    """Read and check a pipeline file. Relative paths belong to its folder.

    ``overrides`` are options to change, such as ``sinks[0].path=s3a://lake/flights``. Of a file that has several
    pipelines, ``FILE#PART`` is one: that of a topic (``tables``), or of a sink (``together: eventual``). Raises one
    ConfigurationError that lists all errors of the file.
    """
    found = load_any(path, overrides)
    if isinstance(found, Several):
        raise ConfigurationError(
            f"{path} has a pipeline of each {found.of}, and this is for one.",
            hint=f"Name one: '{path}#PART'. All of them: lakelock run, check, status, verify, maintain.",
        )
    return found


def load_any(path: str | Path, overrides: Sequence[str] = ()) -> PipelineConfig | Template | SinkBySink:
    """The same of any pipeline file: its pipeline, or what makes one of each topic or sink."""
    file, _, part = str(path).partition("#") if not Path(path).exists() else (str(path), "", "")
    folder = str(Path(file).absolute().parent)

    def parsed(document: object, origin: str) -> PipelineConfig:
        return tables_beside_file(parse(document, origin=origin, folder=folder), folder)

    document = options_in(Path(file), overrides)
    kind = _several(document)
    if kind is not None:
        several = kind(file, document, parsed)  # type: ignore[arg-type]
        return several.pipeline(part) if part else several
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


def has_several(path: Path) -> bool:
    """Whether the file has several pipelines. False if it can't be read."""
    return _several(peek(path)) is not None


def checked_elsewhere(path: str | Path, overrides: Sequence[str] = ()) -> str:
    """Check the file of a pipeline that will run on another machine, and return the pipeline's name.

    Environment variables and files that are missing here are not an error, and the options that refer to them are not
    checked. Raises ConfigurationError.
    """
    document = options_in(Path(path), overrides)
    if not isinstance(document, dict):
        return parse(document, origin=str(path)).name
    nowhere: list[str] = []
    resolved = _resolve(document, (), nowhere, "1")
    unknown = [each.partition(": ")[0] for each in nowhere]
    try:
        PipelineConfig.model_validate(_with_route(resolved if isinstance(resolved, dict) else {}, str(path)))
    except ValidationError as error:
        faults = _faults(error, document)
        # `trigger: interval: ...` is a fault of trigger.interval.
        faults = [fault for fault in faults if not any(option in fault.replace(": ", ".") for option in unknown)]
        if faults:
            raise _configuration_error(str(path), faults) from None
    return Path(path).stem if "name" in unknown else str(document["name"])


def options_in(path: Path, overrides: Sequence[str] = ()) -> object:
    """The options of a pipeline file as it has them, unchecked. Raises ConfigurationError."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(
            f"The pipeline file {str(path)!r} can't be read: {error.strerror}.",
            hint="Give the path of a file; `lakelock init FILE` writes one to start from.",
        ) from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"The pipeline file {str(path)!r} isn't UTF-8 text.") from None
    try:
        # A subclass of SafeLoader: no YAML tag can create an object.
        document = yaml.load(text, Loader=_UniqueKeys)
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error)
        raise ConfigurationError(f"{path}{where}: not valid YAML: {problem}.") from None
    if isinstance(document, dict):
        document = overridden(document, overrides, origin=str(path))
    return document


def parse(document: object, *, origin: str = "pipeline", folder: str = "") -> PipelineConfig:
    """Check a pipeline given as a mapping, and return it.

    ``origin`` names the pipeline in errors. Relative paths of files to read belong to ``folder``, by default to the
    working directory. Raises one ConfigurationError that lists all errors.
    """
    if not isinstance(document, Mapping):
        raise ConfigurationError(
            f"{origin}: a pipeline file is a mapping of options (`name: ...`), this one is "
            f"{'empty' if document is None else f'a {type(document).__name__}'}.",
            hint="`lakelock init FILE` writes one to start from.",
        )
    kind = _several(document)
    if kind is not None:
        raise ConfigurationError(
            f"{origin}: {kind.makes}, and this is for one pipeline.",
            hint="Write it into a file, and run the file: `lakelock run FILE`, or connector.run_all([FILE]).",
        )
    faults: list[str] = []
    resolved = {key: _resolve(value, (key,), faults, folder=folder) for key, value in document.items()}
    if faults:
        raise _configuration_error(origin, faults)
    try:
        options = with_kafkas_key(_with_route(resolved, origin), origin)
        return PipelineConfig.model_validate(beside_file(options, folder))
    except ValidationError as error:
        raise _configuration_error(origin, _faults(error, document)) from None


def _with_route(options: Mapping[str, object], origin: str) -> Mapping[str, object]:
    """The options with the sinks of ``route``: that of each value, as the file has it, and that of the other records.

    Raises ConfigurationError.
    """
    if ROUTE not in options:
        return options
    if "sinks" in options:
        raise ConfigurationError(f"{origin}: give either sinks or {ROUTE}, not both.")
    try:
        route = Route.model_validate(options[ROUTE])
    except ValidationError:
        return {**options, "sinks": _NO_FAULT}  # the route's own faults are told with those of the whole file
    return {**options, ROUTE: route, "sinks": route.template()}


_NO_FAULT = [{"type": "delta_append", "path": "lake"}]


def _faults(error: ValidationError, document: Mapping[Any, Any]) -> list[str]:
    """A line for each fault of a pipeline file."""
    lines = [_fault(dict(fault)) for fault in error.errors(include_url=False)]
    if ROUTE in document:
        names = {"sinks[0]": f"{ROUTE}.sink", "sinks[1]": f"{ROUTE}.other"}
        for name, option in names.items():
            lines = [option + line.removeprefix(name) if line.startswith(name) else line for line in lines]
    return lines


def _configuration_error(origin: str, faults: list[str]) -> ConfigurationError:
    listed = "\n".join(f"  - {fault}" for fault in faults)
    many = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
    return ConfigurationError(f"{origin} has {many}; nothing was touched:\n{listed}")


class _UniqueKeys(yaml.SafeLoader):
    """Refuses an option that is given twice. By default YAML keeps the last of two equal keys without a word.

    A key such as ``on`` is text: YAML takes it for true.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:bool":
                key_node.tag = "tag:yaml.org,2002:str"
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str | int) and key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the option {key!r} is given twice", key_node.start_mark
                )
            if isinstance(key, str | int):
                seen.add(key)
        return super().construct_mapping(node, deep)


_REFERENCE = re.compile(r"\$\{(env|file):([^}]*)\}")


def _resolve(
    value: object, path: tuple[str | int, ...], faults: list[str], nowhere: str = "", *, folder: str = ""
) -> object:
    """Replace ``${env:NAME}`` and ``${file:/path}``. A value that may be a secret is wrapped.

    ``nowhere`` stands in for a missing variable or file, which is added to ``faults``. A relative path belongs to
    ``folder``.
    """
    if isinstance(value, Mapping):
        return {key: _resolve(item, (*path, key), faults, nowhere, folder=folder) for key, item in value.items()}
    if isinstance(value, list):
        return [_resolve(item, (*path, index), faults, nowhere, folder=folder) for index, item in enumerate(value)]
    if not isinstance(value, str) or not _REFERENCE.search(value):
        return value

    def look_up(match: re.Match[str]) -> str:
        kind, name = match[1], match[2]
        if kind == "env":
            if name not in os.environ:
                faults.append(f"{dotted(path)}: the environment variable {name} isn't set")
            return os.environ.get(name, nowhere)
        try:
            return Path(folder, name).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            faults.append(f"{dotted(path)}: the file {name} can't be read ({type(error).__name__})")
            return nowhere

    resolved = _REFERENCE.sub(look_up, value)
    of_service = ("registry" in path or path[:2] == ("metrics", "push")) and path[-1] in REFERENCED_SECRETS
    of_own_class = path[:1] == ("sinks",) and path[2:3] == ("options",)
    of_webhook = path == ("notify", "url")
    may_be_secret = path[:2] == ("source", "kafka") or path[:1] == ("spark",)
    may_be_secret = may_be_secret or of_service or of_own_class or of_webhook
    return SecretStr(resolved) if may_be_secret else resolved


FORMATTED = ("value", "key")
_OPTION = re.compile(r"[a-z_]+(\.[a-z_]+)*: ")


def _fault(fault: dict[str, Any]) -> str:
    """One line for one error: the option, what is wrong, and what to write instead."""
    loc: tuple[str | int, ...] = fault["loc"]
    formats = FORMATS if loc and loc[0] in FORMATTED else ()
    noise = {*SINK_TYPES, *formats, "str", "is-instance[SecretStr]", "[key]"}
    where, kind = dotted(tuple(part for part in loc if part not in noise)), fault["type"]
    if kind == "extra_forbidden":
        known = _siblings(loc)
        near = difflib.get_close_matches(str(loc[-1]), known, n=1, cutoff=0.5)
        return f"{where}: unknown option, " + (f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}")
    if kind == "missing":
        return f"{where}: is missing"
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        if loc[0] in FORMATTED:
            given = fault.get("ctx", {}).get("tag")
            return f"{where}.format: is one of {', '.join(map(str, FORMATS))}{f', not {given!r}' if given else ''}"
        return f"{where}: type is one of {', '.join(map(str, SINK_TYPES))}"
    if kind == "literal_error":
        return f"{where}: is one of {fault['ctx']['expected'].replace(chr(39), '')}, not {fault['input']!r}"
    if kind == "string_pattern_mismatch":
        return f"{where}: {fault['input']!r} may only have lower-case letters, digits, _ and -"
    if kind in ("too_short", "string_too_short"):
        return f"{where}: is empty"
    message = str(fault["msg"]).removeprefix("Value error, ")
    if not where:  # a fault of several options begins with the name of the first one
        return message
    return f"{where}{'.' if _OPTION.match(message) else ': '}{message}"


def _siblings(loc: tuple[str | int, ...]) -> list[str]:
    """The names of all options beside the one at ``loc``."""
    models: dict[tuple[str, ...], type[BaseModel]] = {
        (): PipelineConfig,
        ("source",): Source,
        ("epoch",): EpochBound,
        ("coordinator",): DeltaPlace,
        ("dead_letters",): DeadLetters,
        ("retry",): Retry,
        ("metrics",): MetricsOptions,
        ("metrics", "push"): Pushgateway,
        ("notify",): NotifyOptions,
        ("maintain",): Maintenance,
        (ROUTE,): Route,
    }
    parent = tuple(str(part) for part in loc[:-1])
    tagged = {"sinks": SINK_TYPES, **dict.fromkeys(FORMATTED, FORMATS)}.get(parent[0] if parent else "")
    model = tagged.get(loc[-2]) if tagged else models.get(parent)
    return sorted(field.alias or name for name, field in model.model_fields.items()) if model else []
