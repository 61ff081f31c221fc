"""Where the tables of a route are: each has a place of its own, however the file spells it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from connector.config import DeltaPlace, DeltaSink, PipelineConfig
from connector.config.apart import nested
from connector.config.places import spot
from sinks.errors import ConfigurationError

_SHOWN = 5


@dataclass
class RoutedPlaces:
    """The places of the tables of a run. Two values never share one: the rows of the second would count as there."""

    config: PipelineConfig
    _taken: dict[str, DeltaPlace] = field(default_factory=dict)
    """Value -> the place of its table."""
    _values: dict[str, str] = field(default_factory=dict)
    """The id of a table in Delta -> its value."""

    def take(self, name: str, sink: DeltaSink) -> None:
        """Raises ConfigurationError if another table of the pipeline has this place, or if one lies in the other."""
        places = {f"the table of {value!r}": place for value, place in self._taken.items() if value != name}
        own = {"dead_letters": self.config.dead_letters, "coordinator": self.config.coordinator}
        places |= {option: place for option, place in own.items() if place is not None}
        one = [other for other, place in places.items() if spot(place) == spot(sink)]
        folders, new = {other: place.folder for other, place in places.items()}, {"": sink.folder}
        inside = [*nested(folders, new), *nested(new, folders)]
        if one:
            raise _shared(name, one[0], _have_one(sink))
        if inside:
            raise _shared(name, max(inside[0]), "lie in each other's folder: VACUUM would remove files")
        self._taken[name] = sink

    def refuse_too_many(self, new: Sequence[str], known: int, epoch: int) -> None:
        """Raises ConfigurationError if the ``new`` values of an epoch would make too many tables beside those that are
        ``known``."""
        assert self.config.route is not None
        most = self.config.route.max_tables
        if known + len(new) > most:
            shown = ", ".join(repr(name) for name in new[:_SHOWN])
            raise ConfigurationError(
                f"The records of epoch {epoch} name new tables, such as {shown}: that would be more tables than "
                f"route.max_tables ({most}) allows. Nothing of it was written.",
                hint="Is route.by what you mean? List the values that are to have a table in route.values, or raise "
                "route.max_tables.",
            )

    def refuse_one_table(self, ids: Mapping[str, str]) -> None:
        """Raises ConfigurationError if two values have one table, by a spelling that only Delta sees through: a name
        and the path of its table, or a link. ``ids``: value -> the id of its table in Delta; empty: there is none."""
        for value, id in ids.items():
            first = self._values.setdefault(id, value) if id else value
            if first != value:
                raise _shared(value, f"the table of {first!r}", _have_one(self._taken[value]))


def _have_one(place: DeltaPlace) -> str:
    return f"have one place, {place.place!r}"


def _shared(name: str, other: str, how: str) -> ConfigurationError:
    return ConfigurationError(
        f"route: the table of {name!r} and {other} {how}.",
        hint="Give the table of that value another path in route.overrides.",
    )
