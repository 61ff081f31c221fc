"""Relative paths in a pipeline file belong to its folder: a run finds the same tables from wherever it is started."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from connector.config.places import DeltaPlace
from sinks.errors import ConfigurationError
from sinks.spark.files import absolute

if TYPE_CHECKING:
    from connector.config.pipeline import PipelineConfig

_FILES = (
    ("value", "schema_file"),
    ("value", "registry", "ca"),
    ("key", "schema_file"),
    ("key", "registry", "ca"),
    ("source", "on_recreated_topic", "translated"),
)
"""The options with the path of a file that the driver reads. Executors read Kafka's certificates too, from a working
directory of their own, so those paths stay as they are."""
_Place = TypeVar("_Place")


def beside_file(options: Mapping[str, object], folder: str) -> dict[str, object]:
    """The options of a pipeline file in ``folder``, with absolute paths of the files to read."""
    changed = dict(options)
    for path in _FILES:
        _make_absolute(changed, path, folder)
    return changed


def _make_absolute(options: dict[str, object], path: tuple[str, ...], folder: str) -> None:
    name, *rest = path
    value = options.get(name)
    if isinstance(value, Mapping) and rest:
        options[name] = inner = dict(value)
        _make_absolute(inner, tuple(rest), folder)
    elif isinstance(value, str) and value and not rest:
        options[name] = absolute(value, folder)


def tables_beside_file(config: PipelineConfig, folder: str) -> PipelineConfig:
    """The pipeline with its tables' relative paths in ``folder``.

    Earlier versions took the working directory. Raises ConfigurationError if only that has a table: a run would start
    another one.
    """

    def moved(place: _Place, option: str) -> _Place:
        if not isinstance(place, DeltaPlace):
            return place
        beside = place.beside(folder)
        _refuse_second(place, beside, option)
        return beside

    return config.model_copy(
        update={
            "sinks": tuple(moved(sink, sink.in_file) for sink in config.sinks),
            "coordinator": moved(config.coordinator, "coordinator"),
            "dead_letters": moved(config.dead_letters, "dead_letters"),
        }
    )


def _refuse_second(before: DeltaPlace, now: DeltaPlace, option: str) -> None:
    if before.folder is None or now.folder is None or before.folder == now.folder:
        return
    if _is_table(before.folder) and not _is_table(now.folder):
        raise ConfigurationError(
            f"{option}.path: {before.path!r} is relative to the pipeline file: it is {now.folder}. No table is there. "
            f"But there is one in the working directory, {before.folder}, where earlier versions looked. Nothing was "
            "touched.",
            hint="Write the absolute path of the table that you mean, or move it to the pipeline file.",
        )


def _is_table(folder: str) -> bool:
    return ":" not in folder and Path(folder, "_delta_log").is_dir()
