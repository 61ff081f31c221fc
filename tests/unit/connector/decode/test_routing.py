"""Which table a record of a route names, in the pipeline and in the auditor, by SQLite."""

from __future__ import annotations

import re
import sqlite3
from typing import Any

import pytest

from connector.audit.formats import _route
from connector.config import parse
from connector.engine.decoders import _routing

VALUES = [b"a", "é".encode(), b"\xff", b"a\xff", b"\xed\xa0\x80", b"", b"(other)", None]


def named(**route: Any) -> list[bytes]:
    """The values that name a table, as bytes: in Python one that is no UTF-8 text would be another one."""
    config = parse(
        {
            "name": "p",
            "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "127.0.0.1:9092"}},
            "value": {"format": "json", "schema": "id INT"},
            "headers": True,
            "coordinator": {"path": "lake/log"},
            "route": {"by": "kind", "sink": {"type": "delta_append", "path": "lake/{route}"}, **route},
        }
    )
    ours = _routing(config)
    assert ours is not None
    assert config.route is not None
    connection = sqlite3.connect(":memory:")
    connection.create_function("is_valid_utf8", 1, lambda text: None if text is None else _text(text))
    connection.create_function("decode", 2, lambda text, _: None if text is None else text.decode("utf-8", "replace"))
    connection.create_function("encode", 2, lambda text, _: None if text is None else text.encode())
    connection.execute("CREATE TABLE records (kind BLOB)")
    connection.executemany("INSERT INTO records VALUES (?)", [(value,) for value in VALUES])

    def found(sql: str) -> list[bytes]:
        sql = sql.replace("AS STRING", "AS BLOB").replace("AS BINARY", "AS BLOB").replace("IF(", "iif(")
        sql = re.sub("(?<!X)'([^']*)'", lambda text: f"X'{text[1].encode().hex()}'", sql)  # all texts are bytes
        names = connection.execute(f"SELECT {sql} FROM records").fetchall()
        return [name for (name,) in names if name is not None]

    assert found(ours.sql) == found(_route(config, config.route, ["t"]).sql)
    return found(ours.sql)


def _text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


@pytest.mark.parametrize(("route", "names"), [({}, VALUES[:2]), ({"values": ["a", "b"]}, [b"a"])])
def test_a_table_is_named_by_a_text(route: Any, names: list[bytes]) -> None:
    assert named(**route) == names
