"""The types that options are made of: text, durations, and unions of a word and a mapping."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetJsonSchemaHandler,
    SecretStr,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError

from connector.config.nearest import did_you_mean
from sinks.delta.table import COORDINATES
from sinks.kafka import SECRET

if TYPE_CHECKING:
    from typing_extensions import Self

OWN_COLUMNS = (
    *COORDINATES, "_sequence", "_deleted", "_deleted_by", "_columns", "_delete", "_truncate", "_tombstone", "_state",
    "_applied", "_key", "_headers", "_problem", "_raw", "_op", "_source", "_ts_ms", "_transaction",
    "_source_position", "_unavailable", "_epoch", "__start_at", "__end_at", "_system_sequence",
    "__system_start_at", "__system_end_at",
)  # fmt: skip
"""Names that a value's column can't have: Lakelock uses them in its tables, or on the way to them."""


REFERENCE = re.compile(r"\$\{(env|file):([^}]*)\}")
"""What stands for the value of an environment variable, or the content of a file."""
_SECRET_WITHIN = re.compile(
    r"(?i)(;\s*token|-D[\w.-]*(password|passwd|passphrase|secret|token|credential)[\w.-]*)\s*=\s*(?!\$\{)\S"
)
"""A secret within another option: in the URL of a Spark Connect server, or among Java's options."""


Check: TypeAlias = Callable[..., Iterable[str] | None]
"""Says what doesn't go together: by what it returns, or by a ValueError."""
_Method = TypeVar("_Method", bound=Check)
_FITS = "_options_fit"


def fits(check: _Method) -> _Method:
    """A method that checks whether the values of several options go together. All of a model's are heard."""
    setattr(check, _FITS, True)
    return check


class Options(BaseModel):
    """A group of options. Unknown options are errors, and values are immutable."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, str_strip_whitespace=False,
        hide_input_in_errors=True,  # it may be a secret
    )  # fmt: skip

    @model_validator(mode="after")
    def _all_fit(self) -> Self:
        """Say all that doesn't go together at once."""
        refuse([fault for name in _checks_of(type(self)) for fault in told(getattr(self, name))])
        return self


@cache
def _checks_of(model: type[Options]) -> tuple[str, ...]:
    """The names of its checks, in the order of their definition. One that is defined again counts once."""
    attributes = {name: value for kind in reversed(model.mro()) for name, value in vars(kind).items()}
    return tuple(name for name, value in attributes.items() if hasattr(value, _FITS))


def told(check: Callable[[], Iterable[str] | None]) -> list[str]:
    """What a check says is wrong."""
    faults: list[str] = []
    try:
        for fault in check() or ():
            faults.append(fault)  # those before an error count too
    except PydanticCustomError as error:
        faults += [str(fault["msg"]) for fault in (error.context or {})["faults"]]
    except ValueError as error:
        faults.append(str(error))
    return faults


def _text(value: object) -> object:
    """Turn a number or a boolean back into text: YAML parses `9092` and `true`, while Kafka and Spark take text."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


ANY_TEXT: dict[str, Any] = {"type": ["string", "number", "boolean"]}
"""The JSON schema of a text that YAML may take for something else."""
NAME_OR_NAMES: dict[str, Any] = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
"""The JSON schema of a list of names, of which one may stand alone."""
Text: TypeAlias = Annotated[str, BeforeValidator(_text), WithJsonSchema(ANY_TEXT)]
OptionText: TypeAlias = Annotated[str | SecretStr, BeforeValidator(_text), WithJsonSchema(ANY_TEXT)]


def as_written(value: object) -> object:
    """Refuse what YAML doesn't take for text, where another text would be another thing. It turns NO into false and 010
    into 8."""
    if isinstance(value, int | float):
        raise ValueError(f'write it in quotes, as in "NO" or "010": YAML takes it for {str(value).lower()}, not text')
    return value


Name: TypeAlias = Annotated[str, BeforeValidator(as_written)]
"""A text that names something: a table, a column, a file."""


class AlsoWritten:
    """Says in the JSON schema how else an option may be written than as its type."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._schema = schema

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"anyOf": [self._schema, handler(schema)]}


def topic_name(name: str) -> str:
    """Check a topic name. Raises ValueError."""
    if re.fullmatch(r"[A-Za-z0-9._-]{1,249}", name) is None:
        raise ValueError("a topic's name is made of letters, digits, dots, hyphens and underscores")
    return name


_LONGEST = timedelta(days=365_000)
_UNITS = {"millisecond": 0.001, "second": 1, "minute": 60, "hour": 3600, "day": 86400}
_DURATION = rf"\s*(\d+(?:\.\d+)?)\s*({'|'.join(_UNITS)})s?\s*"


def _duration(value: object) -> object:
    if value == 0 and not isinstance(value, bool):
        return timedelta(0)
    if isinstance(value, str):
        match = re.fullmatch(_DURATION, value)
        if match is None:
            raise ValueError("write a number and a unit, as in `10 seconds`, `5 minutes`, `1 hour`")
        seconds = float(match[1]) * _UNITS[match[2]]
        if seconds > _LONGEST.total_seconds():  # or a time that is so long ago is before the year 1
            raise ValueError(f"write at most {_LONGEST.days} days")
        return timedelta(seconds=seconds)
    if not isinstance(value, timedelta):
        raise ValueError("write a number and a unit, as in `10 seconds`, `5 minutes`, `1 hour`")
    return value


def duration_text(value: timedelta) -> str:
    """A length of time as a pipeline file has it, to the microsecond."""
    micros = value // timedelta(microseconds=1)
    for unit, seconds in reversed(_UNITS.items()):
        length = round(seconds * 1_000_000)
        if micros % length == 0 and (micros or unit == "second"):
            count = micros // length
            return f"{count} {unit}" if count == 1 else f"{count} {unit}s"
    return f"{micros // 1000}.{micros % 1000:03} milliseconds"


Duration: TypeAlias = Annotated[
    timedelta,
    BeforeValidator(_duration),
    WithJsonSchema({"anyOf": [{"type": "string", "pattern": f"^{_DURATION}$"}, {"const": 0}]}),
]


NESTED = "nested"
"""Pydantic's type of a fault that has the faults of other options in its context."""


def as_model(model: type[BaseModel], value: object) -> BaseModel:
    """Validate ``value`` as this alternative of a union. Pydantic would report the errors of all alternatives.

    Raises PydanticCustomError with all faults, and the text of the first one.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        faults = error.errors(include_url=False)
        first = faults[0]
        place = dotted(tuple(part for part in first["loc"] if part != "[key]"))
        message = str(first["msg"]).removeprefix("Value error, ")
        text = f"{place}: {message}" if place else message
        raise PydanticCustomError(NESTED, "{summary}", {"summary": text, "faults": faults}) from None


def refuse(faults: Sequence[str]) -> None:
    """Raises ValueError, or PydanticCustomError with all faults if there are several. Without a fault neither."""
    if len(faults) > 1:
        told = [{"type": "value_error", "loc": (), "msg": fault, "input": None} for fault in faults]
        raise PydanticCustomError(NESTED, "{summary}", {"summary": "; ".join(faults), "faults": told})
    if faults:
        raise ValueError(faults[0])


def word_or_options(value: object, words: Sequence[str], model: type[Options], *, write: str) -> object:
    """Return one of ``words`` and an instance of ``model`` as they are, and a mapping as ``model``.

    ``write`` says in the error what to write. Raises ValueError for any other value.
    """
    if isinstance(value, Mapping):
        return as_model(model, value)
    if not isinstance(value, model) and value not in words:
        raise ValueError(f"write {write}, not {value!r}{did_you_mean(value, words)}")
    return value


def dotted(path: tuple[str | int, ...]) -> str:
    """The path of an option as text: ``sinks[0].path``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def in_clear(options: Mapping[str, Any]) -> dict[str, Any]:
    """Unwrap the secrets, to pass the options on. Never print the result."""
    return {name: _in_clear(value) for name, value in options.items()}


def _in_clear(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, Mapping):
        return in_clear(value)
    return [_in_clear(item) for item in value] if isinstance(value, list) else value


def literal_secrets(options: Mapping[str, str | SecretStr]) -> list[str]:
    """What is wrong with secrets that don't come from the environment or a file."""
    return [
        f"{name}: a secret in a file is copied with it, also into version control; write ${{env:NAME}} or "
        "${file:/path}"
        for name, value in options.items()
        if value
        and not isinstance(value, SecretStr)
        and not REFERENCE.fullmatch(value)  # in Python; of a file it is resolved before
        and (SECRET.search(name) or _SECRET_WITHIN.search(value))
    ]
