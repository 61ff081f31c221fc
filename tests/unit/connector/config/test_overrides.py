from pathlib import Path

import pytest

from connector.config import load
from connector.config.overrides import overridden
from connector.config.yaml_text import read_yaml
from sinks.errors import ConfigurationError

FILE = """
name: flights
source: {topics: [flights], kafka: {bootstrap.servers: "a:9092"}}
value: {format: json, schema: "carrier STRING"}
metrics: {port: 9464}
sinks: [{type: delta_append, path: lake/flights}]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "flights.yaml"
    made.write_text(FILE)
    return made


def test_what_differs_from_place_to_place_is_set_on_the_command_line(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROKERS", "b:9092,c:9092")
    config = load(
        file,
        [
            "source.kafka.bootstrap.servers=${env:BROKERS}",
            "source.kafka.security.protocol=SSL",
            "source.topics=[flights, delays]",
            "spark.spark.sql.shuffle.partitions=8",
            "sinks[0].path=s3a://lake/flights",
            "epoch.max_records=500000",
            "metrics=",
        ],
    )
    assert config.source.kafka_options["bootstrap.servers"] == "b:9092,c:9092"
    assert config.source.kafka_options["security.protocol"] == "SSL"
    assert config.source.topics == ("flights", "delays")
    assert config.spark_options == {"spark.sql.shuffle.partitions": "8"}
    assert config.sinks[0].place == "s3a://lake/flights"
    assert config.epoch.max_records == 500000
    assert config.metrics is None


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("epoch.max_records", "write OPTION=VALUE"),
        ("=5", "write OPTION=VALUE"),
        ("sinks[0]path=x", "write OPTION=VALUE"),
        ("[0].path=x", "write OPTION=VALUE"),
        ("sinks[1].path=x", "Counting begins at 0: the only one is sinks[0]."),
        ("name[0]=x", "is 'flights', not a list, so it has no [0]"),
        ("coordinators[0]=x", "has no list coordinators. Set it as a whole"),
        ("name.first=x", "is 'flights', not a mapping of options, so it can't have 'first'"),
        ("source.start={", "not valid YAML"),
        ("source.strat=latest", "--set source.strat: source.strat: unknown option, did you mean start?"),
        ("source.kafka.sasl.password=hunter2", "a secret in a file"),
    ],
)
def test_a_wrong_one_is_named_and_nothing_is_touched(file: Path, override: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        load(file, [override])
    assert said in str(raised.value)
    assert "hunter2" not in str(raised.value)


SHARED = """
name: shared
source: {topics: [t], kafka: {bootstrap.servers: "a:9092"}}
value: {format: json, schema: "id STRING, v BIGINT"}
coordinator: {path: lake/log}
sinks:
  - {type: delta_aggregate, path: lake/a, group_by: id, aggregates: &agg {n: count(*), s: sum(v)}}
  - {type: delta_aggregate, path: lake/b, group_by: v, aggregates: *agg}
"""


def test_what_is_set_by_an_alias_is_set_there_alone(tmp_path: Path) -> None:
    made = tmp_path / "shared.yaml"
    made.write_text(SHARED)
    for override, of_first in (
        ("sinks[0].aggregates.n=sum(v)", {"n": "sum(v)", "s": "sum(v)"}),
        ("sinks[0].aggregates.s=", {"n": "count(*)"}),
    ):
        first, second = load(made, [override]).sinks
        assert (first.aggregates, second.aggregates) == (of_first, {"n": "count(*)", "s": "sum(v)"})
        first, second = load(made, [override.replace("[0]", "[1]")]).sinks
        assert (second.aggregates, first.aggregates) == (of_first, {"n": "count(*)", "s": "sum(v)"})


def test_an_option_below_a_merged_mapping_is_set_there_alone() -> None:
    document, marks = read_yaml("a: &a {of: {x: 1}, list: [{y: 1}]}\nb: {<<: *a, z: 1}", "file")
    assert isinstance(document, dict)
    document = overridden(document, ["a.of.x=2", "b.list[0].y=2"], marks, origin="file")
    assert document == {"a": {"of": {"x": 2}, "list": [{"y": 1}]}, "b": {"of": {"x": 1}, "list": [{"y": 2}], "z": 1}}


def test_an_anchor_that_contains_itself_does_not_stop_an_override() -> None:
    document, marks = read_yaml("a: &a {itself: *a}\nb: 1", "file")
    assert isinstance(document, dict)
    assert overridden(document, ["b=2"], marks, origin="file")["b"] == 2
