"""``flows:``, as the pipeline file has it: what is taken, and what is refused before anything is touched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from connector.config import AvroFormat, PipelineConfig, Template, load_any, loads, parse
from connector.config.sensitive import is_sensitive
from connector.derive.masked_keys import refuse_other_masks
from connector.operations.lineage import lineage_of
from connector.streaming.foreach_batch import foreach_batch
from sinks.errors import ConfigurationError

JSON = {"format": "json", "schema": "id INT, email STRING, seq BIGINT"}
AVRO = {"format": "avro", "schema_file": "old.avsc"}
DEBEZIUM = {"format": "debezium", "schema": "id INT"}
MASK = {"mask": "email", "salt": "${env:MASK_SALT}"}
UPSERT = {"type": "delta_upsert", "path": "lake/t", "key": "id"}


@pytest.fixture(autouse=True)
def _salts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASK_SALT", "a salt of the tests")
    monkeypatch.setenv("OTHER_SALT", "another salt of the tests")


def config(*flows: Any, topics: Any = ("a", "b", "c"), **changes: Any) -> PipelineConfig:
    options: dict[str, Any] = {
        "name": "p",
        "source": {
            "topics": topics if isinstance(topics, str) else list(topics),
            "kafka": {"bootstrap.servers": "k:1"},
        },
        "value": JSON,
        "flows": list(flows),
        "sinks": [UPSERT],
    }
    return parse({name: value for name, value in {**options, **changes}.items() if value is not None})


def refused(*flows: Any, **changes: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        config(*flows, **changes)
    return str(caught.value)


def test_each_flow_is_the_file_with_its_own_options() -> None:
    one = {"topics": ["c"], "value": AVRO, "steps": [{"rename": {"order_id": "id"}}]}
    two = {"topics": ["b"], "require": "id > 0", "steps": []}
    made = config(one, two, steps=[{"drop": "email"}], require="seq > 0")
    rest, first, second = made.by_flow
    assert [flow.source.topics for flow in made.by_flow] == [("a",), ("c",), ("b",)]
    assert [flow.require for flow in made.by_flow] == ["seq > 0", "seq > 0", "id > 0"]
    assert [[step.kind for step in flow.steps] for flow in made.by_flow] == [["drop"], ["rename"], []]
    assert isinstance(first.value, AvroFormat)
    assert second.value == rest.value == made.value
    assert [flow.schema_option for flow in made.by_flow] == ["value.schema", "flows[0].value.schema", "value.schema"]
    assert [flow.option("steps[0].drop: ...") for flow in made.by_flow][1:] == [
        "flows[0].steps[0].drop: ...", "flows[1].steps[0].drop: ...",
    ]  # fmt: skip
    assert config(flows=None).by_flow == (config(flows=None),)


def test_a_changed_flow_makes_other_rows() -> None:
    """So an epoch in doubt isn't finished by it."""
    flow = {"topics": ["c"], "steps": [{"drop": "email"}]}
    others = [
        [], [{**flow, "topics": ["b"]}], [{**flow, "topics": ["b", "c"]}], [{**flow, "steps": [{"drop": "seq"}]}],
        [{**flow, "require": "id > 0"}], [{**flow, "key": {"format": "string"}}], [{**flow, "value": AVRO}],
        [{**flow, "steps": [MASK]}], [{**flow, "steps": [{**MASK, "salt": "${env:OTHER_SALT}"}]}],
    ]  # fmt: skip
    shapes = [config(flow).shape, *(config(*each).shape for each in others)]
    assert len({*shapes}) == len(shapes)
    assert config(flow).shape == shapes[0]
    assert config(flow, trigger={"interval": "1 minute"}).shape == shapes[0]
    assert config().shape == config(flows=None).shape


def test_files_lie_beside_the_pipeline_file_and_secrets_stay_hidden() -> None:
    text = """
    name: p
    source: {topics: [a, b], kafka: {bootstrap.servers: "k:1"}}
    value: {format: string}
    flows:
      - topics: [b]
        value: {format: avro, schema_file: old.avsc}
        steps: [{mask: email, salt: "${env:MASK_SALT}"}]
    sinks: [{type: delta_append, path: lake/t}]
    """
    made = loads(text, folder="/files")
    assert made.by_flow[1].value.schema_file == "/files/old.avsc"  # type: ignore[union-attr]
    assert "a salt of the tests" not in f"{made!r} {made.document}"
    with pytest.raises(ConfigurationError, match=r"flows\[0\].steps\[0\].salt: a secret must not be written"):
        loads(text.replace("${env:MASK_SALT}", "a salt of the tests"))


def test_a_column_is_sensitive_that_one_flow_shows() -> None:
    flow = {"topics": ["b"], "steps": [MASK]}
    assert is_sensitive(config(flow, sensitive="email"), "email")
    assert not is_sensitive(config(flow, sensitive="email", steps=[MASK]), "email")
    renamed = {"topics": ["b"], "steps": [{"rename": {"email": "id"}}, {"drop": "seq"}]}
    assert "sinks[0].key, and errors and verify name rows by their key" in refused(renamed, sensitive="email")


def test_a_key_is_masked_alike_in_all_flows() -> None:
    sink = {**UPSERT, "key": "email"}
    renamed = [{"rename": {"mail": "email"}}, MASK]
    refuse_other_masks(config({"topics": ["b"], "steps": renamed}, steps=[MASK], sinks=[sink]))
    for steps in ([], [{**MASK, "salt": "${env:OTHER_SALT}"}]):
        with pytest.raises(ConfigurationError, match=r"flows\[0\].steps: mask email otherwise"):
            refuse_other_masks(config({"topics": ["b"], "steps": steps}, steps=[MASK], sinks=[sink]))


@pytest.mark.parametrize(
    "sink",
    [
        {"type": "delta_aggregate", "path": "t", "group_by": "id", "aggregates": {"c": "approx_count_distinct(email)"}},
        {"type": "delta_history", "path": "t", "key": "id"},
    ],
)
def test_values_that_go_together_have_one_salt_in_all_flows(sink: dict[str, Any]) -> None:
    for steps in ([MASK], []):  # a flow may lack the column
        refuse_other_masks(config({"topics": ["b"], "steps": steps}, steps=[MASK], sinks=[sink]))
    other = {"topics": ["b"], "steps": [{**MASK, "salt": "${env:OTHER_SALT}"}]}
    with pytest.raises(ConfigurationError, match=r"flows\[0\].steps: mask email otherwise"):
        refuse_other_masks(config(other, steps=[MASK], sinks=[sink]))


def test_what_reads_a_record_is_shown() -> None:
    shown = lineage_of(config({"topics": ["b"], "value": AVRO, "steps": [{"drop": "x"}]}, steps=[{"drop": "seq"}]))
    assert shown.steps == ["decoded as json", "changed by drop", "decoded as avro (b)", "changed by drop"]


ROUTE = {"by": "id", "sink": {**UPSERT, "path": "lake/{id}"}}
OTHER = {"topics": ["b"], "value": AVRO}


@pytest.mark.parametrize(
    ("flows", "changes", "says"),
    [
        ([{"topics": ["b"]}], {}, "flows[0]: give value, key, require or steps"),
        ([{"value": AVRO}], {}, "flows[0].topics: is missing"),
        ([{"topics": [], "value": AVRO}], {}, "flows[0].topics: is empty"),
        ([{**OTHER, "topics": ["bb"]}], {}, "flows[0].topics: bb isn't in source.topics"),
        ([OTHER, OTHER], {}, "flows[1].topics: b is in flows[0] too, and a topic belongs to one flow"),
        ([{**OTHER, "topics": ["b", "b"]}], {}, "flows[0].topics: b is there twice"),
        ([{**OTHER, "topics": ["a", "b", "c"]}], {}, "flows: every topic of source.topics is in a flow"),
        ([{**OTHER, "transform": "SELECT 1 FROM records"}], {}, "flows[0].transform: unknown option"),
        ([{**OTHER, "value": {"format": "jsn"}}], {}, "flows[0].value.format: is one of json"),
        ([{**OTHER, "value": {"schema": "id INT"}}], {}, "flows[0].value.format: is missing: write one of json"),
        ([{**OTHER, "value": {"format": "json", "shema": "x"}}], {}, "flows[0].value.shema: unknown option"),
        ([OTHER], {"topics": "orders-.*"}, "flows: source.topics: a pattern doesn't work with flows"),
        ([OTHER], {"delivery": "manual_commit"}, "flows: delivery: manual_commit doesn't work with flows"),
        ([OTHER], {"on_new_column": "add"}, "flows: on_new_column: add doesn't work with flows"),
        ([OTHER], {"on_new_column": "ignore"}, "flows: on_new_column: ignore doesn't work with flows"),
        ([OTHER], {"sinks": [{**UPSERT, "merge": "on_read"}]}, "flows: merge: on_read doesn't work with flows"),
        (
            [OTHER],
            {"sinks": None, "route": ROUTE, "coordinator": {"path": "lake/_log"}},
            "flows: route doesn't work with flows",
        ),
        ([{**OTHER, "value": {"format": "rows", "schema": "id INT"}}], {}, "flows[0].value: format: rows doesn't work"),
        ([{**OTHER, "key": {"format": "rows", "schema": "id INT"}}], {}, "flows[0].key: format: rows is allowed"),
        ([{**OTHER, "value": {**JSON, "schema": "inferred"}}], {}, "flows[0].value.schema: inferred doesn't work"),
        ([OTHER], {"value": {**JSON, "schema": "inferred"}}, "value.schema: inferred doesn't work with flows"),
        (
            [{**OTHER, "value": {**DEBEZIUM, "unavailable": "keep"}}],
            {"value": DEBEZIUM},
            "value.unavailable: keep doesn't work with flows",
        ),
        ([{**OTHER, "value": DEBEZIUM}], {}, "flows[0].value has format: debezium, and value hasn't"),
        ([{**OTHER, "steps": [{"drop": "id"}]}], {}, "flows[0].steps[0].drop: removes id, a column of sinks[0].key"),
        (
            [{**OTHER, "value": {**JSON, "schema": "id INT, kafka_key STRING"}}],
            {"sinks": [{**UPSERT, "key": "kafka_key"}]},
            "flows[0].value.schema has a column of this name",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_with_its_place(flows: Any, changes: Any, says: str) -> None:
    assert says in refused(*flows, **changes)


def test_tables_of_topics_have_no_flows(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    tables = {"for_each": "topic", "sink": {"type": "delta_append", "path": "lake/{topic}"}}
    source = {"topics": ["a", "b"], "kafka": {"bootstrap.servers": "k:1"}}
    file.write_text(yaml.safe_dump({"name": "p", "source": source, "value": JSON, "flows": [OTHER], "tables": tables}))
    found = load_any(file)
    assert isinstance(found, Template)
    with pytest.raises(ConfigurationError, match="flows: doesn't work with tables"):
        found.pipeline("a")


def test_a_stream_of_the_users_own_has_no_flows() -> None:
    with pytest.raises(ConfigurationError, match="flows: is for `lakelock run`"):
        foreach_batch(config(OTHER).document, checkpoint="c")  # type: ignore[arg-type]
