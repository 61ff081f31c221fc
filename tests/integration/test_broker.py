"""The embedded broker: a real one, killed for real."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import wait_until
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition

from connector.lab.bench import data
from connector.lab.bench.broker import Broker
from connector.lab.bench.data import produce
from sinks.errors import BrokerUnreachable, ConfigurationError, SourceError, TopicMissing

Records = list[tuple[bytes | None, bytes | None]]


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One that may be killed. Its folder has what a path can have: Kafka takes commas for lists."""
    with Broker(tmp_path_factory.mktemp("brøker, with a comma")) as broker:
        yield broker


def read(broker: Broker, topic: str, partitions: int) -> Records:
    """All records from the first offsets to the ends, by partition and offset."""
    places = [TopicPartition(topic, number) for number in range(partitions)]
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, enable_auto_commit=False)
    try:
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        ends = consumer.end_offsets(places)
        found: dict[TopicPartition, Records] = {place: [] for place in places}
        deadline = time.monotonic() + 30
        while any(consumer.position(place) < ends[place] for place in places):
            assert time.monotonic() < deadline, f"read {found} of {ends}"
            for place, records in consumer.poll(timeout_ms=500).items():
                found[place] += [(record.key, record.value) for record in records]
    finally:
        consumer.close()
    return [record for place in places for record in found[place]]


def partitions(broker: Broker, topic: str) -> int:
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap) as admin:
        (found,) = admin.describe_topics([topic])
    return len(found["partitions"])


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.breadth
def test_records_survive_a_kill_and_a_stop_of_the_broker(own: Broker) -> None:
    own.create_topic("kept", 3)
    sent: Records = [(b"k%d" % (number % 50), b"v%d" % number) for number in range(1000)]
    progress: list[int] = []
    assert produce(own.bootstrap, "kept", sent, on_progress=progress.append) == 1000
    assert progress[-1] == 1000
    before = read(own, "kept", 3)
    assert sorted(before) == sorted(sent)
    bootstrap, pid = own.bootstrap, own.pid
    assert pid is not None

    own.kill()
    assert not alive(pid)
    assert not own.running
    own.start()
    assert own.bootstrap == bootstrap
    assert own.pid not in (None, pid)
    assert read(own, "kept", 3) == before

    own.stop()
    own.start()
    assert read(own, "kept", 3) == before


@pytest.mark.breadth
def test_a_broker_killed_while_records_are_sent_has_each_of_them_once_and_in_order(own: Broker) -> None:
    own.create_topic("shaken")
    killed: list[int] = []

    def kill_once(done: int) -> None:
        if done and not killed:
            killed.append(done)
            own.kill()
            own.start()

    sent: Records = [(None, b"%d" % number) for number in range(20_000)]
    assert produce(own.bootstrap, "shaken", sent, on_progress=kill_once) == 20_000
    assert killed[0] < 20_000
    assert read(own, "shaken", 1) == sent


@pytest.mark.breadth
def test_records_of_one_key_stay_in_order_in_one_partition(own: Broker) -> None:
    own.create_topic("keyed", 4)
    produce(own.bootstrap, "keyed", [(b"k%d" % (number % 7), b"%d" % number) for number in range(700)])
    for key in range(7):
        values = [int(value or b"") for found, value in read(own, "keyed", 4) if found == b"k%d" % key]
        assert values == list(range(key, 700, 7))


@pytest.mark.breadth
def test_partitions_can_be_added(own: Broker) -> None:
    own.create_topic("grows", 1)
    own.add_partitions("grows", 3)
    assert partitions(own, "grows") == 3
    assert produce(own.bootstrap, "grows", [(b"k%d" % number, b"v") for number in range(100)]) == 100
    with pytest.raises(SourceError, match="InvalidPartitions"):
        own.add_partitions("grows", 2)


def test_a_deleted_topic_is_gone_and_can_be_made_again_empty(own: Broker) -> None:
    own.create_topic("again")
    produce(own.bootstrap, "again", [(b"k", b"v")])
    own.delete_topic("again")
    with pytest.raises(SourceError):
        own.delete_topic("again")
    own.create_topic("again", config={"cleanup.policy": "compact"})
    assert read(own, "again", 1) == []


def test_the_brokers_own_words_are_in_the_error(own: Broker) -> None:
    own.create_topic("twice")
    with pytest.raises(SourceError, match="already exists"):
        own.create_topic("twice")
    with pytest.raises(SourceError, match=r"Unknown topic config name: no\.such"):
        own.create_topic("odd", config={"no.such": "1"})


def test_produce_names_a_missing_topic_at_once(own: Broker) -> None:
    with pytest.raises(TopicMissing, match="absent"):
        produce(own.bootstrap, "absent", [(b"k", b"v")])


def test_a_record_that_the_broker_refuses_is_an_error(own: Broker) -> None:
    own.create_topic("narrow", config={"max.message.bytes": "1000"})
    with pytest.raises(SourceError, match="0 were acknowledged"):
        produce(own.bootstrap, "narrow", [(b"k", os.urandom(5000))])


@pytest.mark.breadth
def test_a_second_broker_on_the_port_fails_with_the_end_of_its_log(own: Broker) -> None:
    with pytest.raises(SourceError, match="Address already in use"), Broker(port=own.port):
        pass


def test_a_broker_that_is_not_running_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "REACH_MS", 500)
    broker = Broker()
    broker.stop()
    with pytest.raises(SourceError, match="isn't running"):
        broker.create_topic("t")
    with pytest.raises(BrokerUnreachable):
        produce(broker.bootstrap, "t", [])


def test_settings_that_make_the_broker_cannot_be_overridden() -> None:
    with pytest.raises(ConfigurationError, match=r"log\.dirs"):
        Broker(properties={"log.dirs": "elsewhere", "num.io.threads": "3"})


PARENT = """
from connector.lab.bench.broker import Broker
with Broker() as broker:
    print(broker.pid, broker.data, flush=True)
    input()
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.breadth
def test_the_broker_ends_with_its_python_process(how: signal.Signals) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent, contextlib.ExitStack() as after:
        after.callback(parent.kill)
        assert parent.stdout is not None
        pid, folder = parent.stdout.readline().split()
        assert alive(int(pid))
        assert Path(folder, "server.properties").exists()
        parent.send_signal(how)
        parent.wait(30)
        wait_until(lambda: not alive(int(pid)))
        wait_until(lambda: not Path(folder).exists())


@pytest.mark.breadth
def test_the_broker_has_a_session_of_its_own_so_ctrl_c_reaches_python_only() -> None:
    with Broker() as broker:
        assert broker.pid is not None
        assert os.getsid(broker.pid) != os.getsid(0)
