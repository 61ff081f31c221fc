"""Protobuf schemas: .proto sources of a registry, compiled by protoc, or the descriptors in a file that protoc made."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TypeAlias

from sinks.errors import ConfigurationError, UnusableSchema

if TYPE_CHECKING:
    from connector.decode.registry.registry import Reference

Message: TypeAlias = Any
"""A message's ``Descriptor``. The package ``protobuf`` has no types of its own."""

_MAIN = "lakelock_record.proto"
"""The name of a source that a registry keeps without one."""
_SECONDS = 60
_HINT = "Correct the schema, and register it as a new version."
_NOT_INSTALLED = "pip install 'lakelock[protobuf]'. Only the driver needs it to decode."


class Messages:
    """The messages that a set of descriptor files defines."""

    def __init__(self, serialized: bytes, main: str | None = None) -> None:
        """``main``: the file whose messages have indexes. Raises ValueError: it is no such set, or not a whole one.
        Raises ConfigurationError if protobuf isn't installed."""
        try:
            from google.protobuf.descriptor_pb2 import FileDescriptorSet
            from google.protobuf.descriptor_pool import DescriptorPool
            from google.protobuf.message import DecodeError
        except ModuleNotFoundError:
            raise ConfigurationError(
                "The schemas of Protobuf are read with the package protobuf, which isn't installed.",
                hint=_NOT_INSTALLED,
            ) from None
        try:
            files = {file.name: file for file in FileDescriptorSet.FromString(serialized).file}
        except DecodeError:
            raise ValueError("it holds no descriptors") from None
        self._pool = DescriptorPool()
        added: set[str] = set()
        for name in files:
            self._add(files, name, added)
        self._files = [self._pool.FindFileByName(name) for name in ([main] if main is not None else files)]

    def _add(self, files: Mapping[str, Any], name: str, added: set[str]) -> None:
        """Add a file to the pool after those that it imports."""
        if name in added:
            return
        added.add(name)
        for imported in files[name].dependency:
            if imported not in files:
                raise ValueError(f"{name} imports {imported}, which isn't in it")
            self._add(files, imported, added)
        try:
            self._pool.AddSerializedFile(files[name].SerializeToString())
        except TypeError as error:
            raise ValueError(f"{name} can't be used ({error})") from None

    def of(self, name: str) -> Message | None:
        """The message with this full name. None: there is none."""
        try:
            return self._pool.FindMessageTypeByName(name)
        except KeyError:
            return None

    @property
    def paths(self) -> Mapping[str, str]:
        """The indexes that lead to each message of the main file, as in ``1.0`` -> its full name."""
        return dict(_paths(self._files[0].message_types_by_name.values(), ""))

    @property
    def names(self) -> list[str]:
        """The full names of all messages. A file comes before those that it imports."""
        files = reversed(self._files)
        return [name for file in files for _, name in _paths(file.message_types_by_name.values(), "")]


def _paths(messages: Any, above: str) -> Iterator[tuple[str, str]]:
    for index, message in enumerate(messages):
        if message.GetOptions().map_entry:  # the entry of a map, which is a message only by the way it is written
            continue
        path = f"{above}{index}"
        yield path, message.full_name
        yield from _paths(message.nested_types, f"{path}.")


@dataclass(frozen=True)
class ProtobufSchema:
    """A .proto source of a registry."""

    text: str
    imports: Mapping[str, str]
    """The sources that it imports, and those that they do, by the path of the import."""
    of: str
    """Words for messages: what it is the schema of."""

    @cached_property
    def messages(self) -> Messages:
        """Compiled at the first use. Raises UnusableSchema, and ConfigurationError where there is no protoc."""
        described = f"The Protobuf schema in {self.of}"
        try:
            found = Messages(_compiled((*self.imports.items(), (_MAIN, self.text))), _MAIN)
        except ValueError as error:
            raise UnusableSchema(f"{described} can't be used: {error}.", hint=_HINT) from None
        if not found.paths:
            raise UnusableSchema(f"{described} defines no message.", hint=_HINT)
        return found

    def message(self, name: str) -> Message | None:
        """The message of its own with this full name. None: there is none."""
        return self.messages.of(name) if name in self.messages.paths.values() else None


def parse(text: str, references: Sequence[Reference[ProtobufSchema]], of: str) -> ProtobufSchema:
    """The schema with all that it refers to. Nothing is compiled yet. Raises UnusableSchema."""
    imports: dict[str, str] = {}
    for each in references:
        for name, source in {**each.schema.imports, each.name: each.schema.text}.items():
            if imports.setdefault(name, source) != source:
                raise UnusableSchema(
                    f"The Protobuf schema in {of} can't be used: it refers to two versions of {name}.", hint=_HINT
                )
    return ProtobufSchema(text, imports, of)


@lru_cache(maxsize=256)  # a registry has the newest version by two paths
def _compiled(sources: Sequence[tuple[str, str]]) -> bytes:
    """A set of descriptors. ``sources``: paths and texts. Raises ValueError: protoc doesn't take them."""
    tools = find_spec("grpc_tools")
    if tools is None or tools.origin is None:
        raise ConfigurationError(
            "The Protobuf schemas of a registry are compiled with grpcio-tools, which isn't installed.",
            hint=_NOT_INSTALLED,
        )
    with tempfile.TemporaryDirectory() as folder:
        for name, text in sources:
            path = PurePosixPath(name)
            if not name or path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name:
                raise ValueError(f"it refers to a schema by the name {name!r}, which isn't the path of an import")
            file = Path(folder, "sources", path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        made = Path(folder, "descriptors")
        command = [sys.executable, "-m", "grpc_tools.protoc", "-I."]  # so that its errors have no path of ours
        command += [f"-I{Path(tools.origin).with_name('_proto')}", "--include_imports", f"--descriptor_set_out={made}"]
        # A notebook may have found the package by a path of its own.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(Path(each).absolute()) for each in sys.path)}
        try:
            done = subprocess.run(
                [*command, _MAIN], cwd=Path(folder, "sources"), env=environment, capture_output=True, text=True,
                errors="replace", check=False, timeout=_SECONDS,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise ValueError(f"protoc wasn't done with it after {_SECONDS} seconds") from None
        if done.returncode != 0 or not made.is_file():
            raise ValueError(f"protoc doesn't take it: {_first_line(done.stderr)}")
        return made.read_bytes()


def _first_line(said: str) -> str:
    lines = [line for line in said.splitlines() if line.strip()]
    of_sources = [line for line in lines if re.match(r"\S+:\d+:\d+: (?!warning)", line)]
    return next(iter([*of_sources, *lines]), "it says nothing").removeprefix(f"{_MAIN}:").rstrip(".")


def of_file(option: str, path: str) -> Messages:
    """The messages of a file with compiled descriptors. ``option``: of the format. Raises ConfigurationError."""
    try:
        return Messages(Path(path).read_bytes())
    except (OSError, ValueError) as error:
        why = error.strerror or error if isinstance(error, OSError) else error
        raise ConfigurationError(
            f"{option}.descriptor_file: {path!r} can't be read: {why}.",
            hint="Write it with protoc --include_imports --descriptor_set_out=FILE.desc FILE.proto.",
        ) from None
