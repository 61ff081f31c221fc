"""One answer of a registry, of which nothing is taken for granted: what is missing or of a wrong type is named."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from sinks.errors import UnusableSchema

_NAMES = {
    dict: "an object", list: "a list", str: "text", bool: "true or false", int: "a whole number", float: "a fraction",
}  # fmt: skip

Kind = TypeVar("Kind", bound=object)


@dataclass(frozen=True)
class Answer:
    """What a registry answered, as JSON.

    ``of`` names the registry and what it was asked for, as in "the schema registry's answer to GET http://...". The
    methods raise `UnusableSchema`.
    """

    of: str
    body: Any

    def text(self, name: str) -> str:
        """The text in a field of the answer."""
        return self._field(name, str)

    def number(self, name: str) -> int:
        """The whole number in a field of the answer: 0, or any up to four bytes."""
        found = self._field(name, int)
        if not 0 <= found < 2**32:
            raise self.unusable(f"its {name!r} is {found}, which isn't a whole number from 0 to {2**32 - 1}")
        return found

    def is_absent(self, name: str) -> bool:
        """Whether the answer has no such field, or null in it."""
        return self._object().get(name) is None

    def items(self, name: str | None = None) -> list[Answer]:
        """The items of the list in a field of the answer; None: the answer is the list."""
        found = self._typed(self.body, list, "it") if name is None else self._field(name, list)
        of = self.of if name is None else f"{name!r} in {self.of}"
        return [Answer(f"item {number} of {of}", item) for number, item in enumerate(found, 1)]

    def whole_number(self) -> int:
        """The answer itself, where it is a whole number."""
        return self._typed(self.body, int, "it")

    def unusable(self, why: str) -> UnusableSchema:
        """The error that says what is wrong with the answer. ``why`` is a clause."""
        return UnusableSchema(
            f"{self.of[0].upper()}{self.of[1:]} can't be used: {why}.",
            hint="Ask the registry for the same yourself. If a proxy answers, correct the option registry. If it "
            "is the registry, register the schema again as a new version, and delete the broken one.",
        )

    def of_another_language(self, schema_id: str, kind: str, wanted: str) -> UnusableSchema:
        """The error that says of which type the schema in the answer is. ``kind``, ``wanted``: as registries say."""
        name = {"AVRO": "Avro", "JSON": "JSON Schema", "PROTOBUF": "Protobuf"}[wanted]
        others = {
            "JSON": "Use format: json for JSON.",
            "AVRO": "Use format: avro for Avro.",
            "PROTOBUF": "Use format: protobuf for Protobuf.",
        }
        return UnusableSchema(
            f"The schema {schema_id} in {self.of} is of type {kind}, not {name}.",
            hint=others.get(kind, f"Have the option registry name a subject whose schemas are {name}."),
        )

    def _field(self, name: str, kind: type[Kind]) -> Kind:
        found = self._object()
        if name not in found:
            raise self.unusable(f"it has no {name!r}")
        return self._typed(found[name], kind, f"its {name!r}")

    def _object(self) -> dict[str, Any]:
        return self._typed(self.body, dict, "it")

    def _typed(self, value: object, kind: type[Kind], what: str) -> Kind:
        # In Python a bool is an int.
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.unusable(f"{what} is {_NAMES.get(type(value), 'null')}, not {_NAMES[kind]}")
        return value
