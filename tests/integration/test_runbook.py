"""The runbook of docs/runbook.md, done as it stands there, after each fault has really happened."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from conftest import Send, Topic
from kafka import KafkaConsumer, KafkaProducer
from kafka.structs import TopicPartition
from pages import ROOT, Reader, blocks
from typer.testing import CliRunner

from connector import Pipeline
from connector.cli.app import app
from connector.config import load
from connector.lab.bench.broker import Broker
from connector.mirror.translate import translate
from connector.operations.status import Status
from connector.protocol.steps import Event, Step
from sinks.errors import ConfigurationError, NotMirrored
from sinks.offsets import OffsetRange

PAGE = "docs/runbook.md"
UA = {"carrier": "UA", "flight": 1}


@pytest.fixture
def flights(reader: Reader, send: Send) -> Reader:
    """With the page's pipeline, whose first epoch is committed."""
    (file,) = (block for block in blocks(PAGE) if block.file == "flights.yaml")
    reader.write("flights.yaml", file.text)
    send("flights", *(("1", {**UA, "delay": delay}) for delay in range(5)))
    reader.run("lakelock run flights.yaml")
    return reader


def status() -> Status:
    return Pipeline.from_file(Path("flights.yaml")).status()


def table(reader: Reader, path: str = "lake/flights") -> list[int]:
    rows = reader.names["spark"].read.format("delta").load(str(Path(path).resolve())).select("delay").collect()
    return sorted(row.delay for row in rows)


def fails(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code != 0, result.output
    return result.output


@pytest.mark.pages
def test_no_commits_growing_lag_and_the_look_at_who_commits(flights: Reader, send: Send) -> None:
    for number, section in enumerate(("No commits", "Lag grows"), start=5):
        send("flights", ("1", {**UA, "delay": number}))
        flights.follow(PAGE, section)
        assert table(flights)[-1] == number
    for section in ("Fails on every epoch", "Fenced", "Upgrade"):
        flights.follow(PAGE, section)
    assert "0 epochs" in flights.said[-1]


@pytest.mark.pages
def test_lost_records_are_passed_only_when_it_is_said(flights: Reader, send: Send, broker: Broker) -> None:
    (partition,) = (at.partition for at, following in status().offsets.items() if following == 5)
    send("flights", *(("1", {**UA, "delay": delay}) for delay in (5, 6, 7)))
    Topic(broker, "flights").delete_before(partition, 7)
    assert "error: " in fails("run", "flights.yaml")
    stands = status()
    assert (stands.gone, sum(stands.lag.values())) == ([OffsetRange("flights", partition, 5, 7)], 3)
    flights.run("lakelock status flights.yaml")
    assert f"flights-{partition} [5, 7): never read" in " ".join(flights.said[-1].split())
    flights.follow(PAGE, "Data loss")
    assert not status().gone
    assert table(flights) == [0, 1, 2, 3, 4, 7]
    assert status().position.lost == (OffsetRange("flights", partition, 5, 7),)


@pytest.mark.pages
def test_bad_records_are_set_aside_and_sent_through_again(flights: Reader, send: Send) -> None:
    send("flights", ("1", {**UA, "delay": 20_000}), ("1", {**UA, "delay": 5}))
    assert "offset" in fails("run", "flights.yaml")
    flights.follow(PAGE, "Bad records")
    assert table(flights) == [0, 1, 2, 3, 4, 5, 20_000]


@pytest.mark.pages
def test_a_topic_that_was_made_again_is_read_from_its_beginning(flights: Reader, send: Send, broker: Broker) -> None:
    broker.delete_topic("flights")
    broker.create_topic("flights", 2)
    send("flights", ("1", {**UA, "delay": 5}))
    assert "recreated" in fails("run", "flights.yaml")
    stands = status()
    assert (stands.recreated, stands.gone, sum(stands.lag.values())) == ({"flights"}, [], 1)
    assert max(stands.lag_seconds.values()) > 0
    flights.follow(PAGE, "Recreated topic")
    assert table(flights) == list(range(6))


@pytest.mark.pages
def test_an_epoch_in_doubt_is_settled(reader: Reader, send: Send) -> None:
    class Killed(BaseException):
        pass

    def kill(event: Event) -> None:
        if event.step is Step.DECIDED:
            raise Killed

    send("transfers", *(("1", {"id": n, "payer": "a", "payee": "b", "amount": n}) for n in range(5)))
    reader.run("lakelock init --example money_transfers transfers.yaml")
    with pytest.raises(Killed):
        Pipeline.from_file(Path("transfers.yaml")).run(observers=[kill])
    reader.follow(PAGE, "In doubt")
    assert "in doubt" in reader.said[-3]
    assert "exact" in reader.said[-1]


@pytest.mark.pages
def test_a_table_goes_back_and_reads_again(flights: Reader, send: Send) -> None:
    send("flights", ("1", {**UA, "delay": 5}))
    flights.run("lakelock run flights.yaml")
    flights.follow(PAGE, "Restore")
    assert "1 epoch," in flights.said[-2]
    assert table(flights) == list(range(6))


@pytest.mark.pages
def test_two_pipelines_share_a_table(flights: Reader, send: Send) -> None:
    send("more_flights", ("1", {**UA, "delay": 50}))
    flights.follow(PAGE, "Two pipelines on one table")
    assert table(flights) == [0, 1, 2, 3, 4, 50]


@pytest.mark.pages
def test_the_pipeline_moves_to_another_cluster(flights: Reader, send: Send) -> None:
    send("flights", ("1", {**UA, "delay": 5}))
    with Broker() as other:
        other.create_topic("flights", 2)
        Topic(other, "flights").send(("1", {**UA, "delay": 6}))
        file = Path("flights.yaml").read_text(encoding="utf-8")
        Path("moved.yaml").write_text(file.replace(flights.bootstrap, other.bootstrap), encoding="utf-8")
        assert "recreated" in fails("run", "moved.yaml")
        flights.follow(PAGE, "Kafka cluster moved")
    assert table(flights) == list(range(7))
    assert table(flights, "lake/flights_v2") == [6]


def mirror(old: Broker, new: Broker, topic: str, since: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """As MirrorMaker does: keys, values, timestamps and partitions, and offsets of their own."""
    reader = KafkaConsumer(bootstrap_servers=old.bootstrap, auto_offset_reset="earliest", enable_auto_commit=False)
    writer = KafkaProducer(bootstrap_servers=new.bootstrap, acks="all")
    mirrored = {}
    for number in reader.partitions_for_topic(topic):
        at = TopicPartition(topic, number)
        reader.assign([at])
        reader.seek(at, since.get(at, 0))
        end = reader.end_offsets([at])[at]
        while reader.position(at) < end:
            for each in reader.poll(timeout_ms=200).get(at, ()):
                writer.send(topic, each.value, each.key, partition=number, timestamp_ms=each.timestamp)
        mirrored[at] = end
    writer.flush()
    writer.close()
    reader.close()
    return mirrored


@pytest.mark.breadth
def test_a_table_goes_on_in_the_cluster_that_its_topic_was_mirrored_to(
    flights: Reader, send: Send, broker: Broker
) -> None:
    with Broker() as other:
        other.create_topic("flights", 2)
        for partition in (0, 1):
            Topic(other, "flights").send(*[("1", {**UA, "delay": -1})] * 3, partition=partition)
            Topic(other, "flights").delete_before(partition, 3)
        mirrored = mirror(broker, other, "flights", {})
        send("flights", ("1", {**UA, "delay": 5}), ("1", {**UA, "delay": 6}))
        file = Path("flights.yaml").read_text(encoding="utf-8")
        Path("moved.yaml").write_text(file.replace(flights.bootstrap, other.bootstrap), encoding="utf-8")
        said = fails("translate", "flights.yaml", "moved.yaml")
        assert "isn't mirrored to its end yet" in " ".join(said.split())
        mirror(broker, other, "flights", mirrored)
        with pytest.raises(ConfigurationError, match="of different pipelines"):
            translate(load(Path("flights.yaml")), load(Path("moved.yaml"), ["name=other"]))
        flights.follow(PAGE, "Kafka cluster mirrored")
        assert table(flights) == list(range(7))
        Topic(other, "flights").send(("1", {**UA, "delay": 7}))
        # What stays in the file says nothing of what comes later.
        flights.run("lakelock run moved.yaml --set 'source.on_recreated_topic={translated: offsets.json}'")
        assert table(flights) == list(range(8))


@pytest.mark.pages
def test_what_was_lost_in_the_old_cluster_is_not_passed_by_a_move(flights: Reader, send: Send, broker: Broker) -> None:
    (partition,) = (at.partition for at, following in status().offsets.items() if following == 5)
    send("flights", *(("1", {**UA, "delay": delay}) for delay in (5, 6, 7)))
    Topic(broker, "flights").delete_before(partition, 7)
    with Broker() as other:
        other.create_topic("flights", 2)
        mirror(broker, other, "flights", {TopicPartition("flights", partition): 7})
        moved = load(Path("flights.yaml"), [f"source.kafka={{bootstrap.servers: {other.bootstrap}}}"])
        with pytest.raises(NotMirrored, match="wants 5"):
            translate(load(Path("flights.yaml")), moved)


def test_every_alert_leads_to_a_section() -> None:
    titles = [
        line[3:].lower().replace(" ", "-") for line in (ROOT / PAGE).read_text().splitlines() if line[:3] == "## "
    ]
    (group,) = yaml.safe_load((ROOT / "docker/alerts.yml").read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]:
        page, anchor = rule["annotations"]["runbook"].split("#")
        assert page == PAGE
        assert anchor in titles, rule["alert"]
