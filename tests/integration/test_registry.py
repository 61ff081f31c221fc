"""Topics in Avro, with a schema registry: as its schemas change."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from avro_bytes import framed
from conftest import Lake, Topic
from golden_files import assert_told
from registry import RegistryServer, registry_server

from connector.decode.registry.record_schemas import MOST_ABSENT
from sinks.errors import BadRecord, RegistryUnreachable

ONE = {"type": "record", "name": "R", "fields": [{"name": "k", "type": "string"}, {"name": "n", "type": "int"}]}
TWO = {
    "type": "record", "name": "R",
    "fields": [{"name": "k", "type": "string"}, {"name": "n", "type": "long"},
               {"name": "at", "type": {"type": "record", "name": "At", "fields": [{"name": "zip", "type": "string"}]}}],
}  # fmt: skip
THREE = {"type": "record", "name": "R", "fields": [{"name": "k", "type": "string"}]}


@pytest.fixture
def registry(topic: Topic) -> Iterator[RegistryServer]:
    with registry_server() as server:
        server.register(f"{topic.name}-value", 1, ONE)
        yield server


def avro(registry: RegistryServer, **more: Any) -> dict[str, Any]:
    return {"value": {"format": "avro", "registry": {"url": registry.url}}, **more}


@pytest.mark.breadth
@pytest.mark.parametrize("kind", ["append", "upsert"])
def test_a_schema_that_changes_while_the_run_goes_on(
    lake: Lake, topic: Topic, registry: RegistryServer, kind: str
) -> None:
    pipeline = lake.pipeline(kind, **avro(registry, on_new_column="add", epoch={"max_records": 1}))
    topic.send(("a", framed(1, ONE, {"k": "a", "n": 1})), partition=0)
    pipeline.run()

    def producer_goes_on(event: Any) -> None:
        if not any("ids/2" in path for path in registry.answers):
            registry.register(f"{topic.name}-value", 2, TWO)
            registry.register(f"{topic.name}-value", 3, THREE)

    topic.send(
        ("b", framed(1, ONE, {"k": "b", "n": 2})),
        ("c", framed(2, TWO, {"k": "c", "n": 2**40, "at": {"zip": "1"}})),
        ("d", framed(3, THREE, {"k": "d"})), partition=0,
    )  # fmt: skip
    done = pipeline.run(observers=[producer_goes_on])
    assert done.epochs == 3
    assert lake.sql("SELECT k, n, at.zip FROM {t} ORDER BY k", kind) == [
        ("a", 1, None), ("b", 2, None), ("c", 2**40, "1"), ("d", None, None),
    ]  # fmt: skip
    # A run that begins with a schema that has dropped columns keeps them.
    topic.send(("a", framed(3, THREE, {"k": "a"})), ("e", framed(1, ONE, {"k": "e", "n": 5})), partition=0)
    pipeline.run()
    assert lake.sql("SELECT k, n FROM {t} WHERE k = 'e' OR (k = 'a' AND n IS NULL) ORDER BY k", kind) == [
        ("a", None), ("e", 5),
    ]  # fmt: skip


def test_new_fields_are_no_silent_loss(lake: Lake, topic: Topic, registry: RegistryServer) -> None:
    topic.send(("a", framed(1, ONE, {"k": "a", "n": 1})), partition=0)
    lake.pipeline(**avro(registry)).run()
    later = {**ONE, "fields": [*ONE["fields"], {"name": "more", "type": "string"}]}  # type: ignore[misc]

    def producer_goes_on(_: Any) -> None:
        registry.answers["/schemas/ids/9"] = {"schema": json.dumps(later)}

    topic.send(("b", framed(9, later, {"k": "b", "n": 2, "more": "x"})), partition=0)
    with pytest.raises(BadRecord) as caught:
        lake.pipeline(**avro(registry)).run(observers=[producer_goes_on])
    assert_told("avro_with_fields_that_the_reader_lacks", caught.value, topic=topic.name)
    lake.pipeline(**avro(registry, on_new_column="ignore")).run()
    assert lake.rows() == [("a", 1), ("b", 2)]


@pytest.mark.breadth
def test_an_unknown_schema_is_a_bad_record_and_no_registry_stops_the_run(
    lake: Lake, topic: Topic, registry: RegistryServer
) -> None:
    topic.send(("a", framed(7, ONE, {"k": "a", "n": 1})), partition=0)
    with pytest.raises(BadRecord) as caught:
        lake.pipeline(**avro(registry)).run()
    assert_told("avro_with_an_unknown_schema", caught.value, topic=topic.name)
    registry.trouble = lambda: 503
    with pytest.raises(RegistryUnreachable):
        lake.pipeline(**avro(registry)).run()
    assert not lake.path().joinpath("_delta_log").exists() or lake.rows() == []
    registry.trouble = lambda: None
    registry.answers["/schemas/ids/7"] = {"schema": json.dumps(ONE)}
    lake.pipeline(**avro(registry)).run()
    assert lake.rows() == [("a", 1)]


def dead_letters(lake: Lake) -> dict[str, Any]:
    return {"on_bad_record": "dead_letter", "dead_letters": {"path": str(lake.path("dead"))}}


@pytest.mark.breadth
def test_few_of_the_schemas_that_nobody_knows_are_asked_for(lake: Lake, topic: Topic, registry: RegistryServer) -> None:
    topic.send(*((None, framed(n, ONE, {"k": "a", "n": n})) for n in range(1, 200)))
    pipeline = lake.pipeline(**avro(registry, **dead_letters(lake)))
    pipeline.run()
    assert lake.rows() == [("a", 1)]
    kinds = "regexp_replace(detail, '[0-9]+', 'N') AS kind"
    assert lake.sql(f"SELECT count(*), {kinds} FROM {{t}} GROUP BY kind ORDER BY 1", "dead") == [
        (MOST_ABSENT, "its value: schema id N isn't in the registry"),
        (
            198 - MOST_ABSENT,
            "its value: schema id N wasn't looked up, because the registry has none of N other ids in the same epoch",
        ),
    ]
    ids = [path for path in registry.asked if "/ids/" in path]
    assert len(ids) == len(set(ids)) == MOST_ABSENT
    # In the next epoch others are.
    topic.send((None, framed(300, ONE, {"k": "a", "n": 300})))
    registry.answers["/schemas/ids/300"] = {"schema": json.dumps(ONE)}
    pipeline.run()
    assert lake.rows() == [("a", 1), ("a", 300)]


@pytest.mark.breadth
def test_schemas_that_the_registry_knows_are_never_too_many(lake: Lake, topic: Topic, registry: RegistryServer) -> None:
    topic.send((None, framed(1, ONE, {"k": "a", "n": 1})))
    pipeline = lake.pipeline(**avro(registry, epoch={"max_records": 1000}, **dead_letters(lake)))

    def producer_goes_on(_: Any) -> None:
        if "/schemas/ids/100" not in registry.answers:
            for number in range(100, 130):
                registry.register(f"{topic.name}-value", number, {**ONE, "doc": str(number)})
            # Registered for another subject: only by its ID it is found.
            registry.answers["/schemas/ids/50"] = {"schema": json.dumps(ONE)}

    topic.send(
        *((None, framed(n, ONE, {"k": "b", "n": n})) for n in range(100, 130)),
        *((None, framed(50, ONE, {"k": "c", "n": n})) for n in range(2)),
        *((None, framed(n, ONE, {"k": "z", "n": n})) for n in range(1000, 1200)),
    )
    pipeline.run(observers=[producer_goes_on])
    assert lake.rows() == [("a", 1), *(("b", n) for n in range(100, 130)), ("c", 0), ("c", 1)]
    assert lake.frame("dead").count() == 200


def test_corrupt_ids_stop_a_run_that_takes_no_bad_records(lake: Lake, topic: Topic, registry: RegistryServer) -> None:
    topic.send(*((None, framed(n, ONE, {"k": "a", "n": n})) for n in range(2, 100)), partition=0)
    with pytest.raises(BadRecord, match=rf"{topic.name}-0, offset \d+ isn't right: its value: schema id \d+ "):
        lake.pipeline(**avro(registry)).run()
    assert not lake.path().joinpath("_delta_log").exists() or lake.rows() == []


@pytest.mark.breadth
@pytest.mark.parametrize("added", ["add", "ignore"])
def test_a_broken_old_version_stops_only_the_records_that_name_it(
    added: str, lake: Lake, topic: Topic, registry: RegistryServer
) -> None:
    too_long = {"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 2}
    broken = {2: {**ONE, "fields": 5}, 3: {**ONE, "fields": [*ONE["fields"], {"name": "sum", "type": too_long}]}}  # type: ignore[misc]
    for schema_id, schema in broken.items():
        registry.register(f"{topic.name}-value", schema_id, schema)
    registry.register(f"{topic.name}-value", 4, ONE)
    registry.answers[f"/subjects/{topic.name}-value/versions/1"] = None
    pipeline = lake.pipeline(**avro(registry, on_new_column=added, **dead_letters(lake)))
    (checked,) = pipeline.check().sinks
    assert [name for name in checked.columns if not name.startswith("_")] == ["k", "n"]
    topic.send(
        *((None, framed(schema_id, ONE, {"k": "a", "n": schema_id})) for schema_id in (1, 4)),
        (None, b"\0\0\0\0\2"), partition=0,
    )  # fmt: skip
    pipeline.run()
    assert lake.rows() == [("a", 1), ("a", 4)]
    ((detail,),) = lake.sql("SELECT detail FROM {t}", "dead")
    assert detail == (
        f"its value: schema id 2 can't be used: The Avro schema in the schema registry's answer to GET {registry.url}"
        '/schemas/ids/2 is malformed: the fields of "R" are 5, which isn\'t a list.'
    )
