"""A registry of Avro schemas in memory."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from connector.decode.avro_schema import parse
from connector.decode.registry.registry import Part, WriterSchema
from connector.decode.registry.wire_format import ConfluentWire, Wire
from sinks.errors import UnknownSchema


class Schemas:
    """A registry in memory: a topic's subject, and ids that turn up only when they are asked for."""

    def __init__(
        self, known: Mapping[str, object], later: Mapping[str, object] | None = None, wire: Wire | None = None
    ):
        self.wire = wire or ConfluentWire()
        self.asked: list[str] = []
        self._known = {each: WriterSchema(each, parse(json.dumps(text))) for each, text in known.items()}
        self.later = dict(later or {})
        self.once: list[WriterSchema] = []
        """Versions that were deleted."""

    def schema(self, schema_id: str) -> WriterSchema:
        self.asked.append(schema_id)
        if schema_id not in self.later:
            raise UnknownSchema("no such schema")
        return WriterSchema(schema_id, parse(json.dumps(self.later[schema_id])))

    def known(self, topic: str, part: Part) -> Mapping[str, WriterSchema]:
        return self._known if topic == "t" else {}

    def former(self, topic: str, part: Part) -> Sequence[WriterSchema]:
        return [*self.known(topic, part).values(), *self.once]

    def latest(self, topic: str, part: Part) -> WriterSchema:
        return list(self._known.values())[-1]
