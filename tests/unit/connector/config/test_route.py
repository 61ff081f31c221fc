"""``route:``, as the pipeline file has it: what is taken, and what is refused before anything is touched."""

from __future__ import annotations

from typing import Any

import pytest

from connector.config import OTHER, DeltaAppendSink, DeltaUpsertSink, PipelineConfig, load, parse
from sinks.errors import ConfigurationError

SINK = {"type": "delta_upsert", "path": "lake/{kind}", "key": "id"}


def routed(route: Any = None, **changes: Any) -> PipelineConfig:
    options = {
        "name": "shop",
        "source": {"topics": ["events"], "kafka": {"bootstrap.servers": "127.0.0.1:9092"}},
        "value": {"format": "json", "schema": "kind STRING, id INT"},
        "coordinator": {"path": "lake/_log"},
        "route": {"by": "kind", "sink": SINK, **(route or {})},
    }
    return parse({name: value for name, value in {**options, **changes}.items() if value is not None})


def place(config: PipelineConfig, value: str) -> str:
    return config.routed(value).sinks[0].place


def test_a_value_gets_a_place_that_is_its_own() -> None:
    config = routed()
    values = ["order", "Order", "a/b", "a.b", "..", ".", "x" * 300, "y" * 300, "é", "_", " "]
    places = [place(config, value) for value in values]
    assert places[0] == "lake/order"
    assert len({each.lower() for each in places}) == len(values)
    assert all(each.removeprefix("lake/").count("/") == 0 and len(each) < 120 for each in places)


@pytest.mark.parametrize("by", ["kind", "`kind`"])
def test_a_column_may_stand_in_braces_by_its_name(by: str) -> None:
    assert place(routed({"by": by}), "order") == "lake/order"
    assert place(routed({"by": "upper(kind)", "sink": {**SINK, "path": "lake/{route}"}}), "order") == "lake/order"


def test_a_value_never_becomes_sql() -> None:
    """It comes from a record: only a path and a table's name take it, made safe."""
    sink = {**SINK, "apply_as_deletes": "kind = '{kind}'", "sequence_by": "concat('{route}', id)"}
    upsert = routed({"sink": sink}).routed("x' OR true OR '").sinks[0]
    assert isinstance(upsert, DeltaUpsertSink)
    assert (upsert.apply_as_deletes, upsert.sequence_by) == (sink["apply_as_deletes"], sink["sequence_by"])


@pytest.mark.parametrize("value", ["value", "value_"])
def test_a_value_may_have_any_name(value: str) -> None:
    """Also the one that stands for all values without options of their own."""
    both = {each: {"sink": {"key": [each]}} for each in dict.fromkeys(["value", value])}
    config = routed({"overrides": both})
    assert config.route is not None
    assert {name: sink.key for name, sink in config.route.sinks.items()} == {  # type: ignore[union-attr]
        "": ("id",),
        **{each: (each,) for each in both},
    }
    assert place(routed({"overrides": {"order": {"sink": {"path": "lake/value"}}}}), "order") == "lake/value"


def test_what_differs_for_a_value_and_for_the_others() -> None:
    config = routed(
        {
            "overrides": {"refund": {"sink": {"key": ["id", "line"]}}},
            "other": {"type": "delta_append", "path": "lake/others"},
        }
    )
    assert [config.routed(name).sinks[0].key for name in ("order", "refund")] == [("id",), ("id", "line")]  # type: ignore[union-attr]
    assert isinstance(config.routed(OTHER).sinks[0], DeltaAppendSink)
    assert isinstance(config.routed("order").sinks[0], DeltaUpsertSink)
    assert config.two_phase
    assert config.only_table is None


def test_a_route_has_no_change_log_but_its_tables_may() -> None:
    """A run of the whole has one output, which isn't a table: what folds one table between its epochs isn't for it."""
    config = routed({"overrides": {"a": {"sink": {"merge": "on_read"}}}})
    assert config.merged_on_read is None
    assert config.merges_on_read
    assert config.routed("a").merged_on_read is not None
    assert config.routed("b").merged_on_read is None
    assert not routed().merges_on_read


def test_a_table_of_overrides_on_s3_needs_s3a_as_any_other() -> None:
    assert routed({"overrides": {"a": {"sink": {"path": "s3a://lake/a"}}}}).on_s3
    assert not routed({"overrides": {"a": {"sink": {"path": "lake/z"}}}}).on_s3


def test_relative_places_belong_to_the_file(tmp_path: Any) -> None:
    import yaml

    file = tmp_path / "shop.yaml"
    document = {
        "name": "shop",
        "source": {"topics": ["events"], "kafka": {"bootstrap.servers": "b:1"}},
        "value": {"format": "json", "schema": "kind STRING, id INT"},
        "coordinator": {"path": "lake/_log"},
        "route": {"by": "kind", "sink": SINK},
    }
    file.write_text(yaml.safe_dump(document))
    assert load(file).routed("order").sinks[0].folder == str(tmp_path / "lake/order")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("route", "changes", "said"),
    [
        ({"sink": {"type": "delta_upsert", "path": "lake/{kind}"}}, {}, "route.sink.key: is missing"),
        ({"sink": {"type": "delta_append", "path": "lake/x"}}, {}, "all records would have one table"),
        ({"sink": {"type": "delta_append", "path": "lake/{other}"}}, {}, "has {other}: all records would have one"),
        ({"sink": {"type": "s3_objects", "url": "s3://b/{kind}"}}, {}, "s3_objects doesn't work with route"),
        ({"other": "elsewhere"}, {}, "is one of fail, dead_letter, ignore, or the options of a sink"),
        ({"other": "dead_letter"}, {}, "needs on_bad_record: dead_letter"),
        ({"values": ["a", "a"]}, {}, "route.values: name at least one value, each once"),
        ({"values": ["a"], "overrides": {"b": {"sink": {}}}}, {}, "overrides: b isn't one of values"),
        ({"overrides": {"a": {"sink": {"path": "lake/{kind}", "kye": "x"}}}}, {}, "route.overrides.a.sink.kye"),
        (
            {"overrides": {"a": {"sink": {"path": "lake/z"}}, "b": {"sink": {"path": "lake/z"}}}},
            {},
            "two values write to lake/z",
        ),
        (
            {"overrides": {"a": {"sink": {"path": "s3a://lake/z"}}, "b": {"sink": {"path": "S3://lake//z/"}}}},
            {},
            "two values write to s3a://lake/z",
        ),
        (
            {
                "sink": {"type": "delta_upsert", "table": "sales.{kind}", "key": "id"},
                "overrides": {"a": {"sink": {"table": "sales.Z"}}, "b": {"sink": {"table": "`Sales`.z"}}},
            },
            {},
            "two values write to sales.Z",
        ),
        (
            {"overrides": {"a": {"sink": {"path": "lake/z"}}, "b": {"sink": {"path": "lake/z/y"}}}},
            {},
            "route.overrides.b.sink.path: lies in the folder of route.overrides.a.sink.path",
        ),
        ({"by": "if(rand() > 0.5, 'a', 'b')"}, {}, "rand may give another value each time"),
        ({"by": "date_format(current_date, 'yyyy')"}, {}, "current_date may give another value each time"),
        ({"by": "IF(unix_timestamp( ) > id, 'a', 'b')"}, {}, "unix_timestamp may give another value each time"),
        ({"by": "IF(day < DATE 'today', 'a', 'b')"}, {}, "DATE 'today' may give another value each time"),
        ({"by": "(SELECT max(name) FROM kinds)"}, {}, "SELECT may give another value each time"),
        ({"values": ["no", False]}, {}, 'route.values[1]: write it in quotes, as in "NO" or "010": YAML takes it for'),
        ({"values": [8]}, {}, "route.values[0]: write it in quotes"),
        ({"bi": "kind"}, {}, "route.bi: unknown option, did you mean by?"),
        ({}, {"coordinator": None}, "coordinator: is missing: route needs a log"),
        ({}, {"sinks": [SINK]}, "give either sinks or route, not both"),
        ({}, {"on_new_column": "ignore"}, "on_new_column: ignore doesn't work with route"),
        (
            {"overrides": {"a": {"sink": {"ignore_null_updates": True}}}},
            {"on_new_column": "add"},
            "route.overrides.a.sink: ignore_null_updates: true doesn't work with on_new_column: add",
        ),
        (
            {"overrides": {"a": {"sink": {"merge": "on_read"}}}},
            {"on_new_column": "add"},
            "on_new_column: add changes the table, but not the change log",
        ),
        (
            {"sink": {**SINK, "type": "delta_history"}},
            {"on_new_column": "add"},
            "on_new_column: add doesn't work with delta_history",
        ),
        (
            {},
            {"on_new_column": "add", "value": {"format": "json", "registry": {"url": "http://r"}}},
            "the newest schema of a registry, which may be another one when an epoch in doubt is read again",
        ),
        ({}, {"delivery": "manual_commit"}, "delivery: manual_commit works with one Delta table only"),
    ],
)
def test_a_wrong_route_is_explained(route: Any, changes: Any, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        routed(route, **changes)
    assert said in caught.value.message


@pytest.mark.parametrize(
    "by",
    [
        "version", "'rand()'", "user", "random_id", "now", "unix_timestamp(kind)", "concat(kind, 'today')",
        "date_format(DATE '2026-01-01', kind)", "`select`",
    ],
)  # fmt: skip
def test_names_of_columns_are_no_functions(by: str) -> None:
    routed({"by": by, "sink": {**SINK, "path": "lake/{route}"}})


REFUND = {"overrides": {"refund": {"value": {"schema": "id INT, why STRING"}}}}


def test_a_value_may_have_a_schema_of_its_own() -> None:
    config = routed(REFUND)
    order, refund = config.routed("order"), config.routed("refund")
    assert (order.value, order.schema_option) == (config.value, "value.schema")
    assert refund.value.schema_ == "id INT, why STRING"  # type: ignore[union-attr]
    assert refund.schema_option == "route.overrides.refund.value.schema"
    assert refund.route is not None
    assert refund.route.named_by == config.value
    assert config.shape != routed().shape


@pytest.mark.parametrize(
    "value",
    [{"format": "avro", "schema_file": "{file}"}, {"format": "protobuf", "descriptor_file": "{file}", "message": "M"}],
)
def test_a_schema_in_a_file_of_its_own_is_part_of_what_shapes_the_rows(tmp_path: Any, value: dict[str, str]) -> None:
    """An epoch in doubt is read again: a record must not name another table by then."""
    file = tmp_path / "schema"
    value = {name: text.format(file=file) for name, text in value.items()}
    shapes = []
    for text in ("one", "other", "one"):
        file.write_text(text)
        shapes.append(routed(value=value).shape)
    file.unlink()
    assert shapes[0] == shapes[2]
    assert len({*shapes, routed(value=value).shape}) == 3


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"transform": "SELECT *, id + 1 AS next FROM records"},
        {"value": {"format": "json", "schema": "kind STRING, id INT", "registry": {"url": "http://r"}}},
    ],
)
def test_tables_may_get_the_columns_that_the_file_declares(changes: Any) -> None:
    """The file is a part of what shapes the rows, so an epoch in doubt gives each table the same ones."""
    config = routed(on_new_column="add", **changes)
    assert config.shape != routed(**changes).shape


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"value": {"format": "string"}}, r"route.overrides.refund.value.schema: needs value: {format: json}"),
        ({"transform": "SELECT id FROM records"}, "transform doesn't work with a schema of its own"),
        ({"on_new_column": "fail"}, "on_new_column: fail doesn't work with a schema of its own"),
    ],
)
def test_a_schema_of_its_own_that_does_not_go(changes: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        routed(REFUND, **changes)


@pytest.mark.parametrize(
    ("route", "there", "told"),
    [
        ({}, [], True),
        ({}, ["refnd"], False),
        ({"overrides": {"refnd": {}, "refund": {}}}, [], False),
        ({"values": ["refnd", "refund"]}, [], False),
    ],
)
def test_a_misspelled_override_is_found_by_the_value_that_it_means(route: Any, there: Any, told: bool) -> None:
    """Unless both are real: then a value has a table or a record, an override of its own, or a place in ``values``."""
    config = routed({"overrides": {"refnd": {"sink": {"key": ["id", "kind"]}}}, **route})
    assert config.route is not None
    names = ["order", "refund", OTHER, *there]
    found = config.route.misnamed(names, names)
    assert [*found] == (["refund"] if told else [])
    assert "route.overrides.refnd: no record names 'refnd' so far" in found.get("refund", "") or not told


@pytest.mark.parametrize(
    ("other", "there", "told"),
    [
        ("ignore", [], "ignored"),
        ({"type": "delta_append", "path": "lake/others"}, [], "written to the sink of route.other"),
        ("ignore", ["refnd"], None),
        ("fail", [], None),
        (None, [], None),
    ],
)
def test_a_misspelled_value_is_found_by_the_records_that_it_means(other: Any, there: Any, told: str | None) -> None:
    """Unless a record has named it, too. Where others are bad records, these say so."""
    config = routed({"values": ["order", "refnd"], **({"other": other} if other else {})})
    assert config.route is not None
    found = config.route.passed_over(["order", "refund", "return"], there, config.value)
    assert len(found) == (told is not None)
    if told is not None:
        said = "route.values: no record names 'refnd' so far, but records name 'refund', which isn't one of them"
        assert found[0].startswith(f"{said}: these are {told}")
    assert not config.route.passed_over(["refund", "refnd"], [], config.value)


def test_where_each_value_gets_a_table_none_is_passed_over() -> None:
    config = routed({"other": "ignore"})
    assert config.route is not None
    assert config.route.unseen([], config.value) == []
