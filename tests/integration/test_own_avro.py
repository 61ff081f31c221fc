"""Several types of Avro records in one topic: each has a table, read by a subject or a schema file of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from another_engine import query
from avro_bytes import field, framed, record
from conftest import Lake
from registry import RegistryServer, registry_server
from routing import Routed, dying_before_the_commit_of
from typer.testing import CliRunner

from connector import Pipeline
from connector.cli.app import app
from sinks.errors import SchemaMismatch

ORDER = record(field("id", "long"), field("total", "double"))
REFUND = record(field("id", "long"), field("why", "string"), name="shop.Refund")
MORE = record(field("id", "long"), field("why", "string"), field("by", "string", default=""), name="shop.Refund")
RETURN = record(field("id", "long"), name="shop.Return")
ID = field("id", "long")
NOTED = (field("kind", "string"), field("note", "string"))
UPSERT = {"type": "delta_upsert", "key": "id"}


def order(number: int, total: float) -> tuple[None, bytes]:
    return None, framed(1, ORDER, {"id": number, "total": total})


def refund(number: int, why: str) -> tuple[None, bytes]:
    return None, framed(2, REFUND, {"id": number, "why": why})


def more(number: int, why: str, by: str) -> tuple[None, bytes]:
    return None, framed(4, MORE, {"id": number, "why": why, "by": by})


@pytest.fixture
def routed(lake: Lake) -> Routed:
    return Routed(lake)


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with registry_server() as server:
        server.register("shop.Order", 1, ORDER)
        server.register("shop.Refund", 2, REFUND)
        server.register("shop.Return", 3, RETURN)
        yield server


def pipeline_file(routed: Routed, registry: RegistryServer, folder: Path, *, letters: bool = True, **more: Any) -> Path:
    """A pipeline whose records name their table by their schema."""
    lake = routed.lake.folder
    options = routed.options()
    options["value"] = {"format": "avro", "registry": {"url": registry.url}}
    options["route"] = {
        "by": "_schema",
        "sink": {"type": "delta_append", "path": f"{lake}/{{route}}"},
        "overrides": {
            "shop.Order": {"value": {"subject": "shop.Order"}, "sink": {**UPSERT, "path": f"{lake}/orders"}},
            "shop.Refund": {"value": {"subject": "shop.Refund"}, "sink": {"path": f"{lake}/refunds"}},
        },
    }
    if letters:
        options |= {"on_bad_record": "dead_letter", "dead_letters": {"path": f"{lake}/_dead"}}
    file = folder / "shop.yaml"
    file.write_text(yaml.safe_dump({**options, **more}))
    return file


def routed_by_kind(routed: Routed, registry: RegistryServer, folder: Path, **more: Any) -> Path:
    """A pipeline whose records all have the schema of the topic's subject."""
    options = routed.options()
    options["value"] = {"format": "avro", "registry": {"url": registry.url}}
    options["route"] = {"by": "kind", "sink": {"type": "delta_append", "path": f"{routed.lake.folder}/{{route}}"}}
    file = folder / "noted.yaml"
    file.write_text(yaml.safe_dump({**options, **more}))
    return file


def told(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, [*arguments])
    assert result.exit_code == code, (arguments, result.output)
    return " ".join(result.output.split())


def verdict(file: Path) -> Any:
    return json.loads(CliRunner().invoke(app, ["verify", "--json", str(file)], catch_exceptions=False).stdout)


@pytest.mark.breadth
def test_each_type_of_record_has_a_table_with_the_columns_of_its_subject(
    routed: Routed, registry: RegistryServer, tmp_path: Path
) -> None:
    file, lake = pipeline_file(routed, registry, tmp_path), routed.lake.folder
    routed.topic.send(
        order(1, 1.5),
        refund(7, "late"),
        (None, framed(3, RETURN, {"id": 5})),  # a type without a table
        (None, framed(1, ORDER, {"id": 3, "total": 1.0}) + b"\0"),
        (None, framed(9, ORDER, {"id": 4, "total": 1.0})),  # of a schema that nobody has
        (None, b"{}"),
        order(1, 2.5),
        refund(8, "odd"),
        partition=0,
    )
    Pipeline.from_file(file).run()
    assert query(lake / "orders", "SELECT id, total FROM t") == [(1, 2.5)]
    assert query(lake / "refunds", "SELECT id, why FROM t ORDER BY 1") == [(7, "late"), (8, "odd")]
    columns = [row[0] for row in query(lake / "refunds", "DESCRIBE t")]
    assert columns == ["id", "why", "_topic", "_partition", "_offset", "_timestamp"]
    found = query(lake / "_dead", "SELECT _offset, reason FROM t ORDER BY 1")
    assert found == [(2, "route"), (3, "value"), (4, "value"), (5, "value")]
    audited = verdict(file)
    assert (audited["ok"], [each["verdict"] for each in audited["tables"]]) == (True, ["exact", "exact"])


@pytest.mark.breadth
def test_check_and_preview_show_each_type_and_the_auditor_finds_a_changed_row(
    routed: Routed, registry: RegistryServer, tmp_path: Path
) -> None:
    file, lake = pipeline_file(routed, registry, tmp_path, letters=False), routed.lake.folder
    routed.topic.send(order(1, 1.5), refund(7, "late"), order(1, 2.5), partition=0)
    checked = told("check", str(file))
    assert "2 for shop.Order, 1 for shop.Refund" in checked
    assert '{"id":1,"total":1.5}' in checked
    assert '{"id":7,"why":"late"}' in told("preview", str(file))
    Pipeline.from_file(file).run()
    assert verdict(file)["ok"]
    spark = routed.lake.spark
    assert spark is not None
    spark.sql(f"UPDATE delta.`{lake}/refunds` SET why = 'changed' WHERE id = 7").collect()
    assert not verdict(file)["ok"]


@pytest.mark.breadth
@pytest.mark.parametrize("has_column", [False, True])
def test_an_epoch_in_doubt_is_read_by_the_schemas_of_its_decision(
    routed: Routed, registry: RegistryServer, tmp_path: Path, has_column: bool
) -> None:
    """A subject gets a newer schema between two tables' commits. The table may have a column for it already."""
    file, lake = pipeline_file(routed, registry, tmp_path), routed.lake.folder
    registry.register("other", 4, MORE)  # not the subject's yet
    if has_column:
        columns = (
            "id BIGINT, why STRING, by STRING, _topic STRING, _partition INT, _offset BIGINT, _timestamp TIMESTAMP"
        )
        assert routed.lake.spark is not None
        routed.lake.spark.sql(f"CREATE TABLE delta.`{lake}/refunds` ({columns}) USING delta")
    routed.topic.send(order(2, 2.5), refund(8, "odd"), more(9, "new", "ann"), partition=0)
    with dying_before_the_commit_of("shop.Refund"):
        Pipeline.from_file(file).run()
    assert query(lake / "refunds", "SELECT * FROM t") == []
    registry.register("shop.Refund", 4, MORE)
    told("recover", str(file))
    assert query(lake / "refunds", "SELECT id, why FROM t ORDER BY 1") == [(8, "odd")]
    found = query(lake / "_dead", "SELECT _offset, detail FROM t")
    assert [offset for offset, _ in found] == [2]
    assert "has fields that its subject's newest schema at the run's start lacks: by" in found[0][1]


@pytest.mark.breadth
@pytest.mark.parametrize(
    "newer",
    [record(ID, field("kind", "string")), record(ID, *NOTED, field("by", "string", default=""))],
    ids=["without a field", "with one more"],
)
def test_the_newest_schema_of_all_records_stays_that_of_the_decision_while_an_epoch_is_in_doubt(
    routed: Routed, tmp_path: Path, newer: dict[str, Any]
) -> None:
    """The subject of all records gets a newer schema between two tables' commits, twice."""
    with registry_server() as registry:
        older, lake = record(ID, *NOTED), routed.lake.folder
        subject = f"{routed.topic.name}-value"
        registry.register(subject, 1, older)
        file = routed_by_kind(routed, registry, tmp_path)
        rows = [{"id": number, "kind": "ab"[number % 2], "note": f"n{number}"} for number in range(4)]
        routed.topic.send(*((None, framed(1, older, row)) for row in rows), partition=0)
        with dying_before_the_commit_of("b"):
            Pipeline.from_file(file).run()
        registry.register(subject, 2, newer)
        with dying_before_the_commit_of("b"):
            Pipeline.from_file(file).run()
        told("recover", str(file))
        for table, expected in (("a", [(0, "n0"), (2, "n2")]), ("b", [(1, "n1"), (3, "n3")])):
            assert query(lake / table, "SELECT id, note FROM t ORDER BY 1") == expected
        assert verdict(file)["ok"]


@pytest.mark.breadth
def test_a_run_that_finds_an_epoch_in_doubt_reads_what_follows_by_the_newest_schema(
    routed: Routed, tmp_path: Path
) -> None:
    """By the schema of the decision, the record that comes next couldn't be read."""
    with registry_server() as registry:
        older, newer, lake = record(ID, *NOTED), record(ID, field("kind", "string")), routed.lake.folder
        subject = f"{routed.topic.name}-value"
        registry.register(subject, 1, older)
        file = routed_by_kind(routed, registry, tmp_path)
        rows = [{"id": number, "kind": "ab"[number], "note": "n"} for number in range(2)]
        routed.topic.send(*((None, framed(1, older, row)) for row in rows), partition=0)
        with dying_before_the_commit_of("b"):
            Pipeline.from_file(file).run()
        registry.register(subject, 2, newer)
        routed.topic.send((None, framed(2, newer, {"id": 2, "kind": "a"})), partition=0)
        Pipeline.from_file(file).run()
        assert query(lake / "a", "SELECT id, note FROM t ORDER BY 1") == [(0, "n"), (2, None)]
        assert query(lake / "b", "SELECT id, note FROM t ORDER BY 1") == [(1, "n")]
        assert verdict(file)["ok"]


@pytest.mark.breadth
def test_a_retry_that_finds_an_epoch_in_doubt_reads_the_letters_by_the_newest_schema(
    routed: Routed, tmp_path: Path
) -> None:
    """By the schema of the decision, they would still be bad."""
    with registry_server() as registry:
        older, newer, lake = record(ID, *NOTED), record(ID, field("kind", "string")), routed.lake.folder
        subject, letters = f"{routed.topic.name}-value", {"path": f"{lake}/_dead"}
        registry.register(subject, 1, older)
        registry.register("other", 2, newer)  # not the subject's yet, which needs a note
        file = routed_by_kind(routed, registry, tmp_path, on_bad_record="dead_letter", dead_letters=letters)
        rows = [{"id": number, "kind": "ab"[number], "note": "n"} for number in range(2)]
        records = [*((None, framed(1, older, row)) for row in rows), (None, framed(2, newer, {"id": 2, "kind": "a"}))]
        routed.topic.send(*records, partition=0)
        with dying_before_the_commit_of("b"):
            Pipeline.from_file(file).run()
        assert query(lake / "_dead", "SELECT _offset FROM t") == [(2,)]
        registry.register(subject, 2, newer)
        retried = Pipeline.from_file(file).retry_dead_letters()
        assert (retried.through, retried.still_bad) == (1, 0)
        assert query(lake / "a", "SELECT id, note FROM t ORDER BY 1") == [(0, "n"), (2, None)]
        assert query(lake / "b", "SELECT id, note FROM t ORDER BY 1") == [(1, "n")]
        assert verdict(file)["ok"]


@pytest.mark.breadth
def test_a_newer_schema_needs_its_columns_and_then_takes_what_was_set_aside(
    routed: Routed, registry: RegistryServer, tmp_path: Path
) -> None:
    file, lake = pipeline_file(routed, registry, tmp_path), routed.lake.folder
    registry.register("other", 4, MORE)
    routed.topic.send(refund(8, "odd"), more(9, "new", "ann"), partition=0)
    Pipeline.from_file(file).run()
    registry.register("shop.Refund", 4, MORE)
    routed.topic.send(more(10, "newer", "bob"), partition=0)
    with pytest.raises(SchemaMismatch, match="column by string is missing in the table") as refused:
        Pipeline.from_file(file).run()
    assert "route.overrides.shop.Refund.value.schema_file" in (refused.value.hint or "")
    spark = routed.lake.spark
    assert spark is not None
    spark.sql(f"ALTER TABLE delta.`{lake}/refunds` ADD COLUMNS (by STRING)").collect()
    Pipeline.from_file(file).run()
    told("dead-letters", str(file), "--retry")
    rows = [(8, "odd", None), (9, "new", "ann"), (10, "newer", "bob")]
    assert query(lake / "refunds", "SELECT id, why, by FROM t ORDER BY 1") == rows
    assert verdict(file)["ok"]


@pytest.mark.breadth
def test_a_schema_file_of_its_own_beside_what_all_records_share(
    routed: Routed, registry: RegistryServer, tmp_path: Path
) -> None:
    lake, files = routed.lake.folder, {"shared.avsc": record(field("id", "long")), "refund.avsc": REFUND}
    for name, schema in files.items():
        (tmp_path / name).write_text(json.dumps(schema))
    registry.register("shop.Refund", 4, MORE)  # the file pins the columns
    file = pipeline_file(routed, registry, tmp_path, letters=False)
    options = yaml.safe_load(file.read_text())
    options["value"]["schema_file"] = "shared.avsc"
    options["key"] = {"format": "string"}
    options["route"] = {
        "by": "CASE WHEN _key LIKE 'r%' THEN 'refund' ELSE _schema END",
        "sink": {**UPSERT, "path": f"{lake}/{{route}}"},
        "overrides": {"refund": {"value": {"schema_file": "refund.avsc"}, "sink": {"key": "why"}}},
    }
    file.write_text(yaml.safe_dump(options))
    routed.topic.send(
        ("rlate", refund(7, "rlate")[1]), ("o", order(1, 1.5)[1]), ("rodd", more(8, "rodd", "ann")[1]),
        ("rlate", None), ("x", framed(3, RETURN, {"id": 5})), partition=0,
    )  # fmt: skip
    Pipeline.from_file(file).run()
    assert query(lake / "refund", "SELECT id, why FROM t") == [(8, "rodd")]
    config = Pipeline.from_file(file).config
    for name, number in (("shop.Order", 1), ("shop.Return", 5)):
        assert query(Path(config.routed(name).sinks[0].folder), "SELECT id FROM t") == [(number,)]  # type: ignore[union-attr]
    assert verdict(file)["ok"]
