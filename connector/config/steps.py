"""The option ``steps``: what happens to the decoded columns before the sinks, one line for each change."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from connector.config.columns import Columns, distinct
from connector.config.kinds import ANY_TEXT, REFERENCE, Name, Options, Text, fits
from connector.config.registry import Secret
from connector.config.steady import steady

KINDS = ("rename", "drop", "mask", "flatten", "cast", "filter", "header", "add")
_TYPE = re.compile(
    r"BOOLEAN|TINYINT|SMALLINT|INT|BIGINT|FLOAT|DOUBLE|STRING|DATE|TIMESTAMP|TIMESTAMP_NTZ|DECIMAL\((\d+),(\d+)\)"
)
_SHORTEST_SALT = 16
_LARGEST = 2**63
_MOST_DIGITS = 38


def _as_type(text: str) -> str:
    """A type as Spark writes it. Raises ValueError for one that no value can be cast to exactly."""
    name = re.sub(r"\s", "", text).upper()
    name = {"INTEGER": "INT", "LONG": "BIGINT"}.get(name, name)
    found = _TYPE.fullmatch(name)
    if found is None:
        raise ValueError(
            f"write BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, DECIMAL(10,2), STRING, DATE, TIMESTAMP or "
            f"TIMESTAMP_NTZ, not {text!r}"
        )
    if found[1] is not None and not int(found[2]) <= int(found[1]) <= _MOST_DIGITS:
        raise ValueError(f"{text}: a DECIMAL has up to {_MOST_DIGITS} digits, and no more of them after the point")
    return name


def _constant(value: object) -> object:
    if not isinstance(value, bool | int | float | str):
        raise ValueError('write a text, a number, true or false. A time is a text in quotes, as in "2026-11-01"')
    if isinstance(value, int) and not -_LARGEST <= value < _LARGEST:
        raise ValueError("is no BIGINT; write it in quotes, and cast it to a DECIMAL in the next step")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("is no finite number")
    return value


_Names: TypeAlias = Annotated[Mapping[Name, Name], Field(min_length=1)]
_Constant: TypeAlias = Annotated[bool | int | float | str, BeforeValidator(_constant), WithJsonSchema(ANY_TEXT)]
_Distinct: TypeAlias = Annotated[Columns, AfterValidator(distinct)]


class Step(Options):
    """One of the ``steps``. Each has one of these options, and ``mask`` has its ``salt``."""

    rename: _Names | None = None
    """Rename columns: {old: new}."""
    drop: _Distinct | None = None
    """Remove columns."""
    mask: _Distinct | None = None
    """Replace the values of columns by a hash: HMAC-SHA-256 with the ``salt`` as its key, 64 hexadecimal digits. Who
    doesn't know the salt can't find out the values. Equal values have equal hashes. A null stays null. For text,
    bytes, whole numbers, decimals, booleans and dates."""
    salt: Secret | None = None
    """The secret key of ``mask``, at least 16 bytes. Only as ${env:NAME} or ${file:/path}. Another salt gives other
    hashes, so keep it."""
    flatten: _Distinct | None = None
    """Replace STRUCT columns by a column for each field, also of nested ones: ``address.city`` becomes
    ``address_city``."""
    cast: Annotated[Mapping[Name, Annotated[Name, AfterValidator(_as_type)]], Field(min_length=1)] | None = None
    """Change types: {column: type}. A value that the type can't hold exactly makes a bad record. Text to any type,
    numbers to numbers, and numbers, booleans and dates to text."""
    filter: Annotated[Text, AfterValidator(steady)] | None = None
    """Keep the records that meet a SQL condition, as in ``amount > 0``. Deletes are always kept: tombstones, and
    Debezium's events with ``_op = 'd'``. A table with a key keeps truncates, ``_op = 't'``, too."""
    header: _Names | None = None
    """Add columns with the text of Kafka headers: {column: header}. Null where a record doesn't have the header; of
    several headers of one name, the last counts. One that is no UTF-8 text makes a bad record."""
    add: Annotated[Mapping[Name, _Constant], Field(min_length=1)] | None = None
    """Add columns that have the same value in all rows: {column: value}. A text gives a STRING, a whole number a
    BIGINT, a number with a point a DOUBLE, true and false a BOOLEAN."""

    @fits
    def _one_step(self) -> None:
        given = [kind for kind in KINDS if getattr(self, kind) is not None]
        if len(given) != 1:
            has = f"this one has {' and '.join(given)}" if given else "this one has none"
            raise ValueError(f"a step has one of {', '.join(KINDS)}, and {has}. Write an item of the list for each")

    @fits
    def _salted(self) -> None:
        if (self.mask is None) != (self.salt is None):
            raise ValueError("mask needs salt beside it, as in {mask: [email], salt: '${env:MASK_SALT}'}")
        text = self.salt.get_secret_value() if self.salt is not None else ""
        # In Python a reference is resolved later.
        if self.salt is not None and not REFERENCE.fullmatch(text) and len(text.encode()) < _SHORTEST_SALT:
            raise ValueError(f"salt: is shorter than {_SHORTEST_SALT} bytes, so that it could be guessed")

    @property
    def kind(self) -> str:
        """Which step it is."""
        return next(kind for kind in KINDS if getattr(self, kind) is not None)

    @property
    def option(self) -> Any:
        """What it is given."""
        return getattr(self, self.kind)

    @property
    def takes(self) -> Sequence[str]:
        """The columns that it names, and that have to be there."""
        return () if self.kind in ("filter", "header", "add") else tuple(self.option)


def names_before(steps: Sequence[Step], columns: Sequence[str]) -> tuple[str, ...]:
    """The names that columns have before the steps: where Kafka's key has to have them for a tombstone."""
    names = tuple(columns)
    for step in reversed(steps):
        old = {new: name for name, new in (step.rename or {}).items()}
        names = tuple(old.get(name, name) for name in names)
    return names


class Change(NamedTuple):
    """What a step does to a column otherwise than to give it another name."""

    step: int
    kind: str
    column: str
    """Its name before the step, or that of the new column."""

    @property
    def takes_away(self) -> bool:
        """Whether the column isn't there any more."""
        return self.kind in ("drop", "rename", "flatten")


def changes(steps: Sequence[Step]) -> Mapping[str, Sequence[Change]]:
    """Column in small letters -> what the steps have done to it, in their order. That of a column that is gone ends
    with the step that took it."""
    changed: dict[str, tuple[Change, ...]] = {}
    for index, step in enumerate(steps):
        if step.filter is not None:
            continue
        now = {name.lower(): Change(index, step.kind, name) for name in step.option}
        if step.rename is not None:
            moved = {new.lower(): changed.get(old.lower(), ()) for old, new in step.rename.items()}
            changed |= {old: (change,) for old, change in now.items()} | moved
        elif step.kind in ("add", "header"):
            changed |= {name: (change,) for name, change in now.items()}
        else:
            changed |= {name: (*changed.get(name, ()), change) for name, change in now.items()}
        for part in step.flatten or ():  # a field may have the name of a column that was there
            changed = {name: past for name, past in changed.items() if not _may_be_new(part, name, past)}
    return changed


def _may_be_new(part: str, name: str, past: Sequence[Change]) -> bool:
    return name.startswith(f"{part.lower()}_") and any(change.takes_away for change in past)
