"""A key column that is renamed, as docs/derived-state.md allows it: what was deleted before stays deleted."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import Lake, Topic

from connector import Pipeline
from sinks.delta.tombstones import FOLDER
from sinks.errors import SchemaMismatch


def pipeline(lake: Lake, kind: str, key: str) -> Pipeline:
    sink: dict[str, Any] = {"key": key, "sequence_by": "seq", "apply_as_deletes": "op = 'd'"}
    sink |= {"except_column_list": ["op"], "properties": {"delta.columnMapping.mode": "name"}}
    return lake.pipeline(kind, schema=f"{key} STRING, n INT, seq INT, op STRING", sink=sink)


def send(topic: Topic, key: str, *changes: tuple[str, int, int, str]) -> None:
    topic.send(*((name, {key: name, "n": n, "seq": seq, "op": op}) for name, n, seq, op in changes))


def as_it_says(lake: Lake, kind: str, pipeline: Pipeline, why: str) -> None:
    """Runs the statements of the error's hint."""
    version, noted = len(lake.commits(kind)), len(lake.commits(f"{kind}/{FOLDER}"))
    with pytest.raises(SchemaMismatch, match=why) as raised:
        pipeline.run()
    assert (len(lake.commits(kind)), len(lake.commits(f"{kind}/{FOLDER}"))) == (version, noted)
    hint = str(raised.value.hint)
    for statement in hint[hint.index("ALTER TABLE") :].split("; "):
        lake.sql(statement)


@pytest.mark.breadth
@pytest.mark.parametrize(
    ("kind", "columns", "expected"),
    [
        (
            "history",
            "order_id, n, __START_AT, __END_AT",
            [("A", 1, 10, 14), ("A", 2, 14, None), ("B", 1, 10, 12), ("B", 2, 12, 15)],
        ),
        ("upsert", "order_id, n", [("A", 2)]),
    ],
)
def test_its_deletes_hold_under_the_new_name(
    kind: str, columns: str, expected: list[tuple[Any, ...]], lake: Lake, topic: Topic
) -> None:
    send(topic, "id", ("A", 1, 10, "u"), ("B", 1, 10, "u"), ("B", 1, 15, "d"))
    pipeline(lake, kind, "id").run()
    lake.sql("ALTER TABLE {t} RENAME COLUMN id TO order_id", kind)
    renamed = pipeline(lake, kind, "order_id")
    send(topic, "order_id", ("C", 1, 20, "d"), ("A", 2, 14, "u"), ("B", 2, 12, "u"))
    as_it_says(lake, kind, renamed, "key was id, and is order_id now")
    as_it_says(lake, kind, renamed, "is order_id, and the deletes that are remembered beside it are kept by id")
    renamed.run()
    assert sorted(lake.sql(f"SELECT {columns} FROM {{t}}", kind)) == expected


@pytest.mark.breadth
@pytest.mark.parametrize("kind", ["history", "upsert"])
def test_another_key_after_a_rewind_to_the_beginning(kind: str, lake: Lake, topic: Topic) -> None:
    """The deletes of before are kept aside by the former key, and no row is left that they could be about."""
    send(topic, "id", ("A", 1, 10, "u"), ("B", 1, 10, "u"), ("B", 1, 15, "d"), ("A", 2, 10, "u"))
    sink: dict[str, Any] = {"sequence_by": "seq", "apply_as_deletes": "op = 'd'", "except_column_list": ["op"]}

    def keyed(*key: str) -> Pipeline:
        return lake.pipeline(kind, schema="id STRING, n INT, seq INT, op STRING", sink={**sink, "key": list(key)})

    keyed("id").run()
    keyed("id").rewind(to_epoch=0, confirm=lambda _: True)
    other = keyed("id", "n")
    as_it_says(lake, kind, other, "is id, n, and the deletes that are remembered beside it are kept without it")
    other.run()
    open_now = "__END_AT IS NULL" if kind == "history" else "true"
    assert sorted(lake.sql(f"SELECT id, n FROM {{t}} WHERE {open_now}", kind)) == [("A", 1), ("A", 2)]
