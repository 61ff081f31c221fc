"""Tables in each other's folders: the VACUUM of a table removes from its folder what isn't the table's."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

from connector.config.places import DeltaPlace, DeltaSink, normal

if TYPE_CHECKING:
    from connector.config.pipeline import PipelineConfig

_Name = TypeVar("_Name", bound=Hashable)


def nested(outer: Mapping[_Name, str | None], inner: Mapping[_Name, str | None]) -> Iterator[tuple[_Name, _Name]]:
    """The names of each place of ``inner`` that lies in the folder of a table of ``outer``, and of that table.

    Both are name -> folder, absolute or a URI; None: it has none. Equal folders don't count.
    """
    tables, places = _with_ends(outer), _with_ends(inner)
    for name, folder in places.items():
        for table, around in tables.items():
            below = folder.removeprefix(around)
            # VACUUM passes over folders with such names.
            if below and below != folder and not re.search(r"(^|/)[_.]", below):
                yield name, table


def tables_of(config: PipelineConfig) -> dict[str, DeltaPlace]:
    """The tables that a valid pipeline file names, its log and its dead letters too: option -> place.

    Of a route these are the tables with options of their own, and the path of all others, with its placeholder.
    """
    tables: dict[str, DeltaPlace] = {sink.option("path"): sink for sink in config.sinks if isinstance(sink, DeltaSink)}
    for value in config.route.overrides if config.route is not None else ():
        (sink,) = config.routed(value).sinks
        if isinstance(sink, DeltaSink):
            tables[f"route.overrides.{value}.sink.path"] = sink
    own = {"dead_letters.path": config.dead_letters, "coordinator.path": config.coordinator}
    return tables | {option: place for option, place in own.items() if place is not None}


def _with_ends(folders: Mapping[_Name, str | None]) -> dict[_Name, str]:
    return {name: f"{normal(folder)}/" for name, folder in folders.items() if folder is not None}
