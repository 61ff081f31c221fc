"""Which schema of each subject is the newest one for a run: it may get a newer one at any time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Generic, TypeVar

from connector.decode.registry.registry import Part, Registry, WriterSchema
from connector.decode.registry.wire_format import Wire
from sinks.errors import UnknownSchema, UnusableSchema

Schema = TypeVar("Schema")


class NewestSchemas:
    """The newest schemas of one run. It notes which ones they were.

    An epoch that is in some of its tables only is read again by another run, and has to give the others the same rows.
    So that run takes the schemas of the decision for the newest ones. One that the registry has deleted it can't take:
    it notes the newest ID, and ``protocol.row_shape`` tells that the rows may be others.
    """

    def __init__(self, pinned: Mapping[str, str] = MappingProxyType({})) -> None:
        """``pinned``: whose -> the ID of the schema to take for the newest one, as ``ids`` has noted it."""
        self._pinned = pinned
        self.ids: dict[str, str] = {}
        """Whose -> the ID of the schema that was the newest one."""
        self.outdated = False
        """Whether a subject has a newer schema than the pinned one, or none any more that can be read."""

    def through(self, registry: Registry[Schema], own: str = "") -> Registry[Schema]:
        """The registry, with these newest schemas. ``own``: a value of a route that has a subject of its own."""
        return _Through(registry, self, own)

    def latest(self, registry: Registry[Schema], topic: str, part: Part, own: str) -> WriterSchema[Schema]:
        """See ``Registry.latest``."""
        whose = _whose(topic, part, own)
        pinned = self._pinned.get(whose)
        found = registry.latest(topic, part) if pinned is None else self._taken(pinned, registry, topic, part)
        self.ids[whose] = found.id
        return found

    def known(self, registry: Registry[Schema], topic: str, part: Part, own: str) -> Mapping[str, WriterSchema[Schema]]:
        """See ``Registry.known``. Beside a pinned schema there are only older ones, as there were for the decision: a
        table may have a column for a field of a newer one."""
        found, pinned = registry.known(topic, part), self._pinned.get(_whose(topic, part, own))
        if pinned is None or pinned not in found:
            return found
        ids = [*found]
        return {each: found[each] for each in ids[: ids.index(pinned) + 1]}

    def _taken(self, pinned: str, registry: Registry[Schema], topic: str, part: Part) -> WriterSchema[Schema]:
        """The pinned schema, or the newest one if the registry has deleted it: the epoch may need no second read."""
        newest, why = None, None
        try:
            newest = registry.latest(topic, part)
        except (UnknownSchema, UnusableSchema) as error:  # a matter of later epochs, which begin with an error then
            why = error
        try:
            found = registry.schema(pinned)
        except (UnknownSchema, UnusableSchema):
            if newest is None:
                raise why or AssertionError from None
            return newest
        self.outdated |= newest is None or newest.id != pinned
        return found


class _Through(Generic[Schema]):
    def __init__(self, registry: Registry[Schema], newest: NewestSchemas, own: str) -> None:
        self._registry, self._newest, self._own = registry, newest, own

    @property
    def wire(self) -> Wire:
        return self._registry.wire

    def schema(self, schema_id: str) -> WriterSchema[Schema]:
        return self._registry.schema(schema_id)

    def known(self, topic: str, part: Part) -> Mapping[str, WriterSchema[Schema]]:
        return self._newest.known(self._registry, topic, part, self._own)

    def former(self, topic: str, part: Part) -> Sequence[WriterSchema[Schema]]:
        return self._registry.former(topic, part)

    def latest(self, topic: str, part: Part) -> WriterSchema[Schema]:
        return self._newest.latest(self._registry, topic, part, self._own)


def _whose(topic: str, part: Part, own: str) -> str:
    return f"{part} of {topic}" + (f", {own}" if own else "")
