"""What ``lakelock init`` refuses before it asks Kafka."""

from typer.testing import CliRunner

from connector.cli.app import app


def test_an_option_of_kafka_without_a_value_is_told() -> None:
    told = CliRunner().invoke(app, ["init", "--from-topic", "orders", "--kafka", "bootstrap.servers"])
    assert told.exit_code == 2
    assert "--kafka: write NAME=VALUE" in told.output
