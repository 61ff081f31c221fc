"""Whether JSON is what its JSON Schema allows, as the auditor sees it: by Python's jsonschema, on the executors.

The library is told what it leaves open, or takes from Python: numbers are exact, 1 and 1.0 are equal and true is
neither, a pattern is one of JavaScript, a schema refers to nothing but what it was registered with.
"""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import urljoin

from connector.audit.batches import headers, with_column
from connector.audit.json_pattern import Unreadable, python_pattern
from connector.audit.registries import OfConfluent, OfFile, Texts, referred
from connector.config import ConfluentRegistry
from sinks.errors import ConfigurationError

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import DataFrame

_DEEPEST, _LONGEST = 100, 1000
"""Levels of a value, and places of a number, that are validated."""
_PYTHONS_LEVELS = 20_000
"""Calls within calls: jsonschema needs several for each level of a value."""
_SECONDS = 60.0
"""For a value: the pipeline gives up sooner, so this is for patterns that Java searches faster than Python."""
_DEFAULT = "http://json-schema.org/draft-07/schema"
_DRAFTS = {
    _DEFAULT, "http://json-schema.org/draft-04/schema", "http://json-schema.org/draft-06/schema",
    "https://json-schema.org/draft/2019-09/schema", "https://json-schema.org/draft/2020-12/schema",
}  # fmt: skip


class OfJsonSchema(OfConfluent):
    """A registry with JSON Schemas. Each is a tuple of names and texts in turns: what it refers to, then itself."""

    def __init__(self, options: ConfluentRegistry, part: str) -> None:
        """``part``: key or value."""
        super().__init__(options, part, "JSON")

    def _texts(self, path: str, depth: int = 0) -> Texts | None:
        answer = self._get(path)
        if not isinstance(answer, dict) or answer.get("schemaType") != "JSON" or depth > 50:
            return None
        found: dict[str, str] = {}
        for each in answer.get("references") or ():
            inner = self._texts(referred(each, path), depth + 1)
            if inner is None:
                return None
            pairs = {str(each["name"]): inner[-1]} | dict(zip(inner[:-2:2], inner[1:-2:2], strict=True))
            found = {**pairs, **found}
        return (*(text for pair in found.items() for text in pair), "", str(answer["schema"]))


@dataclass(frozen=True)
class Valid:
    """Which schema each value has to hold. Of a file's, the text is the last of `Texts`."""

    schemas: OfJsonSchema | OfFile
    framed: bool
    """Whether Confluent's header comes before the text."""

    def read(self, records: DataFrame, column: str, into: str) -> DataFrame:
        """``records`` with a BOOLEAN column ``into``: whether the bytes in ``column`` are one JSON value that its
        schema allows.

        Asks for the schema of each header that the records have. Raises RegistryUnreachable, ConfigurationError.
        """
        from pyspark.sql import types as T

        _check_library()
        of_record = self.schemas.header
        found = {header: self.schemas.of(header) for header in headers(records, column, of_record)}
        known = {header: texts for header, texts in found.items() if texts is not None}
        skipped = 5 if self.framed else 0
        schema = T.StructType([*records.schema.fields, T.StructField(into, T.BooleanType())])

        def validate(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
            import sys

            import pyarrow

            sys.setrecursionlimit(max(sys.getrecursionlimit(), _PYTHONS_LEVELS))
            yield from with_column(batches, column, into, pyarrow.bool_(), judge(known, of_record, skipped))

        return records.mapInArrow(validate, schema)


def judge(known: Mapping[bytes, Texts], of_record: int, skipped: int) -> Callable[[bytes | None], bool]:
    """Whether the bytes of a record are valid. ``known``: the schemas, by the first ``of_record`` bytes; the text comes
    after ``skipped`` of them."""
    validators = {header: validator(texts) for header, texts in known.items()}

    def is_valid(content: bytes | None) -> bool:
        if content is None or content[:skipped][:1] not in (b"", b"\0"):
            return False
        found = validators.get(content[:of_record])
        if found is None:
            return False
        try:
            with _within(_SECONDS):
                return bool(found.is_valid(exact(content[skipped:])))
        except Exception:  # whatever bytes that are no JSON make it say
            return False

    return is_valid


@contextmanager
def _within(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in the block after this time: with some patterns a search never ends. Only in a main thread,
    which a worker of Spark has."""

    def stop(*_: object) -> NoReturn:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def exact(content: bytes) -> Any:
    """The JSON value of a text. Raises ValueError."""
    value = json.loads(
        content.decode(), parse_int=_number, parse_float=_number, parse_constant=_refused, object_pairs_hook=_fields
    )
    _check_levels(value, _DEEPEST)
    return value


def _number(text: str) -> int | Decimal:
    exponent = text.lower().partition("e")[2].lstrip("+-0")
    found = Decimal(text) if len(text) <= _LONGEST and len(exponent) < 10 else _refused(text)
    if abs(found.adjusted() + 1) > _LONGEST:
        raise ValueError(text)
    return found if any(sign in text for sign in ".eE") else int(text)


def _refused(text: object) -> NoReturn:
    raise ValueError(text)


def _fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    return found if len(found) == len(pairs) else _refused("a name is there twice")


def _check_levels(value: Any, more: int) -> None:
    if isinstance(value, dict | list):
        if not more:
            raise ValueError("nested too deeply")
        for each in value.values() if isinstance(value, dict) else value:
            _check_levels(each, more - 1)


def validator(texts: Texts) -> Any | None:
    """Of a schema, after names and texts of those that it refers to, what validates by it. None: it can't be used."""
    from jsonschema import FormatChecker, SchemaError, validators
    from referencing import Registry, Resource
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import specification_with

    try:
        plain = [json.loads(text) for text in texts[1::2]]
        dialect = _dialect(plain[-1], _DEFAULT)
        kind = validators.validator_for({"$schema": dialect})
        for each in plain:
            kind.check_schema(each, format_checker=FormatChecker(()))
        *others, root = [json.loads(text, parse_float=_number, parse_int=_number) for text in texts[1::2]]
        specification = specification_with(dialect)
        whole = Resource.from_contents(root, default_specification=specification)
        parts = [Resource.from_contents(each, default_specification=specification) for each in others]
        base = whole.id() or ""
        named = [
            (at, part) for name, part in zip(texts[::2], parts, strict=False) for at in (name, urljoin(base, name))
        ]
        registry: Registry[Any] = Registry().with_resources(named).with_resource(base, whole).crawl()
        walk = _Walk(specification, dialect)
        for at, part in [*named, (base, whole)]:
            walk.through(part.contents, registry.resolver(at))
        walk.settle()
    except (ValueError, RecursionError, SchemaError, Unresolvable, Unreadable):
        return None
    types = kind.TYPE_CHECKER.redefine("number", _is_number)
    if not dialect.endswith("draft-04/schema"):  # there, 1.0 is no integer
        types = types.redefine("integer", _is_whole)
    exactly = {name: judge for name, judge in _EXACT.items() if name in kind.VALIDATORS}
    return validators.extend(kind, exactly, type_checker=types)(root, registry=registry)


class _Walk:
    """Finds what can't be read in a schema and its parts, and makes them fit the library."""

    def __init__(self, specification: Any, dialect: str) -> None:
        self._specification, self._dialect = specification, dialect
        self._legacy = "/draft-0" in dialect
        self._seen: dict[int, dict[str, Any]] = {}

    def through(self, contents: Any, resolver: Any) -> None:
        """Raises Unreadable, Unresolvable."""
        if not isinstance(contents, dict):
            if not isinstance(contents, bool):
                raise Unreadable(contents)
            return
        if id(contents) in self._seen:
            return
        self._seen[id(contents)] = contents
        if _dialect(contents, self._dialect) != self._dialect:
            raise Unreadable("several drafts")
        if not self._legacy and contents.keys() & {"$dynamicRef", "$recursiveRef"}:
            raise Unreadable("a reference that depends on where it is followed from")
        for each in self._specification.subresources_of(contents):
            if isinstance(each, dict):
                self.through(each, resolver.in_subresource(self._specification.create_resource(each)))
        if "$ref" in contents:
            found = resolver.lookup(contents["$ref"])
            self.through(found.contents, found.resolver)

    def settle(self) -> None:
        """Write the patterns as Python does, and let no part choose another class of the library's by its draft."""
        for contents in self._seen.values():
            contents.pop("$schema", None)
            if "$ref" in contents and self._legacy:
                continue
            if "pattern" in contents:
                contents["pattern"] = python_pattern(contents["pattern"])
            made: dict[str, Any] = {}
            for pattern, each in contents.get("patternProperties", {}).items():
                written = python_pattern(pattern)
                while written in made:
                    written += "(?:)"
                made[written] = each
            if made:
                contents["patternProperties"] = made


def _dialect(contents: Any, otherwise: str) -> str:
    named = contents.get("$schema") if isinstance(contents, dict) else None
    if not isinstance(named, str):
        return otherwise
    if named.removesuffix("#") not in _DRAFTS:
        raise Unreadable(named)
    return named.removesuffix("#")


def _is_number(_: object, value: object) -> bool:
    return isinstance(value, int | Decimal) and not isinstance(value, bool)


def _is_whole(_: object, value: object) -> bool:
    return isinstance(value, int | Decimal) and _is_number(_, value) and Fraction(value).denominator == 1


def _frozen(value: Any) -> object:
    """Equal of values that JSON Schema takes for equal, and of no others."""
    if isinstance(value, dict):
        return frozenset((name, _frozen(each)) for name, each in value.items()), "fields"
    if isinstance(value, list):
        return tuple(map(_frozen, value)), "items"
    return value, isinstance(value, bool)


def _enum(_: Any, values: Any, value: Any, __: Any) -> Iterator[Exception]:
    from jsonschema import ValidationError

    if _frozen(value) not in [_frozen(each) for each in values]:
        yield ValidationError("enum")


def _const(_: Any, wanted: Any, value: Any, __: Any) -> Iterator[Exception]:
    yield from _enum(_, [wanted], value, __)


def _multiple(checker: Any, of: Any, value: Any, _: Any) -> Iterator[Exception]:
    from jsonschema import ValidationError

    if checker.is_type(value, "number") and Fraction(value) % Fraction(of):
        yield ValidationError("multipleOf")


def _unique(checker: Any, wanted: bool, value: Any, _: Any) -> Iterator[Exception]:
    from jsonschema import ValidationError

    if wanted and checker.is_type(value, "array") and len({_frozen(each) for each in value}) < len(value):
        yield ValidationError("uniqueItems")


def _unevaluated(type: str) -> Callable[[Any, Any, Any, Any], Iterator[Exception]]:
    def judge(checker: Any, of_others: Any, value: Any, schema: Any) -> Iterator[Exception]:
        if not checker.is_type(value, type):
            return
        without = {name: each for name, each in schema.items() if not name.startswith("unevaluated")}
        known = evaluated(checker, value, without)
        for name, each in value.items() if type == "object" else enumerate(value):
            if name not in known:
                yield from checker.descend(each, of_others, path=name)

    return judge


def evaluated(checker: Any, value: Any, schema: Any) -> set[str | int]:
    """The names of fields, or the indexes of items, that a schema which allows the value has looked at. The library
    finds fewer of them, or more, by the draft."""
    if not isinstance(schema, dict):
        return set()
    inner, found = [*schema.get("allOf", ())], set[str | int]()
    if "$ref" in schema:
        target = checker._resolver.lookup(schema["$ref"])
        of_target = checker.evolve(schema=target.contents, _resolver=target.resolver)
        found |= evaluated(of_target, value, target.contents) if of_target.is_valid(value) else set()
    for word in ("anyOf", "oneOf"):
        inner += schema.get(word, ())
    if "if" in schema:
        holds = next(checker.descend(value, schema["if"]), None) is None
        inner += [schema["if"]] * holds + [schema.get("then" if holds else "else", True)]
    if isinstance(value, dict):
        inner += [each for name, each in schema.get("dependentSchemas", {}).items() if name in value]
        patterns = [re.compile(each) for each in schema.get("patternProperties", {})]
        whole = schema.keys() & {"additionalProperties", "unevaluatedProperties"}
        own = schema.get("properties", {})
        found |= {name for name in value if whole or name in own or any(each.search(name) for each in patterns)}
    if isinstance(value, list):
        is_newest = checker.META_SCHEMA["$id"].endswith("2020-12/schema")
        first = schema.get("prefixItems" if is_newest else "items", ())
        rest = {"unevaluatedItems", "items"} if is_newest or not isinstance(first, list) else {
            "unevaluatedItems", "additionalItems"
        }  # fmt: skip
        found |= set(range(len(value))) if schema.keys() & rest else set(range(len(first)))
        if is_newest and "contains" in schema:
            found |= {at for at, each in enumerate(value) if checker.evolve(schema=schema["contains"]).is_valid(each)}
    for each in inner:
        if next(checker.descend(value, each), None) is None:
            found |= evaluated(checker.evolve(schema=each), value, each)
    return found


_EXACT = {
    "enum": _enum, "const": _const, "multipleOf": _multiple, "uniqueItems": _unique,
    "unevaluatedProperties": _unevaluated("object"), "unevaluatedItems": _unevaluated("array"),
}  # fmt: skip


def _check_library() -> None:
    try:
        import jsonschema  # noqa: F401
        import referencing  # noqa: F401
    except ModuleNotFoundError:
        raise ConfigurationError(
            "`lakelock verify` validates JSON with jsonschema, which isn't installed.",
            hint="pip install 'lakelock[json-schema]', on a cluster on its executors too.",
        ) from None
