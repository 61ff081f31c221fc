"""What a run checks before its first epoch."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from connector.config import parse
from connector.engine import assembly
from connector.engine.assembly import Assembly, assembled
from connector.engine.short_runs import appends_only
from sinks.delta.letters_sql import COLUMNS
from sinks.delta.table import DeltaTable
from sinks.errors import UnsafeStore


@pytest.mark.parametrize(
    ("place", "location"),
    [({"path": "s3a://bucket/dead"}, "s3a://bucket/dead"), ({"table": "ops.dead"}, "s3a://other/ops/dead"),
     ({"topic": "dead"}, ""), (None, "")],
)  # fmt: skip
def test_the_table_of_dead_letters_needs_conditional_writes_as_well(
    place: dict[str, str] | None, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit that another one overwrites would be letters that are lost. Of a table with a name the catalog says
    where it is, once it is there."""
    asked: list[str] = []
    made: list[str] = []
    config = parse(
        {
            "name": "shop",
            "source": {"topics": ["events"], "kafka": {"bootstrap.servers": "nobody:1"}},
            "value": {"format": "json", "schema": "id INT"},
            "sinks": [{"type": "delta_append", "path": "lake/t"}],
            **({"on_bad_record": "dead_letter", "dead_letters": place} if place else {}),
        }
    )
    topic = SimpleNamespace(check=lambda: None)
    monkeypatch.setattr(assembly, "letters_topic", lambda _: topic)
    monkeypatch.setattr(DeltaTable, "exists", lambda table: bool(made))
    monkeypatch.setattr(DeltaTable, "create", lambda table, *_: made.append(table.label))
    monkeypatch.setattr(DeltaTable, "schema", StructType([StructField(name, StringType()) for name in COLUMNS]))
    monkeypatch.setattr(DeltaTable, "location", property(lambda table: "s3a://other/ops/dead" if made else ""))
    monkeypatch.setattr("sinks.delta.dead_letters.no_rows", lambda *_: SimpleNamespace(schema=None))

    def refuse(_: object, url: str) -> None:
        asked.append(url)
        if url:
            raise UnsafeStore(url)

    monkeypatch.setattr(assembly, "require_conditional_writes", refuse)
    spark = SimpleNamespace(conf=SimpleNamespace(get=lambda *_: None))
    run: Any = SimpleNamespace(
        config=config, spark=spark, log=None, outputs=(), refuse_unfit_select=lambda: None,
        field_check=SimpleNamespace(declared=False),
    )  # fmt: skip
    by_name = place is not None and "table" in place
    if not by_name:
        assert Assembly.locations.fget(run) == [location]  # type: ignore[attr-defined]
    with pytest.raises(UnsafeStore, match=location) if location else nullcontext():
        Assembly._make_ready(run)
    assert asked == [location]
    assert made == (["ops.dead"] if by_name else []), "one with a path is made for its first letter"
    assert Assembly.locations.fget(run) == [location]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("override", "keyed"), [({"type": "delta_upsert", "key": "id"}, True), ({"path": "lake/refunds"}, False)]
)
def test_a_run_looks_for_deletes_that_compaction_took_if_any_table_of_a_route_has_a_key(
    override: dict[str, str], keyed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = parse(
        {
            "name": "shop",
            "source": {"topics": ["events"], "kafka": {"bootstrap.servers": "nobody:1"}},
            "value": {"format": "json", "schema": "kind STRING, id INT"},
            "coordinator": {"path": "lake/_log"},
            "route": {
                "by": "kind",
                "sink": {"type": "delta_append", "path": "lake/{kind}"},
                "overrides": {"refund": {"sink": override}},
            },
        }
    )

    class AskedError(Exception):
        pass

    def source(_: object, *, with_deletes: bool, looks: None) -> None:
        raise AskedError(with_deletes)

    monkeypatch.setattr(assembly, "KafkaSource", source)
    with pytest.raises(AskedError, match=str(keyed)), assembled(config):
        pass
    assert appends_only(config) is not keyed
