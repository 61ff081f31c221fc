"""The text of a pipeline file: read it, and write it without secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml
from pydantic import SecretStr

from connector.config.kinds import REFERENCE, dotted
from connector.config.marks import Marks
from sinks.errors import ConfigurationError
from sinks.kafka import SECRET

_NEXT_LINE = "\x85"


def read_yaml(text: str, origin: str) -> tuple[object, Marks]:
    """The document of a text, and where its options stand. ``origin`` names it in errors. Raises ConfigurationError."""
    try:
        # A subclass of SafeLoader: no YAML tag can create an object.
        loader = _Strict(text)
        node = loader.get_single_node()
        marks = Marks(node)
        return loader.construct_document(node) if node is not None else None, marks
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        if isinstance(error, _Unclear):
            raise ConfigurationError(f"{origin}{where}: {error.problem}.") from None
        problem = getattr(error, "problem", None) or str(error)
        raise ConfigurationError(f"{origin}{where}: not valid YAML: {problem}.") from None


def write_yaml(document: object) -> str:
    """The text of a document. Raises ConfigurationError if it has a secret that isn't written as a reference."""
    secrets = ", ".join(dotted(path) for path in _secrets(document, ()))
    if secrets:
        raise ConfigurationError(
            f"{secrets}: a secret is never written into a pipeline file.",
            hint="Give it as a reference, '${env:NAME}' or '${file:/path}'. Then the file has the reference.",
        )
    return yaml.dump(document, Dumper=_Plain, sort_keys=False, allow_unicode=True, width=120)


def _secrets(value: object, path: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    if isinstance(value, SecretStr):
        yield path
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from _secrets(item, (*path, name))
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for number, item in enumerate(value):
            yield from _secrets(item, (*path, number))
    elif isinstance(value, str) and path and SECRET.search(str(path[-1])) and not REFERENCE.search(value):
        yield path


class _Unclear(yaml.constructor.ConstructorError):
    """A value that YAML takes for another one than most people do."""


class _Strict(yaml.SafeLoader):
    """Refuses an option that is given twice. By default YAML keeps the last of two equal keys without a word.

    And a value that looks like a text or another number: NO is false for YAML, 010 is 8, and 12:30 is 750. A key such
    as ``on`` is text: YAML takes it for true.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: dict[str | int, int] = {}
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:bool":
                key_node.tag = "tag:yaml.org,2002:str"
            if key_node.tag == "tag:yaml.org,2002:merge":  # `<<: *anchor`, which an option may override
                continue
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str | int) and key in seen:
                twice = f"the option {key!r} is given twice, first in line {seen[key]}"
                raise yaml.constructor.ConstructorError(None, None, twice, key_node.start_mark)
            if isinstance(key, str | int):
                seen[key] = key_node.start_mark.line + 1
        return super().construct_mapping(node, deep)

    def _clear(self, node: yaml.ScalarNode) -> object:
        kind = node.tag.rpartition(":")[2]
        value = getattr(yaml.SafeLoader, f"construct_yaml_{kind}")(self, node)
        if node.style is None and _CLEAR[kind].fullmatch(node.value) is None:
            shown = str(value).lower()
            unclear = f'YAML takes {node.value} for {shown}: write {shown}, or "{node.value}" if it is text'
            raise _Unclear(None, None, unclear, node.start_mark)
        return value


_CLEAR = {
    "bool": re.compile("true|false", re.IGNORECASE),
    "int": re.compile(r"0|-?[1-9]\d*"),
    "float": re.compile(r"[-+]?(\d+\.\d*|\.\d+)([eE][-+]?\d+)?|[-+]?\.inf|\.nan", re.IGNORECASE),
}
"""How values of these types are written that nobody takes for something else."""
for _kind in _CLEAR:
    _Strict.add_constructor(f"tag:yaml.org,2002:{_kind}", _Strict._clear)


class _Plain(yaml.SafeDumper):
    """Writes every value where it stands, without references to another place, and text of several lines as such."""

    def ignore_aliases(self, _: object) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # PyYAML writes this line break as it is, except in quotes, and reads it as another one.
    style = '"' if _NEXT_LINE in text else "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _list(dumper: yaml.SafeDumper, items: list[Any]) -> yaml.SequenceNode:
    in_one_line = not any(isinstance(item, list | Mapping) or "\n" in str(item) for item in items)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=in_one_line)


_Plain.add_representer(str, _text)
_Plain.add_representer(list, _list)
