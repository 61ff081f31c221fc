"""JSON Schemas as the JSON that the Java class ``lakelock.json.Plan`` reads. Pure: without Spark.

A plan is a list of schemas without references: each has the numbers of those that it consists of. What the drafts write
differently is the same there, so that executors need no library.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urljoin

from connector.decode.json_pattern import Unreadable, java_pattern
from sinks.errors import ConfigurationError, UnusableSchema

if TYPE_CHECKING:
    from collections.abc import Callable

    from connector.decode.json_schema import JsonSchema

Node: TypeAlias = dict[str, Any]

_DRAFTS = {
    "http://json-schema.org/draft-04/schema": 4, "http://json-schema.org/draft-06/schema": 6,
    "http://json-schema.org/draft-07/schema": 7, "https://json-schema.org/draft/2019-09/schema": 2019,
    "https://json-schema.org/draft/2020-12/schema": 2020,
}  # fmt: skip
_DEFAULT = "http://json-schema.org/draft-07/schema"
"""Of a schema that names no draft: what Confluent's registry takes it for."""
_PLACES = 1000
"""Places of a number. More take too long to compare."""
_WHOLE = "integer without a fraction"
_LIMITS = (
    "multipleOf", "minLength", "maxLength", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties",
    "required",
)  # fmt: skip
_SAME_VALUE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas")
"""Where a schema has others for the same value."""


class Plan:
    """One schema with all that it refers to."""

    def __init__(self, schema: JsonSchema) -> None:
        """Raises UnusableSchema, and ConfigurationError where the library is missing."""
        _check_library()
        self._of = schema.of
        self.tracks = False
        """Whether a schema asks what others have evaluated."""
        self.nodes: list[Node] = []
        self._known: dict[int, int] = {}
        self._documents: list[Any] = []  # keeps the parts, which are known by their identity
        try:
            self.root = self._compiled(schema)
            self._check_circles()
            for node in self.nodes:
                _text(node)  # raises for a number that can't be compared
        except Unreadable as why:
            raise self._unusable(str(why)) from None
        except RecursionError:
            raise self._unusable("it is nested too deeply") from None

    def _unusable(self, why: str) -> UnusableSchema:
        return UnusableSchema(
            f"{self._of} can't be validated with: {why}.",
            hint="Correct it, or don't validate: remove validate. docs/sources.md says what is taken.",
        )

    def _compiled(self, schema: JsonSchema) -> int:
        from referencing import Registry, Resource
        from referencing.jsonschema import specification_with

        dialect = _dialect(schema.root, _DEFAULT)
        root = self._parsed(schema, dialect)
        specification = specification_with(dialect)
        resource = Resource.from_contents(root, default_specification=specification)
        base = resource.id() or ""
        found = {}
        for name, other in _referred(schema):
            contents = self._parsed(other, dialect)
            part = Resource.from_contents(contents, default_specification=specification)
            found.update({name: part, urljoin(base, name): part})
        registry: Registry[Any] = Registry().with_resources(found.items()).with_resource(base, resource).crawl()
        for name, part in found.items():
            self._node(part.contents, registry.resolver(name), dialect)
        return self._node(root, registry.resolver(base), dialect)

    def _parsed(self, schema: JsonSchema, dialect: str) -> Any:
        from jsonschema import FormatChecker, SchemaError, validators

        plain = schema.root
        kind = validators.validator_for({"$schema": dialect})
        try:
            kind.check_schema(plain, format_checker=FormatChecker(()))
        except SchemaError as error:
            place = "/".join(map(str, error.absolute_path))
            raise Unreadable(f"it isn't a schema of its draft: at #/{place}, {error.message[:200]}") from None
        try:
            document = json.loads(schema.text, parse_float=Decimal)
        except InvalidOperation:
            raise Unreadable(f"it has a number of more than {_PLACES} places") from None
        self._documents.append(document)
        return document

    def _node(self, contents: Any, resolver: Any, dialect: str) -> int:
        if _dialect(contents, dialect) != dialect:
            raise Unreadable("it, or one that it refers to, is of another draft than the rest")
        if not isinstance(contents, dict | bool):
            raise Unreadable(f"a reference leads to what is no schema: {str(contents)[:100]}")
        place = id(contents) if isinstance(contents, dict) else int(contents)
        if place not in self._known:
            self._known[place] = at = len(self.nodes)
            self.nodes.append({})
            if isinstance(contents, dict):
                self.nodes[at].update(self._filled(contents, resolver, dialect))
            elif not contents:
                self.nodes[at]["never"] = True
        return self._known[place]

    def _added(self, node: Node) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def _filled(self, given: Mapping[str, Any], resolver: Any, dialect: str) -> Node:
        from referencing.exceptions import Unresolvable
        from referencing.jsonschema import specification_with

        specification, draft = specification_with(dialect), _DRAFTS[dialect]

        def part(contents: Any) -> int:
            if not isinstance(contents, dict):
                return self._node(contents, resolver, dialect)
            return self._node(contents, resolver.in_subresource(specification.create_resource(contents)), dialect)

        for name in ("$dynamicRef", "$recursiveRef"):
            if name in given and draft >= 2019:
                raise Unreadable(f"it has {name}, which isn't supported")
        for each in specification.subresources_of(given):
            part(each)  # what nothing refers to has to be in order, too
        every = []
        if "$ref" in given:
            try:
                found = resolver.lookup(given["$ref"])
            except (Unresolvable, ValueError):
                raise Unreadable(
                    f"it refers to {given['$ref']}, which is neither in it nor in the references that it was "
                    "registered with"
                ) from None
            every.append(self._node(found.contents, found.resolver, dialect))
            if draft <= 7:
                return {"allOf": every}  # what stands beside a reference doesn't count
        every += map(part, given.get("allOf", ()))
        if "const" in given and draft >= 6:
            every.append(self._added({"enum": [given["const"]]}))
        node = _limits(given, draft)
        node |= self._of_items(given, part, draft)
        node |= self._of_fields(given, part, draft)
        node |= {name: list(map(part, given[name])) for name in ("anyOf", "oneOf") if name in given}
        node |= {"not": part(given["not"])} if "not" in given else {}
        if "if" in given and draft >= 7:
            node |= {name: part(given[name]) for name in ("if", "then", "else") if name in given}
        return {**node, "allOf": every} if every else node

    def _of_items(self, given: Mapping[str, Any], part: Callable[[Any], int], draft: int) -> Node:
        node: Node = {}
        listed = given.get("prefixItems") if draft >= 2020 else given.get("items")
        others = "items"
        if isinstance(listed, list):
            node["prefixItems"] = list(map(part, listed))
            others = "items" if draft >= 2020 else "additionalItems"
        if others in given:
            node["items"] = part(given[others])
        if "contains" in given and draft >= 6:
            counts = ("minContains", "maxContains") if draft >= 2019 else ()
            node |= {"contains": part(given["contains"]), "containsCounts": draft >= 2020}
            node |= {name: given[name] for name in counts if name in given}
        return node | self._of_the_rest("unevaluatedItems", given, part, draft)

    def _of_fields(self, given: Mapping[str, Any], part: Callable[[Any], int], draft: int) -> Node:
        node: Node = {}
        if "properties" in given:
            node["properties"] = {name: part(each) for name, each in given["properties"].items()}
        if "patternProperties" in given:
            pairs = given["patternProperties"].items()
            node["patternProperties"] = [[_pattern(pattern), part(each)] for pattern, each in pairs]
        if "additionalProperties" in given:
            node["additionalProperties"] = part(given["additionalProperties"])
        if "propertyNames" in given and draft >= 6:
            node["propertyNames"] = part(given["propertyNames"])
        needs = given.get("dependentRequired", {}) if draft >= 2019 else {}
        others = given.get("dependentSchemas", {}) if draft >= 2019 else {}
        if draft <= 7:
            either = given.get("dependencies", {})
            needs = {name: each for name, each in either.items() if isinstance(each, list)}
            others = {name: each for name, each in either.items() if not isinstance(each, list)}
        node |= {"dependentRequired": needs} if needs else {}
        node |= {"dependentSchemas": {name: part(each) for name, each in others.items()}} if others else {}
        return node | self._of_the_rest("unevaluatedProperties", given, part, draft)

    def _of_the_rest(self, name: str, given: Mapping[str, Any], part: Callable[[Any], int], draft: int) -> Node:
        if name not in given or draft < 2019:
            return {}
        self.tracks = True
        return {name: part(given[name])}

    def _check_circles(self) -> None:
        """Raises Unreadable for a schema that a value fits only if it fits that schema."""
        done: set[int] = set()

        def visit(at: int, above: frozenset[int]) -> None:
            if at in above:
                raise Unreadable("a reference leads back to itself without a field or an item between")
            if at in done:
                return
            for each in _of_same_value(self.nodes[at]):
                visit(each, above | {at})
            done.add(at)

        for at in range(len(self.nodes)):
            visit(at, frozenset())


def of_one(plan: Plan) -> bytes:
    """The plan for texts without a header."""
    return _text({"nodes": plan.nodes, "root": plan.root, "tracks": plan.tracks}).encode()


def of_several(plans: Mapping[str, Plan]) -> bytes:
    """The plan for texts after Confluent's header, by the IDs of their schemas."""
    nodes: list[Node] = []
    ids = {}
    for schema_id, plan in plans.items():
        first = len(nodes)
        nodes += map(partial(_moved, by=first), plan.nodes)
        ids[schema_id] = plan.root + first
    return _text({"nodes": nodes, "ids": ids, "tracks": any(plan.tracks for plan in plans.values())}).encode()


def _moved(node: Node, by: int) -> Node:
    """The node in a list where all numbers are higher."""
    moved = dict(node)
    for name, value in node.items():
        if name in ("allOf", "anyOf", "oneOf", "prefixItems"):
            moved[name] = [each + by for each in value]
        elif name in ("properties", "dependentSchemas"):
            moved[name] = {field: each + by for field, each in value.items()}
        elif name == "patternProperties":
            moved[name] = [[pattern, each + by] for pattern, each in value]
        elif name in (
            "items", "contains", "unevaluatedItems", "additionalProperties", "propertyNames", "unevaluatedProperties",
            "not", "if", "then", "else",
        ):  # fmt: skip
            moved[name] = value + by
    return moved


def _of_same_value(node: Node) -> list[int]:
    found: list[int] = []
    for name in _SAME_VALUE:
        each = node.get(name, ())
        found += each.values() if isinstance(each, dict) else each if isinstance(each, list | tuple) else [each]
    return found


def _limits(given: Mapping[str, Any], draft: int) -> Node:
    """What a schema says of a value without other schemas."""
    node = {name: given[name] for name in _LIMITS if name in given}
    if "enum" in given:
        node["enum"] = given["enum"]
    if "type" in given:
        types = given["type"] if isinstance(given["type"], list) else [given["type"]]
        node["type"] = [_WHOLE if draft == 4 and each == "integer" else each for each in types]
    if "pattern" in given:
        node["pattern"] = _pattern(given["pattern"])
    for name, strictly in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if draft > 4:
            node |= {each: given[each] for each in (name, strictly) if each in given}
        elif name in given:
            node[strictly if given.get(strictly) else name] = given[name]
    return node


def _pattern(text: str) -> str:
    try:
        return java_pattern(text)
    except Unreadable as why:
        raise Unreadable(f"its pattern {text[:200]!r} isn't read alike everywhere: {why}") from None


def _dialect(contents: Any, otherwise: str) -> str:
    """The draft that a schema names, as the address of its schema. Raises Unreadable."""
    named = contents.get("$schema") if isinstance(contents, dict) else None
    if not isinstance(named, str):
        return otherwise
    found = named.removesuffix("#")
    if found not in _DRAFTS:
        raise Unreadable(f"its $schema, {named[:200]}, is none of draft 4, 6, 7, 2019-09 and 2020-12")
    return found


def _referred(schema: JsonSchema) -> Sequence[tuple[str, JsonSchema]]:
    found: dict[str, JsonSchema] = {}
    for name, other in schema.references:
        found.setdefault(name, other)
        for inner, each in _referred(other):
            found.setdefault(inner, each)
    return list(found.items())


def _text(value: Any) -> str:
    """JSON with exact numbers, which Python's own encoder doesn't write. Raises Unreadable."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(name)}:{_text(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return f"[{','.join(map(_text, value))}]"
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        if abs(Decimal(value).adjusted() + 1) > _PLACES or len(written := str(value)) > _PLACES:
            raise Unreadable(f"it has a number of more than {_PLACES} places")
        return written
    return json.dumps(value)


def _check_library() -> None:
    try:
        import jsonschema  # noqa: F401
        import referencing  # noqa: F401
    except ImportError:
        raise ConfigurationError(
            "To validate by a JSON Schema the driver needs the package jsonschema, which checks the schema itself.",
            hint='Install it: pip install "lakelock[json-schema]".',
        ) from None
