"""The pipeline of a replay: the same options, with new tables in a folder."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

from connector.config import DeltaPlace, DeltaSink, FromTimestamp, PipelineConfig, Translated
from connector.config.apart import nested, tables_of
from connector.config.placeholders import digest
from connector.config.route import Route
from connector.engine.inferred import of_table
from connector.operations.session import given_or_new
from sinks.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from connector.config.sink_by_sink import PartOf
    from connector.config.sinks import SinkOptions

LOG, OTHER = "_coordinator", "_other"
"""Folders that no table of a value or of a sink can have."""
_PLACE = ("path", "table")


def into_new_tables(config: PipelineConfig, into: str, since: datetime | None) -> PipelineConfig:
    """The pipeline with one new table at the path ``into``; if it has several, with all of them in that folder.

    With several tables, the coordinator log is new, too; one table has none, also if the file names one.
    Raises ConfigurationError for a sink that isn't a table, and for a place that a table of the pipeline has, or would
    lose files by.
    """
    start = FromTimestamp(timestamp=since) if since is not None else "earliest"
    moved = {"on_recreated_topic": "fail"} if isinstance(config.source.on_recreated_topic, Translated) else {}
    changed: dict[str, Any] = {
        "source": config.source.model_copy(update={"start": start, **moved}), "delivery": "transactional",
        "trigger": "available_now",
        # Metrics and messages are about the pipeline itself, which may be running.
        "metrics": None, "notify": None,
    }  # fmt: skip
    anew = config.model_copy(update={**changed, **_new_places(config, into)})
    several = config.sinks[0].in_several
    folders = [place.folder for place in tables_of(anew).values() if place is not anew.dead_letters]
    others = several.others([folder for folder in folders if folder]) if several is not None else ()
    refuse_old_places({config.name: anew}, [config, *others])
    return anew


def of_the_old_schema(
    old: PipelineConfig, new: PipelineConfig, spark: SparkSession | None, *, debug: bool = False
) -> PipelineConfig:
    """``new``, with the schema that was inferred for the old table: the first records that Kafka holds by now may lack
    some of its columns, which would then be ignored. ``spark``: None: an own session."""
    found = None
    if old.inferred is not None:
        # A table that was made by a written schema keeps none.
        with (
            given_or_new(spark, old, f"replay {old.name}", debug=debug, short=True) as own,
            suppress(ConfigurationError),
        ):
            found = of_table(old, own)
    return new.model_copy(update={"value": found.value}) if found is not None else new


def refuse_old_places(new: Mapping[str, PipelineConfig], old: Sequence[PipelineConfig]) -> None:
    """Refuse new tables that lie in the folder of an old one, or around one: the VACUUM of the outer one removes files
    that it doesn't know, which are the inner one's. Raises ConfigurationError.

    ``new``: what the replays make, by name. They write their letters where the old ones are.
    """
    fresh = {
        f"{name} {option}": place.folder
        for name, config in new.items()
        for option, place in tables_of(config).items()
        if place is not config.dead_letters
    }
    stand = {f"{config.name} {option}": place.folder for config in old for option, place in tables_of(config).items()}
    for inner, outer in nested(stand, fresh):
        raise _in_the_way(fresh[inner], "would lie in", stand[outer])
    for inner, outer in nested(fresh, stand):
        raise _in_the_way(fresh[outer], "would lie around", stand[inner])
    taken = {_shape(folder) for folder in stand.values() if folder is not None}
    for folder in fresh.values():
        if folder is not None and _shape(folder) in taken:
            raise ConfigurationError(
                f"`replay` fills new tables, and {folder} is in the pipeline file already. Nothing was written.",
                hint=_BESIDE,
            )


_BESIDE = "Give --into a path beside the pipeline's tables, its log and its dead letters."


def _in_the_way(new: str | None, how: str, old: str | None) -> ConfigurationError:
    return ConfigurationError(
        f"The new table {new} {how} the folder of {old}, which the pipeline file names, and VACUUM removes from a "
        "table's folder what isn't the table's. Nothing was written.",
        hint=_BESIDE,
    )


def _shape(folder: str) -> str:
    """The folder, whatever its placeholder is called."""
    return re.sub(r"\{[^{}/]*\}", "{}", folder.rstrip("/"))


def new_places(config: PipelineConfig, into: str) -> Mapping[str, str]:
    """What to write into the pipeline file, option by option, to go on with the new tables."""
    if not config.two_phase:
        return _of_one(config.sinks[0], config.part_of, into)
    log = {"coordinator.path": f"{into}/{LOG}"}
    if config.route is None:
        return {f"{sink.option('path')}": path for sink, path in _paths(config, into)} | log
    other = {"route.other.path": f"{into}/{OTHER}"} if isinstance(config.route.other, Mapping) else {}
    own = {
        f"route.overrides.{value}.sink.path": f"{into}/{{route}}"
        for value, override in config.route.overrides.items()
        if not override.sink.keys().isdisjoint(_PLACE)
    }
    return {"route.sink.path": f"{into}/{{route}}", **own, **other, **log}


def _of_one(sink: SinkOptions, part_of: PartOf | None, into: str) -> Mapping[str, str]:
    if sink.in_several is None:
        return {"path": into}
    option = sink.in_several.option
    if part_of is None:  # of `tables`, which may have a name for the tables of all topics
        return {f"{option}.path": into} | ({f"{option}.table": "null"} if _is_table(sink) else {})
    # Without it the new place would give the pipeline another name.
    name = {f"{option}.part": part_of.part} if sink.part is None else {}
    return {f"{option}.path": into} | name


def old_tables(config: PipelineConfig) -> Sequence[str]:
    """The options to take out of the file then: a place has a path or a table, and one table needs no log."""
    if not config.two_phase:
        # The log of several sinks, of which one is left: letters that name it are of the old table.
        sink, several = config.sinks[0], config.sinks[0].in_several
        log = ["coordinator"] if config.coordinator is not None and several is None else []
        if several is not None and config.part_of is None:
            return []
        return [*([f"{several.option}.table" if several else "table"] if _is_table(sink) else []), *log]
    log = ["coordinator.table"] if _is_table(config.coordinator) else []
    if config.route is None:
        return [*(f"{sink.option('table')}" for sink in config.sinks if _is_table(sink)), *log]
    route = config.route
    sinks = {"route.sink": route.sink}
    sinks |= {f"route.overrides.{value}.sink": override.sink for value, override in route.overrides.items()}
    sinks |= {"route.other": route.other} if isinstance(route.other, Mapping) else {}
    return [*(f"{option}.table" for option, sink in sinks.items() if "table" in sink), *log]


def _is_table(place: object) -> bool:
    return isinstance(place, DeltaPlace) and place.table is not None


def _new_places(config: PipelineConfig, into: str) -> dict[str, Any]:
    def at(sink: Any, path: str) -> Any:
        return sink.model_copy(update={"path": path, "table": None})

    if not config.two_phase:
        return {"sinks": (at(config.sinks[0], into),), "coordinator": None}
    others = [sink.option("type") for sink in config.sinks if not isinstance(sink, DeltaSink)]
    several = config.sinks[0].in_several
    if others and several is not None:
        raise ConfigurationError(
            f"`replay` fills new tables, and {several.option}.type is another kind of sink. Nothing was written.",
            hint=several.tables_alone,
        )
    if others:
        raise ConfigurationError(
            f"`replay` fills new tables, and {', '.join(others)} is another kind of sink. Nothing was written.",
            hint="Write a pipeline file of another name for the tables, and run it.",
        )
    assert config.coordinator is not None
    changed: dict[str, Any] = {"coordinator": at(config.coordinator, f"{into}/{LOG}")}
    if config.route is None:
        return {**changed, "sinks": tuple(at(sink, path) for sink, path in _paths(config, into))}
    paths = (f"{into}/{{route}}", f"{into}/{OTHER}")
    sinks = tuple(at(sink, path) for sink, path in zip(config.sinks, paths, strict=False))
    return {**changed, "sinks": sinks, "route": _rerouted(config.route, *paths)}


def _rerouted(route: Route, path: str, other: str) -> Route:
    """The route with its tables elsewhere."""

    def without_place(sink: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in sink.items() if name not in _PLACE}

    overrides = {
        value: override.model_copy(update={"sink": without_place(override.sink)})
        for value, override in route.overrides.items()
    }
    changed: dict[str, Any] = {"sink": {**without_place(route.sink), "path": path}, "overrides": overrides}
    if isinstance(route.other, Mapping):
        changed["other"] = {**without_place(route.other), "path": other}
    return route.model_copy(update=changed)


def _paths(config: PipelineConfig, into: str) -> Sequence[tuple[DeltaSink, str]]:
    """Each table with its new path: the last part of its old place, made unique."""
    sinks = [sink for sink in config.sinks if isinstance(sink, DeltaSink)]
    last = [re.split(r"[/.]", sink.place.rstrip("/"))[-1] for sink in sinks]
    taken = Counter(last)
    names = [
        name if taken[name] == 1 else f"{name}_{digest(sink.place)}" for sink, name in zip(sinks, last, strict=True)
    ]
    return [(sink, f"{into}/{name}") for sink, name in zip(sinks, names, strict=True)]
