"""The layout of new tables in a pipeline file. What is refused is in tests/golden/layout.txt."""

import pytest

from connector.config import parse
from connector.config.marks import Marks
from connector.config.overrides import overridden
from sinks.errors import ConfigurationError

UPSERT = {"type": "delta_upsert", "path": "t", "key": "id"}
OBJECTS = {"type": "s3_objects", "url": "s3://b/t"}
LOG = {"coordinator": {"path": "log"}}


def options(*sinks: dict[str, object], **changes: object) -> dict[str, object]:
    return {
        "name": "p",
        "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "b:1"}},
        "value": {"format": "json", "schema": "id INT, day DATE"},
        "sinks": list(sinks),
        **changes,
    }


@pytest.mark.parametrize(
    "sink",
    [
        {"type": "delta_append"},
        UPSERT,
        {"type": "delta_history", "key": "id"},
        {"type": "delta_aggregate", "group_by": "day", "aggregates": {"n": "count(*)"}},
    ],
)
def test_every_kind_of_table_takes_a_layout(sink: dict[str, object]) -> None:
    layout = {
        "partition_by": "day",
        "properties": {"DELTA.enablechangedatafeed": True, "team": "sales"},
        "comment": "orders",
        "comments": {"day": "of the order"},
    }
    (read,) = parse(options({**sink, "path": "t", **layout})).sinks
    assert read.partition_by == ("day",)
    assert read.properties == {"delta.enableChangeDataFeed": "true", "team": "sales"}
    assert (read.comment, read.comments) == ("orders", {"day": "of the order"})


def test_a_layout_is_no_other_shape_of_rows() -> None:
    """Else an epoch in doubt couldn't be finished after a property was added."""
    plain = parse(options(UPSERT)).shape
    assert plain == "03edd738e9f90595"
    assert parse(options({**UPSERT, "cluster_by": "id", "comment": "x", "properties": {"a": "b"}})).shape == plain
    history = {"type": "delta_history", "path": "t", "key": "id", "sequence_by": "day"}
    assert parse(options(history)).shape == "2349fdecd67fa788", "that of versions in which a history took no truncates"
    assert parse(options({**history, "apply_as_truncates": "day IS NULL"})).shape != "2349fdecd67fa788"
    # The names of objects hold the partitions' values.
    objects, parted = (parse(options(sink, **LOG)) for sink in (OBJECTS, {**OBJECTS, "partition_by": "day"}))
    assert objects.shape != parted.shape


def test_the_tables_of_a_route_and_of_topics_have_a_layout_each() -> None:
    sink = {**UPSERT, "path": "t/{day}", "cluster_by": "id", "properties": {"a": "1", "b": "1"}}
    other = {"sink": {"cluster_by": [], "partition_by": "day", "properties": {"b": "2"}}}
    route = {"by": "day", "sink": sink, "overrides": {"x": other}}
    made = options(route=route, **LOG)
    del made["sinks"]
    config = parse(made)
    assert config.routed("y").sinks[0].cluster_by == ("id",)
    (of_x,) = config.routed("x").sinks
    assert (of_x.partition_by, of_x.cluster_by, of_x.properties) == (("day",), (), {"a": "1", "b": "2"})


def test_a_wrong_layout_of_one_table_of_a_route_names_it() -> None:
    route = {
        "by": "day",
        "sink": {**UPSERT, "path": "t/{day}"},
        "overrides": {"x": {"sink": {"properties": {"delta.x": 1}}}},
    }
    made = options(route=route, **LOG)
    del made["sinks"]
    with pytest.raises(ConfigurationError, match=r"route.overrides.x.sink.properties.delta.x: is no property"):
        parse(made)


@pytest.mark.parametrize(
    ("properties", "changes", "told"),
    [
        ({"delta.appendOnly": True}, {"source": {"on_recreated_topic": "continue"}}, ".on_recreated_topic"),
        ({"delta.enableTypeWidening": False}, {"on_new_column": "add"}, "on_new_column: add"),
    ],
)
def test_properties_that_another_option_would_break_on_are_refused(
    properties: dict[str, object], changes: dict[str, object], told: str
) -> None:
    made = options({"type": "delta_append", "path": "t", "properties": properties})
    for name, value in changes.items():
        made[name] = {**made[name], **value} if isinstance(value, dict) else value  # type: ignore[dict-item]
    with pytest.raises(ConfigurationError, match=f"sinks\\[0\\].properties: .*{told}"):
        parse(made)


def test_a_topic_of_dead_letters_has_no_properties() -> None:
    letters = {"topic": "dead", "properties": {"delta.enableChangeDataFeed": True}}
    with pytest.raises(ConfigurationError, match=r"dead_letters\.properties: are those of a Delta table"):
        parse(options(UPSERT, on_bad_record="dead_letter", dead_letters=letters))


def test_set_takes_the_name_of_a_property_with_its_dots() -> None:
    document = overridden({"sinks": [{}]}, ["sinks[0].properties.delta.enableChangeDataFeed=true"], Marks(), origin="f")
    assert document == {"sinks": [{"properties": {"delta.enableChangeDataFeed": True}}]}
