"""Relative paths in a pipeline file belong to its folder: a run finds the same tables from wherever it is started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path as File
from typing import TYPE_CHECKING, Any, TypeVar

from connector.config.faults import Fault
from connector.config.flows import FLOWS
from connector.config.kinds import dotted
from connector.config.marks import Path
from connector.config.places import DeltaPlace
from sinks.spark.files import absolute

if TYPE_CHECKING:
    from connector.config.faults import Moved
    from connector.config.pipeline import PipelineConfig

FILES: tuple[tuple[str, ...], ...] = (
    ("value", "schema_file"),
    ("value", "descriptor_file"),
    ("value", "registry", "ca"),
    ("key", "schema_file"),
    ("key", "descriptor_file"),
    ("key", "registry", "ca"),
    *(
        (FLOWS, "*", part, *option)
        for part in ("value", "key")
        for option in (("schema_file",), ("descriptor_file",), ("registry", "ca"))
    ),
    ("route", "overrides", "*", "value", "schema_file"),
    ("source", "on_recreated_topic", "translated"),
)
"""The options with the path of a file that the driver reads; * is any name or number. Executors read Kafka's
certificates too, from a working directory of their own, so those paths stay as they are."""
_Place = TypeVar("_Place")


def beside_file(options: Mapping[str, object], folder: str) -> dict[str, object]:
    """The options of a pipeline file in ``folder``, with absolute paths of the files to read."""
    changed = dict(options)
    for path in FILES:
        _make_absolute(changed, path, folder)
    return changed


def _make_absolute(options: dict[Any, object], path: tuple[str, ...], folder: str) -> None:
    name, *rest = path
    for each in list(options) if name == "*" else [name]:
        value = options.get(each)
        if isinstance(value, Mapping | list | tuple) and rest:
            of_list = not isinstance(value, Mapping)
            inner: dict[Any, object] = dict(enumerate(value)) if of_list else dict(value)
            _make_absolute(inner, tuple(rest), folder)
            options[each] = list(inner.values()) if of_list else inner
        elif isinstance(value, str) and value and not rest:
            options[each] = absolute(value, folder)


def is_file(path: Sequence[object]) -> bool:
    """Whether the option at this path is one of ``FILES``."""
    same = (zip(path, each, strict=True) for each in FILES if len(each) == len(path))
    return any(all(name in (part, "*") for part, name in pairs) for pairs in same)


def tables_beside_file(config: PipelineConfig, folder: str, moved: Moved) -> tuple[PipelineConfig, list[Fault]]:
    """The pipeline with its tables' relative paths in ``folder``, and a fault of each table that is only elsewhere.

    Earlier versions took the working directory. If only that has a table, a run would start another one. ``moved`` says
    where the file has an option of this pipeline.
    """
    faults: list[Fault] = []

    def beside(place: _Place, *option: str | int) -> _Place:
        if not isinstance(place, DeltaPlace):
            return place
        now = place.beside(folder)
        if _is_elsewhere(place, now):
            path = moved((*option, "path"))
            faults.append(
                Fault(
                    path,
                    f"{dotted(path)}: {place.path!r} is relative to the pipeline file: it is {now.folder}. No table is "
                    f"there. But there is one in the working directory, {place.folder}, where earlier versions looked. "
                    "Write the absolute path of the table that you mean, or move it to the pipeline file",
                )
            )
        return now

    options: list[Path] = [("sinks", index) for index in range(len(config.sinks))]
    if config.route is not None:
        options = [tuple(sink.in_file.split(".")) for sink in config.sinks]
    changed = {
        "sinks": tuple(beside(sink, *option) for sink, option in zip(config.sinks, options, strict=True)),
        "coordinator": beside(config.coordinator, "coordinator"),
        "dead_letters": beside(config.dead_letters, "dead_letters"),
    }
    return config.model_copy(update=changed), faults


def _is_elsewhere(before: DeltaPlace, now: DeltaPlace) -> bool:
    """Whether only the earlier folder has a table."""
    if before.folder is None or now.folder is None or before.folder == now.folder:
        return False
    return _is_table(before.folder) and not _is_table(now.folder)


def _is_table(folder: str) -> bool:
    return ":" not in folder and File(folder, "_delta_log").is_dir()
