"""A record of another type than those of the topic's subject isn't a row, however well its fields fit. Decoder and
auditor are asked alike."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from avro_bytes import field, record
from pyspark.sql.types import LongType
from registry import RegistryServer, registry_server

from connector.audit.avro import Avro
from connector.audit.avro_schema import Schema
from connector.audit.formats import forms
from connector.audit.registries import schemas_of
from connector.config import ConfluentRegistry, PipelineConfig, parse
from connector.decode import record_format
from connector.decode.avro import AvroOfRegistry
from connector.decode.format import NOTHING
from connector.decode.registry.record_schemas import RecordSchemas
from connector.decode.registry.wire_format import ConfluentWire

ID, AMOUNT = field("id", "long"), field("amount", "double")
NOTE = field("note", ["null", "string"], default=None)
ORDER, REFUND = record(ID, AMOUNT, NOTE, name="shop.Order"), record(ID, AMOUNT, name="shop.Refund")


def config(server: RegistryServer, **options: Any) -> PipelineConfig:
    topics = options.pop("topics", ["t"])
    value = options.pop("value", {})
    made = {
        "name": "p", "source": {"kafka": {"bootstrap.servers": "k:9092"}, "topics": topics},
        "value": {"format": "avro", "registry": {"url": server.url}} | value,
        "sinks": [{"type": "delta_append", "path": "lake/p"}], **options,
    }  # fmt: skip
    if "route" in made:
        del made["sinks"]
        made["coordinator"] = {"path": "lake/_coordinator"}
    return parse(made)


def refused(monkeypatch: pytest.MonkeyPatch, config: PipelineConfig, id: int) -> str | None:
    """Why the decoder refuses a schema, after the auditor has been asked whether it does."""
    from connector.engine import decoders

    monkeypatch.setattr("connector.decode.avro._type", lambda *_: LongType())
    monkeypatch.setattr("connector.decode.refuse_own_names", lambda *_: None)
    monkeypatch.setattr(RecordSchemas, "_named", lambda *_: [])
    nothing: Any = None
    made, _ = decoders._formats(config, nothing, {}, decoders.NewestSchemas(), ())
    avro: Any = made if isinstance(made, AvroOfRegistry) else made._avro  # type: ignore[attr-defined]
    avro.resolve([str(id)], nothing)
    form, header = forms(config).value.binary, ConfluentWire().header(str(id))
    assert form is not None
    known = form._of_its_types({header: form.schemas.of(header)})  # type: ignore[union-attr, dict-item]
    why = avro.schemas._refused.get(str(id))
    assert (header in known) == (why is None)
    return why


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str | None]:
    return lambda *args, **options: refused(monkeypatch, config(args[0], **options), args[1])


def test_a_record_of_another_type_is_a_bad_record_that_says_the_ways_out(told: Callable[..., str | None]) -> None:
    with registry_server() as server:
        server.register("shop.Order", 1, ORDER)
        server.register("shop.Refund", 2, REFUND)
        value = {"registry": {"url": server.url, "subject": "shop.Order"}}
        why = told(server, 2, value=value) or ""
        assert why.startswith("schema id 2 is of the record shop.Refund, and those of its subject are shop.Order.")
        assert all(each in why for each in ("_schema", "aliases", "value.schema_file"))
        assert told(server, 1, value=value) is None
        # In a union with a null it is no other type, and a union may have several.
        server.register("shop.Order", 3, ["null", ORDER])
        assert told(server, 2, value=value)
        server.register("shop.Order", 4, [ORDER, REFUND])
        assert told(server, 2, value=value) is None


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ([record(ID, AMOUNT, name="Bought"), ORDER], record(ID, AMOUNT, name="other.Bought")),
        ([ORDER | {"aliases": ["old.Refund"]}], REFUND),
        ([ORDER], record(ID, AMOUNT, name="of.others.Order")),
        ([{"type": "record", "name": "Order", "fields": [ID]}], ORDER | {"fields": [ID]}),
        (["long"], "int"),
    ],
)
def test_a_name_that_the_subject_has_had_is_of_its_type_in_any_namespace(
    mine: Sequence[object], theirs: object, told: Callable[..., str | None]
) -> None:
    with registry_server() as server:
        for number, each in enumerate(mine):
            server.register("t-value", number, each)
        server.register("x", 9, theirs)
        assert told(server, 9) is None


def test_a_name_of_a_deleted_version_or_of_the_topics_own_subject_is_of_its_type(
    told: Callable[..., str | None],
) -> None:
    """A table of the database gives its name to the records of its topic, and several topics share a table here."""
    with registry_server() as server:
        server.register("orders", 1, ORDER)
        server.register("b-value", 2, REFUND)
        shared = {"registry": {"url": server.url, "subject": "orders"}}
        assert told(server, 2, topics=["a"], value=shared)
        assert told(server, 2, topics=["a", "b"], value=shared) is None
        assert told(server, 2, topics="a.*", value=shared) is None
        # Deleted versions are listed only if they are asked for.
        server.answers["/subjects/orders/versions?deleted=true"] = [1, 5]
        server.answers["/subjects/orders/versions/5?deleted=true"] = {"id": 2, "schema": json.dumps(REFUND)}
        assert told(server, 2, topics=["a"], value=shared) is None


def test_a_version_that_is_registered_during_the_run_may_have_a_new_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connector.decode.avro._type", lambda *_: LongType())
    monkeypatch.setattr(RecordSchemas, "_named", lambda *_: [])
    nothing: Any = None
    with registry_server() as server:
        server.register("t-value", 1, ORDER)
        options = config(server).value
        made = record_format("value", options, nothing, ["t"], one_type=True)
        server.register("t-value", 2, record(ID, AMOUNT, NOTE, name="shop.Bought"))
        made.resolve(["2"], nothing)
        assert made.schemas.taken == ["1", "2"]  # type: ignore[attr-defined]
        server.statuses["/subjects/t-value/versions?deleted=true"] = 403
        server.answers["/subjects/t-value/versions?deleted=true"] = {"error_code": 403, "message": "no"}
        server.register("x", 3, REFUND)
        made.resolve(["3"], nothing)
        assert "shop.Refund" in made.schemas._refused["3"]  # type: ignore[attr-defined]


def test_a_readers_schema_and_a_route_say_themselves_what_they_read(
    tmp_path: Any, told: Callable[..., str | None]
) -> None:
    (tmp_path / "order.avsc").write_text(json.dumps(record(ID, name="Common")))
    with registry_server() as server:
        server.register("t-value", 1, ORDER)
        server.register("x", 2, REFUND)
        assert told(server, 2)
        assert told(server, 2, value={"schema_file": str(tmp_path / "order.avsc")}) is None
        route = {"by": "_schema", "sink": {"type": "delta_append", "path": "lake/{route}"}}
        assert told(server, 2, route=route, value={"registry": {"url": server.url, "subject": "t-value"}}) is None


def test_debeziums_events_have_one_name_and_keys_are_told_apart_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("connector.decode.avro._type", lambda *_: LongType())
    monkeypatch.setattr("connector.decode.refuse_own_names", lambda *_: None)
    monkeypatch.setattr("connector.decode.row_of_event", lambda *_: None)
    monkeypatch.setattr("connector.decode.Debezium", lambda events, *_: SimpleNamespace(events=events))
    monkeypatch.setattr(RecordSchemas, "_named", lambda *_: [])
    nothing: Any = None

    def event(table: str) -> dict[str, Any]:
        row = record(ID, AMOUNT, name=f"{table}.Value")
        return record(
            field("before", ["null", row]), field("after", ["null", f"{table}.Value"]), field("op", "string"),
            field("source", record(field("db", "string"), name=f"{table}.Source")), name=f"{table}.Envelope",
        )  # fmt: skip

    with registry_server() as server:
        server.register("t-value", 1, event("one.orders"))
        server.register("x", 2, event("two.orders"))
        heartbeat = record(field("ts_ms", "long"), name="io.debezium.connector.common.Heartbeat")
        server.register("h", 3, heartbeat)
        events = {"format": "debezium", "registry": {"url": server.url}}
        options = config(server, value=events, sinks=[{"type": "delta_upsert", "path": "lake/p", "key": "id"}])
        read = record_format("value", options.value, nothing, ["t"], one_type=True).events  # type: ignore[attr-defined]
        read.resolve(["2", "3"], nothing)
        assert (read.schemas.taken, read.schemas._refused) == (["1", "2"], {"3": NOTHING})
        schemas = schemas_of(options.value.registry, "value")  # type: ignore[union-attr, arg-type]
        avro = Avro(schemas, Schema.of((json.dumps(event("one.orders")),)), of_event=True, topics=["t"])
        sent = {each: schemas.of(each) for each in map(ConfluentWire().header, "23")}
        assert avro._of_its_types(sent) == sent  # type: ignore[arg-type]

        server.register("t-key", 4, record(ID, name="shop.OrderKey"))
        server.register("y", 5, record(ID, name="shop.RefundKey"))
        options = config(server, key={"format": "avro", "registry": {"url": server.url}})
        assert options.key is not None
        key = record_format("key", options.key, nothing, ["t"], one_type=True)
        key.resolve(["5"], nothing)
        assert "key.schema_file" in key.schemas._refused["5"]  # type: ignore[attr-defined]
        form = forms(options).key
        assert form is not None
        header = ConfluentWire().header("5")
        assert not form.binary._of_its_types({header: form.binary.schemas.of(header)})  # type: ignore[union-attr, dict-item]


def test_a_registry_of_another_context_has_the_topics_own_subject_there() -> None:
    from connector.audit.registries import OfConfluent
    from connector.decode.registry import opened

    with registry_server() as server:
        server.register("%3A.dr%3At-value", 1, ORDER)
        path = "/subjects/%3A.dr%3At-value/versions"
        server.answers[path + "?deleted=true"] = [1]
        server.answers[path + "/1?deleted=true"] = server.answers[path + "/1"]
        options = ConfluentRegistry(url=(server.url,), subject=":.dr:shop.Order")
        (found,) = opened(options).former("t", "value")
        assert found.id == "1"
        assert OfConfluent(options, "value").former("t") == [(json.dumps(ORDER),)]
