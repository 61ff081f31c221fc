from pathlib import Path

import pytest

from connector.config import load
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
