"""One table per topic: from a file with ``tables``, a pipeline for each topic."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from connector.config import (
    DeltaUpsertSink,
    JsonFormat,
    Template,
    TopicPattern,
    checked_elsewhere,
    has_several,
    load,
    load_any,
    parse,
)
from connector.config.table_per_topic import safe
from sinks.errors import ConfigurationError

FILE: dict[str, Any] = {
    "name": "shop",
    "source": {"topics": ["shop.orders", "shop.returns"], "kafka": {"bootstrap.servers": "127.0.0.1:9092"}},
    "value": {"format": "json", "schema": "id INT, n INT"},
    "on_bad_record": "dead_letter",
    "dead_letters": {"path": "lake/dead"},
    "tables": {
        "for_each": "topic",
        "sink": {"type": "delta_upsert", "path": "lake/{topic}", "key": "id"},
        "overrides": {"shop.returns": {"value": {"schema": "id INT, reason STRING"}, "sink": {"sequence_by": "id"}}},
    },
}


def file_of(folder: Path, **changes: Any) -> Path:
    file = folder / "shop.yaml"
    file.write_text(yaml.safe_dump({**FILE, **changes}))
    return file


def template(folder: Path, **changes: Any) -> Template:
    found = load_any(file_of(folder, **changes))
    assert isinstance(found, Template)
    return found


def tables(**changes: Any) -> dict[str, Any]:
    return {"tables": {**FILE["tables"], **changes}}


def test_each_topic_has_a_pipeline(tmp_path: Path) -> None:
    orders = load(f"{file_of(tmp_path)}#shop.orders")
    assert orders.source.topics == ("shop.orders",)
    assert orders.name == f"shop-{safe('shop.orders', 'name')}"
    (sink,) = orders.sinks
    assert isinstance(sink, DeltaUpsertSink)
    assert sink.folder == str(tmp_path / "lake" / "shop.orders")
    assert sink.sequence_by is None
    assert orders.dead_letters is not None
    assert orders.dead_letters.folder == str(tmp_path / "lake" / "dead"), "all may share a table of dead letters"


def test_a_topic_may_differ(tmp_path: Path) -> None:
    returns = load(f"{file_of(tmp_path)}#shop.returns")
    assert isinstance(returns.value, JsonFormat)
    assert returns.value.schema_ == "id INT, reason STRING"
    (sink,) = returns.sinks
    assert isinstance(sink, DeltaUpsertSink)
    assert (sink.sequence_by, sink.key) == ("id", ("id",))


def test_the_source_has_the_topics_or_their_pattern(tmp_path: Path) -> None:
    assert template(tmp_path).source.topics == ("shop.orders", "shop.returns")
    by_pattern = template(tmp_path, source={**FILE["source"], "topics": r"shop\..*"})
    assert by_pattern.source.topics == TopicPattern(pattern=r"shop\..*")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (tables(sink={"type": "delta_append", "path": "lake/all"}), "'lake/all' has no {topic}: all topics would have"),
        (tables(sink={"type": "delta_append", "path": "lake/{name}"}), "'lake/{name}' has {name}"),
        (tables(sink={"type": "delta_append"}), "'' has no {topic}"),
        (
            tables(sink={"type": "delta_uppsert", "path": "lake/{topic}"}),
            "tables.sink.type: is one of delta_append",
        ),
        (tables(sink={"type": "delta_append", "path": "lake/{topic}", "kee": 1}), "tables.sink.kee: unknown option"),
        (tables(for_each="record"), "tables.for_each: is topic, not 'record'"),
        (tables(other=1), "tables.other: "),
        ({"tables": None}, "tables"),
        (tables(overrides={"orders": {}}), "tables.overrides.orders: is no topic of source.topics"),
        ({"sinks": []}, "give either sinks or tables, not both"),
        ({"source": {**FILE["source"], "topics": 5}}, "write a list of topics"),
        ({"source": None}, "source"),
        ({"name": None}, "name"),
    ],
)
def test_what_is_wrong_is_named_before_kafka_is_asked(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        _ = template(tmp_path, **changes).source
    assert said in str(caught.value)


BY_LINE = {"type": "delta_upsert", "key": ["id", "line"]}


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ({"sinks": [BY_LINE]}, "sinks: can't be different for a topic: write sink"),
        ({"sinks": BY_LINE, "sink": BY_LINE}, "sinks: can't be different for a topic: write sink"),
        ({"Sink": BY_LINE}, "Sink: unknown option, did you mean sink?"),
        ({"snk": BY_LINE}, "snk: unknown option, did you mean sink?"),
        ({"nmae": "x"}, "nmae: unknown option"),
        ({"name": "x"}, "name: can't be different for a topic: remove it"),
        ({"source": {"topics": ["a"]}}, "source.topics: can't be different for a topic: remove it"),
        ({"source": 5}, "source: write options"),
        ({"flows": []}, "flows: can't be different for a topic"),
        ({"route": {"by": "id"}}, "route: can't be different for a topic"),
        ({"tables": {}}, "tables: can't be different for a topic"),
    ],
)
def test_an_option_of_an_override_is_taken_or_refused(tmp_path: Path, override: dict[str, Any], said: str) -> None:
    """Passed over, the topic's table would have the key of all others, and nothing would ever say so."""
    file = file_of(tmp_path, **tables(overrides={"shop.returns": override}))
    with pytest.raises(ConfigurationError) as caught:
        load(f"{file}#shop.returns")
    assert f"tables.overrides.shop.returns.{said}" in caught.value.message
    assert len(caught.value.message.splitlines()) == 2, "one fault, and no other because of it"
    assert load(f"{file}#shop.orders"), "a wrong topic stops its own table only"


def test_what_is_for_one_pipeline_asks_for_a_topic(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="has a pipeline of each topic") as caught:
        load(file_of(tmp_path))
    assert "#PART" in caught.value.hint
    with pytest.raises(ConfigurationError, match="tables makes a pipeline of each topic"):
        parse(FILE)
    plain = tmp_path / "plain.yaml"
    sinks = [{"type": "delta_append", "path": "lake/t"}]
    plain.write_text(yaml.safe_dump({**{key: each for key, each in FILE.items() if key != "tables"}, "sinks": sinks}))
    with pytest.raises(ConfigurationError, match=r"plain\.yaml has one pipeline, and no part 'orders'"):
        load(f"{plain}#orders")


def test_a_file_that_has_several_is_known(tmp_path: Path) -> None:
    assert has_several(file_of(tmp_path))
    for text in ("name: p", "[", "- tables"):
        (tmp_path / "other.yaml").write_text(text)
        assert not has_several(tmp_path / "other.yaml")
    assert not has_several(tmp_path / "missing.yaml")


TOPICS = ("orders", "Orders", "ORDERS", "a.b", "a_b", "a-b", ".a", "_a", "..", ".", "a" * 249, "__consumer_offsets")


@pytest.mark.parametrize("of", ["path", "table", "name"])
def test_names_are_safe_and_no_two_are_the_same(of: str) -> None:
    names = [safe(topic, of) for topic in TOPICS]
    assert len({name.lower() for name in names}) == len(TOPICS)
    assert safe("orders", of) == "orders"
    for name in names:
        assert re.fullmatch("[a-z0-9_.-]+", name)
        # Spark reads no file below a folder whose name begins so.
        assert of != "path" or not name.startswith((".", "_"))


def test_a_topic_that_is_named_by_itself_is_one_of_the_file(tmp_path: Path) -> None:
    """`lakelock verify FILE` would never look at the table of another one."""
    pattern = {"source": {**FILE["source"], "topics": r"shop\..*"}}
    for changes in ({}, pattern):
        with pytest.raises(ConfigurationError, match=r"source\.topics doesn't have 'elsewhere'") as caught:
            load(f"{file_of(tmp_path, **changes)}#elsewhere")
        assert "add the topic to source.topics" in caught.value.hint
    referred = {**FILE["source"], "topics": "${env:TOPICS}"}
    assert load(f"{file_of(tmp_path, source=referred, **tables(overrides={}))}#elsewhere"), "nobody knows"


def test_a_topic_that_is_named_by_itself_knows_which_overrides_may_be_meant_for_it(tmp_path: Path) -> None:
    overrides = {"shop.order_line": {}, "shop.orderlines": {}, "shop.returns": {}}
    pattern = {"source": {**FILE["source"], "topics": r"shop\..*"}, **tables(overrides=overrides)}
    assert load(f"{file_of(tmp_path, **pattern)}#shop.order_lines").source.nearly == tuple(overrides)[:2]
    for topic in ("shop.order_line", "shop.orders"):
        assert load(f"{file_of(tmp_path, **pattern)}#{topic}").source.nearly == ()
    listed = {"source": {**FILE["source"], "topics": [*overrides, "shop.order_lines"]}}
    assert load(f"{file_of(tmp_path, **{**pattern, **listed})}#shop.order_lines").source.nearly == (), "both are right"


IN_GROUP = {**FILE["source"], "kafka": {**FILE["source"]["kafka"], "group.id": "g"}}


@pytest.mark.parametrize("delivery", ["auto_commit", "manual_commit", "idempotent"])
@pytest.mark.parametrize("topics", [["shop.orders", "shop.returns"], r"shop\..*"])
def test_topics_are_no_members_of_one_group(tmp_path: Path, delivery: str, topics: object) -> None:
    """None could begin beside another. The positions of filled tables are in the group, so no other is chosen."""
    shared = template(tmp_path, delivery=delivery, source={**IN_GROUP, "topics": topics})
    with pytest.raises(ConfigurationError, match="group.id: doesn't work with tables and delivery: " + delivery):
        shared.pipeline("shop.orders")


@pytest.mark.parametrize("topics", [["orders", "orders-out"], "orders.*"])
def test_no_topic_is_written_that_another_pipeline_would_read(tmp_path: Path, topics: object) -> None:
    source = {**FILE["source"], "topics": topics}
    plain = {"name": "shop", "source": source, "tables": {**FILE["tables"], "overrides": {}}}
    letters = {**plain, "dead_letters": {"topic": "{topic}-out"}}
    with pytest.raises(ConfigurationError, match=r"dead_letters\.topic: orders-out is also a topic of the source"):
        template(tmp_path, **letters).pipeline("orders")
    template(tmp_path, **{**letters, "dead_letters": {"topic": "dead-{topic}"}}).pipeline("orders")
    sink = {"type": "kafka_topic", "topic": "{topic}-out"}
    with pytest.raises(ConfigurationError, match=r"tables\.sink\.topic: orders-out is also a topic of the source"):
        template(tmp_path, **{**plain, **tables(sink=sink, overrides={})}).pipeline("orders")


def test_a_topic_keeps_its_group_and_the_others_have_their_own(tmp_path: Path) -> None:
    keeps = {"shop.orders": {"source": {"kafka": {"group.id": "g"}}}}
    weaker = template(tmp_path, delivery="manual_commit", **tables(overrides=keeps))
    assert weaker.pipeline("shop.orders").group == "g"
    assert weaker.pipeline("shop.returns").group == weaker.pipeline("shop.returns").name
    still = template(tmp_path, delivery="manual_commit", source=IN_GROUP, **tables(overrides=keeps))
    assert still.pipeline("shop.orders").group == "g"


def test_a_group_may_be_named_where_it_has_one_member_or_none(tmp_path: Path) -> None:
    alone = {"source": {**IN_GROUP, "topics": ["shop.orders"]}, **tables(overrides={})}
    assert template(tmp_path, delivery="manual_commit", **alone).pipeline("shop.orders").group == "g"
    assert template(tmp_path, source=IN_GROUP).pipeline("shop.orders").group == "g", "published only"


def test_a_start_at_the_end_is_refused(tmp_path: Path) -> None:
    """A topic that appears would begin at the end that it has when somebody looks."""
    with pytest.raises(ConfigurationError, match=r"source.start: latest doesn't work with tables") as caught:
        template(tmp_path, source={**FILE["source"], "start": "latest"}).source  # noqa: B018
    assert "start: {timestamp: 20" in caught.value.message


def test_a_file_for_another_machine_is_checked_without_kafka(tmp_path: Path) -> None:
    kafka = {"bootstrap.servers": "${env:NOT_SET_ANYWHERE}"}
    file = file_of(tmp_path, source={"topics": ["shop.orders", "shop.returns"], "kafka": kafka})
    assert checked_elsewhere(file) == "shop"
    with pytest.raises(ConfigurationError, match=r"tables.overrides.shop.returns.sink.mode: unknown option"):
        checked_elsewhere(file, ["tables.overrides={shop.returns: {sink: {mode: x}}}"])
    source = {"topics": "shop[.].*", "kafka": kafka}
    assert checked_elsewhere(file_of(tmp_path, source=source, **tables(overrides={}))) == "shop"
    with pytest.raises(ConfigurationError, match=r"tables.sink.path"):
        checked_elsewhere(file_of(tmp_path, source=source, **tables(sink={"type": "delta_append", "path": "lake"})))
