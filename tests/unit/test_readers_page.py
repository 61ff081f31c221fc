"""The ways of docs/readers.md to read a table without Spark, on tables that some readers get wrong."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pages import blocks

SECTION = "Python without Spark"
NAME = "delta.columnMapping.physicalName"
ROWS = [("Köln", 200), ("Ulm", 300)]


def utc(year: int, hour: int = 0) -> datetime:
    return datetime(year, 1, 1, hour, tzinfo=timezone.utc)


@dataclass(frozen=True)
class Kind:
    """A table with city and total, and what is special about it."""

    stored: Mapping[str, str] = field(default_factory=dict)
    """Column -> its name in the files, if others are used there."""
    left: Mapping[str, Any] = field(default_factory=dict)
    """Columns of the files that the table has no more, with a value."""
    more: Mapping[str, tuple[str, Any]] = field(default_factory=dict)
    """Further columns of the table: their type and value."""
    partition: str = ""
    """SQL's name of a column of ``more`` whose value isn't in the files."""
    logged: str = ""
    """The partition's value in the log."""
    folder: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)


MAPPED = {"city": "col-1", "total": "col-2"}
BY_NAME = {"delta.columnMapping.mode": "name"}
KINDS: Mapping[str, Kind] = {
    "plain": Kind(),
    "column mapping by name": Kind(MAPPED, properties=BY_NAME),
    "column mapping by id": Kind(MAPPED, properties={"delta.columnMapping.mode": "id"}),
    "a renamed column": Kind({"city": "town", "total": "total"}, properties=BY_NAME),
    "a column that was dropped and is back": Kind(
        {"city": "city", "total": "total", "note": "col-9"},
        left={"note": "of the dropped one"},
        more={"note": ("string", None)},
        properties=BY_NAME,
    ),
    "a partition by time, named in Berlin": Kind(
        more={"at": ("timestamp", utc(2020, 10))},
        partition="at",
        logged="2020-01-01T10:00:00.000000Z",
        folder="at=2020-01-01 11%3A00%3A00",
    ),
    "partitions in folders of any name": Kind(
        more={"area": ("string", "west")}, partition="area", logged="west", folder="Xy"
    ),
    "an end of time": Kind(more={"until": ("timestamp", utc(9999))}),
}


def make(folder: Path, kind: Kind) -> None:
    """One commit, as Spark's Delta writes it: reader version 1, or 2 with column mapping."""
    inside = {name: value for name, (_, value) in kind.more.items() if name not in {kind.partition, *kind.left}}
    values = {"city": [city for city, _ in ROWS], "total": [total for _, total in ROWS]}
    values |= {name: [value] * len(ROWS) for name, value in {**inside, **kind.left}.items()}
    written = pa.table({name if name in kind.left else kind.stored.get(name, name): of for name, of in values.items()})
    file = folder / kind.folder / "part.parquet"
    file.parent.mkdir(parents=True)
    pq.write_table(written, file, use_deprecated_int96_timestamps=True)
    types = {"city": "string", "total": "long", **{name: type_ for name, (type_, _) in kind.more.items()}}
    fields = [
        {"name": name, "type": type_, "nullable": True, "metadata": _mapping(kind, name, number)}
        for number, (name, type_) in enumerate(types.items(), start=1)
    ]
    partitions = [kind.partition] if kind.partition else []
    actions: Sequence[Mapping[str, Any]] = [
        {"protocol": {"minReaderVersion": 2 if kind.stored else 1, "minWriterVersion": 5 if kind.stored else 2}},
        {
            "metaData": {
                "id": "a",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": fields}),
                "partitionColumns": partitions,
                "configuration": {**kind.properties, "delta.columnMapping.maxColumnId": "9"} if kind.stored else {},
                "createdTime": 1,
            }
        },
        {
            "add": {
                "path": urllib.parse.quote(file.relative_to(folder).as_posix(), safe="/="),
                "partitionValues": {kind.partition: kind.logged} if kind.partition else {},
                "size": file.stat().st_size,
                "modificationTime": 1,
                "dataChange": True,
            }
        },
    ]
    log = folder / "_delta_log"
    log.mkdir()
    (log / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))


def _mapping(kind: Kind, name: str, number: int) -> Mapping[str, Any]:
    return {"delta.columnMapping.id": number, NAME: kind.stored[name]} if kind.stored else {}


def expected(kind: Kind) -> list[dict[str, Any]]:
    more = {name: value for name, (_, value) in kind.more.items()}
    return [{"city": city, "total": total, **more} for city, total in ROWS]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_what_the_page_shows_is_right_for_each_kind_of_table(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its Python runs as it stands, but for the columns that it asks for."""
    make(tmp_path / "lake" / "orders", kind)
    monkeypatch.chdir(tmp_path)
    read, *others = (block.text for block in blocks("docs/readers.md", SECTION))
    asked = f"SELECT {', '.join(expected(kind)[0])} FROM"
    scope: dict[str, Any] = {}
    exec(read.replace("SELECT city, total FROM", asked), scope)
    assert pa.table(scope["rows"]).to_pylist() == expected(kind)
    assert pl.DataFrame(scope["rows"]).to_dicts() == expected(kind)
    for text in others:
        *before, last = text.strip().split("\n")
        exec("\n".join(before), scope)
        found = eval(last, scope)
        assert sorted(found.rows() if isinstance(found, pl.DataFrame) else found.fetchall()) == ROWS
    assert len(others) == 2


def by_dataset(path: Path) -> list[dict[str, Any]]:
    return list(DeltaTable(str(path)).to_pyarrow_dataset().to_table().to_pylist())


def by_scan(path: Path) -> list[dict[str, Any]]:
    return list(pl.scan_delta(str(path)).collect().to_dicts())


WRONG = {
    by_dataset: [name for name in KINDS if "column" in name],
    by_scan: [name for name in KINDS if "partition" in name],
}


@pytest.mark.parametrize("way", [by_dataset, by_scan])
def test_the_page_warns_of_ways_that_give_wrong_values(
    way: Callable[[Path], list[dict[str, Any]]], tmp_path: Path
) -> None:
    """A newer release that is right makes this fail: then the page can recommend its way again."""
    wrong = []
    for number, (name, kind) in enumerate(KINDS.items()):
        make(tmp_path / str(number), kind)
        try:
            found = way(tmp_path / str(number))
        except Exception:  # what they raise is theirs; the page asks for an error or the right rows
            continue
        if found != expected(kind):
            wrong.append(name)
    assert wrong == WRONG[way]
