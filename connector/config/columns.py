"""Options that list columns: one name, or several."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from connector.config.kinds import NAME_OR_NAMES, Name


def one_or_more(value: object) -> object:
    """A list, also if only one name was given."""
    return [value] if isinstance(value, str) else value


def distinct(columns: tuple[str, ...]) -> tuple[str, ...]:
    """Check that no column is named twice. Raises ValueError."""
    names = [column.lower() for column in columns]
    twice = next((column for column in columns if names.count(column.lower()) > 1), None)
    if twice is not None:
        raise ValueError(f"names the column {twice} twice; capitals make no difference")
    return columns


Columns: TypeAlias = Annotated[
    tuple[Name, ...], BeforeValidator(one_or_more), Field(min_length=1), WithJsonSchema(NAME_OR_NAMES)
]
AnyColumns: TypeAlias = Annotated[
    tuple[Name, ...], BeforeValidator(one_or_more), AfterValidator(distinct), WithJsonSchema(NAME_OR_NAMES)
]
"""May be empty."""
