"""The proxy: what it loses is really lost, and nothing else."""

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

import pytest
from conftest import wait_until
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from connector.lab.bench.broker import Broker
from connector.lab.bench.data import produce
from connector.lab.bench.proxy import PRODUCE, Proxy
from sinks.errors import ConfigurationError

FETCH = 1


@pytest.fixture
def echo() -> Iterator[int]:
    """The port of a server that answers every request with its own correlation id and body."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_serve, args=(listener,), daemon=True).start()
        yield listener.getsockname()[1]


def _serve(listener: socket.socket) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_answer, args=(connection,), daemon=True).start()


def _answer(connection: socket.socket) -> None:
    with contextlib.suppress(OSError, struct.error), connection, connection.makefile("rwb") as stream:
        while head := stream.read(4):
            (size,) = struct.unpack(">i", head)
            body = stream.read(size)
            stream.write(struct.pack(">i", size - 4) + body[4:])
            stream.flush()


def request(api_key: int, correlation: int, body: bytes = b"") -> bytes:
    return struct.pack(">ihhi", 8 + len(body), api_key, 0, correlation) + body


def response(correlation: int, body: bytes = b"") -> bytes:
    return struct.pack(">ii", 4 + len(body), correlation) + body


class Client:
    def __init__(self, proxy: Proxy) -> None:
        self.socket = socket.create_connection(("127.0.0.1", proxy.port), timeout=10)

    def ask(self, correlation: int, body: bytes = b"", api_key: int = FETCH) -> bytes:
        self.socket.sendall(request(api_key, correlation, body))
        return self.read(8 + len(body))

    def read(self, size: int) -> bytes:
        found = b""
        while len(found) < size and (chunk := self.socket.recv(size - len(found))):
            found += chunk
        return found


def test_large_messages_pass_whole_in_both_directions(echo: int) -> None:
    body = bytes(range(256)) * 20_000
    with Proxy(echo) as proxy:
        client = Client(proxy)
        # The answer comes while the request is still being sent: neither direction may wait for the other.
        sender = threading.Thread(target=client.socket.sendall, args=(request(FETCH, 1, body),))
        sender.start()
        assert client.read(8 + len(body)) == response(1, body)
        sender.join(10)


def test_a_cut_resets_the_connections_that_are_there_and_new_ones_work(echo: int) -> None:
    with Proxy(echo) as proxy:
        clients = [Client(proxy), Client(proxy)]
        for client in clients:
            client.ask(1)
        assert proxy.cut() == 2
        for client in clients:
            with pytest.raises(ConnectionResetError):
                client.socket.recv(1)
        assert proxy.cut() == 0
        assert Client(proxy).ask(2, b"again") == response(2, b"again")


def test_new_clients_are_turned_away_while_it_refuses_and_present_ones_stay(echo: int) -> None:
    with Proxy(echo) as proxy:
        present = Client(proxy)
        assert present.ask(1) == response(1)
        with proxy.refuse():
            with pytest.raises(OSError):
                Client(proxy).ask(2)
            assert present.ask(3) == response(3)
        assert Client(proxy).ask(4) == response(4)


def test_only_the_wanted_answers_are_lost_and_those_before_arrive(echo: int) -> None:
    with Proxy(echo) as proxy, proxy.drop_response(PRODUCE, count=2) as lost:
        client = Client(proxy)
        assert client.ask(1, b"fetched") == response(1, b"fetched")
        client.socket.sendall(request(FETCH, 2, b"before") + request(PRODUCE, 3) + request(FETCH, 4))
        assert client.read(14) == response(2, b"before")
        with pytest.raises(ConnectionResetError):
            client.socket.recv(1)
        assert not lost.wait(0)
        assert lost.lost == 1
        with pytest.raises(ConnectionResetError):
            Client(proxy).ask(5, api_key=PRODUCE)
        assert lost.wait(10)
        assert Client(proxy).ask(6, api_key=PRODUCE) == response(6)
    assert lost.lost == 2


def test_an_answer_that_is_no_longer_to_be_lost_arrives(echo: int) -> None:
    with Proxy(echo) as proxy:
        with proxy.drop_response():
            pass
        assert Client(proxy).ask(1, api_key=PRODUCE) == response(1)


def test_clients_are_turned_away_while_nobody_listens_behind_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with Proxy(port) as proxy:
        with pytest.raises(OSError):
            Client(proxy).ask(1)
        with socket.create_server(("127.0.0.1", port)) as listener:
            threading.Thread(target=_serve, args=(listener,), daemon=True).start()
            assert Client(proxy).ask(2) == response(2)


def test_what_is_not_kafka_is_cut_off(echo: int) -> None:
    with Proxy(echo) as proxy:
        client = Client(proxy)
        client.socket.sendall(b"GET / HTTP/1.1\r\n\r\n")
        with pytest.raises(ConnectionResetError):
            client.socket.recv(1)


def test_closing_resets_everything_frees_the_port_and_it_can_start_again(echo: int) -> None:
    before = threading.active_count()
    proxy = Proxy(echo)
    with proxy:
        port = proxy.port
        client = Client(proxy)
        client.ask(1)
    with pytest.raises(ConnectionResetError):
        client.socket.recv(1)
    with pytest.raises(ConnectionRefusedError):
        Client(proxy)
    proxy.close()
    assert proxy.cut() == 0
    wait_until(lambda: threading.active_count() <= before)
    with proxy:
        assert proxy.port == port
        assert Client(proxy).ask(2) == response(2)


def test_a_client_that_hangs_up_leaves_no_connection(echo: int) -> None:
    with Proxy(echo) as proxy:
        client = Client(proxy)
        client.ask(1)
        client.socket.close()
        wait_until(lambda: not proxy._connections)


def test_many_clients_and_cuts_at_once(echo: int) -> None:
    """Each answer that arrives is the right one, whatever is cut meanwhile."""
    wrong: list[bytes] = []
    with Proxy(echo) as proxy:

        def ask(number: int) -> None:
            for correlation in range(30):
                try:
                    body = b"%d/%d" % (number, correlation) * 500
                    found = Client(proxy).ask(correlation, body)
                except OSError:
                    continue
                if found and not response(correlation, body).startswith(found):
                    wrong.append(found)

        clients = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
        for client in clients:
            client.start()
        while any(client.is_alive() for client in clients):
            proxy.cut()
            clients[0].join(0.005)
    assert wrong == []


def values(bootstrap: str, topic: str) -> list[bytes]:
    place = TopicPartition(topic, 0)
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    found: list[bytes] = []

    def complete() -> bool:
        for records in consumer.poll(timeout_ms=200).values():
            found.extend(record.value for record in records)
        return consumer.position(place) >= end

    try:
        consumer.assign([place])
        consumer.seek_to_beginning(place)
        end = consumer.end_offsets([place])[place]
        wait_until(complete)
    finally:
        consumer.close()
    return found


@pytest.fixture(scope="module")
def proxied() -> Iterator[Broker]:
    """One that may be killed."""
    with Broker(proxied=True) as broker:
        yield broker


@pytest.mark.breadth
def test_clients_of_the_proxy_stay_on_it(proxied: Broker) -> None:
    proxied.create_topic("stays")
    with proxied.proxy() as proxy:
        producer = KafkaProducer(bootstrap_servers=proxy.bootstrap, acks="all")
        producer.send("stays", b"v").get(30)
        with proxy.drop_response() as lost:
            producer.send("stays", b"w").get(30)
        producer.close()
    assert lost.lost == 1
    assert values(proxied.bootstrap, "stays") == [b"v", b"w"]


@pytest.mark.breadth
def test_the_proxy_lives_on_while_its_broker_is_killed_and_started(proxied: Broker) -> None:
    proxied.create_topic("lives")
    with proxied.proxy() as proxy:
        assert produce(proxy.bootstrap, "lives", [(None, b"before")]) == 1
        proxied.kill()
        with pytest.raises(OSError):
            Client(proxy).ask(1)
        proxied.start()
        assert produce(proxy.bootstrap, "lives", [(None, b"after")]) == 1
    assert values(proxied.bootstrap, "lives") == [b"before", b"after"]


def test_a_broker_without_a_second_listener_says_so() -> None:
    with pytest.raises(ConfigurationError, match="second listener"):
        Broker().proxy()
