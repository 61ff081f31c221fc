"""What is wrong with a pipeline file: a line for each fault, with where it stands, its option and what to write."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from connector.config.fault_texts import found, wish
from connector.config.formats import FORMATS
from connector.config.kinds import NESTED, dotted
from connector.config.marks import Marks, Path
from connector.config.nearest import nearest
from connector.config.sinks import SINK_TYPES
from sinks.errors import ConfigurationError
from sinks.plurals import plural

FORMATTED = ("value", "key")
_FLOWS = "flows"
_FIRST_WORD = re.compile(r"[\w.\[\]-]+")
_SINKS = ("route", "sinks")
_OPTION = re.compile(r"[a-z_]+(\.\w+)*: ")
Moved = Callable[[Path], Path]
"""Where the file has an option, by where a pipeline of the file has it."""


@dataclass(frozen=True)
class Fault:
    """A fault of one option."""

    path: Path
    """The option, as the file has it."""
    text: str
    """The option and what is wrong, for a person."""
    name: bool = False
    """Whether the option's name is wrong, rather than its value."""


def configuration_error(
    origin: str, faults: Sequence[Fault], marks: Marks | None = None, hidden: Mapping[str, str] | None = None
) -> ConfigurationError:
    """One error with all faults, in the order of the file's lines.

    ``hidden``: what to show instead of values that came from elsewhere, and may be secrets.
    """
    told: dict[str, Fault] = {}
    for fault in faults:  # one may be found in two ways
        told.setdefault(fault.text, fault)
    placed = [((marks or Marks()).where(fault.path, name=fault.name), fault.text) for fault in told.values()]
    placed.sort(key=lambda each: (not each[0][1], each[0][0]))
    listed = "\n".join(f"  - {where}: {text}" if where else f"  - {text}" for (_, where), text in placed)
    for value, shown in (hidden or {}).items():
        listed = listed.replace(repr(value), shown)
    return ConfigurationError(f"{origin} has {plural(len(told), 'fault')}; nothing was touched:\n{listed}")


def faults_of(
    error: ValidationError,
    options: Mapping[Any, Any],
    root: type[BaseModel],
    *,
    moved: Moved = lambda path: path,
    beside: Collection[str] = (),
) -> list[Fault]:
    """The faults of the options, which were to be a ``root``. ``beside``: what else is known at the top of the file."""
    described = list(_described(error.errors(include_url=False), options, root, beside))
    meant = {(*path[:-1], known) for path, known, _ in described if known}
    faults: dict[tuple[object, ...], Fault] = {}
    for path, known, fault in described:
        if fault["type"] == "missing" and path in meant:
            continue  # it is there, misspelled, which is a fault already
        if fault["type"] == "too_short" and any(other[: len(path)] == path != other for other, _, _ in described):
            continue  # what is in it has faults, and wasn't counted
        made = _fault(path, known, fault, options, moved)
        place = (path, made.name, made.text if fault["type"] == "value_error" else "")
        if place in faults:  # each alternative of a union has its own fault
            made = replace(made, text=_either(faults[place].text, made.text, f"{dotted(moved(path))}: "))
        faults[place] = made
    return list(faults.values())


def described(
    error: ValidationError, options: Mapping[Any, Any], root: type[BaseModel], beside: Collection[str] = ()
) -> Iterator[tuple[Path, str | None, str]]:
    """Of each fault the path of its option, the name that was meant instead of it, and pydantic's type."""
    for path, known, fault in _described(error.errors(include_url=False), options, root, beside):
        yield path, known, fault["type"]


def _described(
    raw: Iterable[Any], options: Mapping[Any, Any], root: type[BaseModel], beside: Collection[str]
) -> Iterator[tuple[Path, str | None, dict[str, Any]]]:
    """Each fault with the path of its option, and the name that was meant instead of it."""
    for fault in _flat(raw):
        path, kind, known = _path(fault, options), fault["type"], None
        if kind == "extra_forbidden":
            names = [*_known(path[:-1], options, root), *(beside if len(path) == 1 else ())]
            known = nearest(path[-1], names)
            fault["known"] = sorted(names)
        if kind.startswith("model_"):
            fault["example"] = _example(_fields(path, options, root))
        if kind == "union_tag_not_found":
            tag = "format" if _is_format(path) else "type"
            given = _at(options, path)
            wrong = [name for name in given if nearest(name, [tag])] if isinstance(given, Mapping) else []
            path = (*path, wrong[0] if wrong else tag)
            fault["type"], known = ("extra_forbidden", tag) if wrong else ("tag_missing", None)
        yield path, known, fault


def _flat(raw: Iterable[Any], above: Path = ()) -> Iterator[dict[str, Any]]:
    """The faults, also those of options that were checked within the check of another."""
    for fault in raw:
        loc = (*above, *fault["loc"])
        if fault["type"] == NESTED:
            yield from _flat(fault["ctx"]["faults"], loc)
        else:
            yield {**fault, "loc": loc}


def _path(fault: Mapping[str, Any], options: Mapping[Any, Any]) -> Path:
    """The path of the option: pydantic's without what the file doesn't have, such as the alternative that it tried."""
    path: Path = ()
    here: Any = options
    loc = fault["loc"]
    for index, part in enumerate(loc):
        if (index == 2 and loc[0] == "sinks" and part in SINK_TYPES) or (part in FORMATS and _is_format(loc[:index])):
            continue
        there, below = _step(here, part)
        if there:
            path, here = (*path, part), below
        elif fault["type"] == "missing" and index == len(loc) - 1:
            path = (*path, part)
    return path


def _is_format(path: Sequence[object]) -> bool:
    """Whether a format stands at this path: of the file, or of a flow."""
    return bool(path) and path[-1] in FORMATTED and (len(path) == 1 or (path[0] == _FLOWS and len(path) == 3))


def is_there(options: Mapping[Any, Any], path: Path, beside: str) -> bool:
    """Whether the options have one of the name ``beside`` next to the one at ``path``."""
    return _step(_at(options, path[:-1]), beside)[0]


def _step(here: Any, part: str | int) -> tuple[bool, Any]:
    if isinstance(here, Mapping):
        return (True, here[part]) if part in here else (False, None)
    if isinstance(here, list | tuple) and isinstance(part, int) and part < len(here):
        return True, here[part]
    return False, None


def _at(options: Any, path: Path) -> Any:
    for part in path:
        there, options = _step(options, part)
        if not there:
            return None
    return options


def _fault(path: Path, known: str | None, raw: dict[str, Any], options: Mapping[Any, Any], moved: Moved) -> Fault:
    kind, where = raw["type"], dotted(moved(path))
    if kind == "extra_forbidden":
        instead = f"did you mean {known}?" if known else f"known are {', '.join(raw.get('known', ()))}"
        return Fault(moved(path), f"{where}: unknown option, {instead}", name=True)
    if kind in ("union_tag_invalid", "tag_missing"):
        names, tag = (FORMATS, "format") if path[0] in (*FORMATTED, _FLOWS) else (SINK_TYPES, "type")
        path = path if kind == "tag_missing" else (*path, tag)
        what = "is missing: write" if kind == "tag_missing" else "is"
        instead = f"{what} one of {', '.join(map(str, names))}"
        not_this = "" if kind == "tag_missing" else found(path, _at(options, path), names)
        return Fault(moved(path), f"{dotted(moved(path))}: {instead}{not_this}")
    if kind == "missing" and path == ("sinks",):
        return Fault(path, "sinks: is missing: write sinks, or route or tables instead")
    message = wish(raw, path)
    place = _named_in(message, path, options)
    if not where:  # a fault of several options begins with the name of the first one
        return Fault(moved(place), message)
    return Fault(moved(place), f"{where}{'.' if _OPTION.match(message) else ': '}{message}")


def _named_in(message: str, path: Path, options: Mapping[Any, Any]) -> Path:
    """The option that the message names first, if the file has it; else the path that is known."""
    word = _FIRST_WORD.match(message)
    if word is None:
        return path
    name = word[0].strip(".")
    ways: list[Path] = [(name,), tuple(name.split(".")), _below(name)]
    sinks = options.get("sinks")
    below: list[Path] = [("sinks", index) for index in range(len(sinks))] if isinstance(sinks, list) else []
    starts: list[Path] = [path] if path else [(), *below]
    for start in starts:
        for way in ways:
            if _at(options, (*start, *way)) is not None:
                return (*start, *way)
    if path:
        return path
    # One that isn't in the file: what it is a part of stands there, or the option that asks for it.
    asking = [option for option in _SINKS if option in options and re.search(rf"\b{option}\b", message)]
    return ways[1] if ways[1][0] in options else tuple(asking[:1])


def _below(name: str) -> Path:
    """The path of an option that is named as ``flows[0].value``."""
    return tuple(int(part) if part.isdigit() else part for part in re.split(r"[.\[\]]+", name) if part)


def _either(before: str, now: str, option: str) -> str:
    if now == before:
        return before
    first, second = before.removeprefix(option), now.removeprefix(option).removeprefix("write ")
    return f"{option}{first.rpartition(', not ')[0] or first} or {second}"


def _known(path: Path, options: Mapping[Any, Any], root: type[BaseModel]) -> list[str]:
    """The names of all options that may stand at this path."""
    return list(_fields(path, options, root))


def _fields(path: Path, options: Mapping[Any, Any], root: type[BaseModel]) -> dict[str, FieldInfo]:
    """The options that may stand at this path, by name."""
    models, here = [root], options
    for part in path:
        here = _step(here, part)[1]
        fields = [
            field for model in models for name, field in model.model_fields.items() if (field.alias or name) == part
        ]
        if fields:  # an index of a list, or a key of a mapping, has the models of the whole
            models = [model for field in fields for model in _models(field.annotation)]
        models = _likely(models, here)
    return {field.alias or name: field for model in models for name, field in model.model_fields.items()}


def _example(fields: Mapping[str, FieldInfo]) -> list[str]:
    """The options to show as an example: what has to be given, or else the first."""
    tags = [tag for tag in ("type", "format") if tag in fields][:1]
    required = [name for name, field in fields.items() if field.is_required()]
    return list(dict.fromkeys([*tags, *(required or fields)]))[: 2 if required else 1]


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)


def _likely(models: list[type[BaseModel]], given: Any) -> list[type[BaseModel]]:
    """Of several alternatives those that the given options are meant for."""
    if not isinstance(given, Mapping) or len(models) < 2:
        return models

    def fit(model: type[BaseModel]) -> int:
        fields = {field.alias or name: field for name, field in model.model_fields.items()}
        tags = [
            tag for tag in ("type", "format") if tag in fields and given.get(tag) in get_args(fields[tag].annotation)
        ]
        return len(fields.keys() & given.keys()) + 100 * len(tags)

    best = max(map(fit, models))
    return [model for model in models if fit(model) == best]
