"""Enough of Spark's SQL for SQLite to run the text of a query.

SQLite has neither structs nor Spark's functions. A struct is a BLOB here that sorts as Spark sorts structs: field by
field, NULL lowest. ``field(struct, 'name')`` stands for ``struct.name``.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

STRUCTS: dict[bytes, Mapping[str, object]] = {}
"""What each BLOB stands for."""


def struct(**fields: object) -> bytes:
    def sortable(value: object) -> bytes:
        if value is None:
            return b"\0"
        if isinstance(value, int):
            return b"\1" + value.to_bytes(8, "big")
        return b"\1" + (value if isinstance(value, bytes) else str(value).encode() + b"\0")

    blob = b"".join(map(sortable, fields.values()))
    assert STRUCTS.setdefault(blob, fields) == fields
    return blob


def named_struct(*names_and_values: object) -> bytes:
    return struct(
        **{str(name): value for name, value in zip(names_and_values[::2], names_and_values[1::2], strict=True)}
    )


def raise_error(_: object) -> None:
    raise ValueError("the query fails")


def database() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", cached_statements=1000)
    connection.create_function("named_struct", -1, named_struct)
    connection.create_function("field", 2, lambda blob, name: None if blob is None else STRUCTS[blob][name])
    connection.create_function("greatest", -1, lambda *values: max((v for v in values if v is not None), default=None))
    connection.create_function("startswith", 2, lambda text, start: None if text is None else text.startswith(start))
    connection.create_function("concat", -1, lambda *texts: "".join(map(str, texts)))
    connection.create_function("to_json", 1, lambda _: "{}")
    connection.create_function("raise_error", 1, raise_error)
    return connection
