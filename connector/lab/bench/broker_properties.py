"""The embedded broker's properties file: its ports, its defaults, and the properties that a user can't change."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sinks.errors import ConfigurationError, SourceError

RESERVED = {
    "process.roles",
    "node.id",
    "listeners",
    "advertised.listeners",
    "controller.listener.names",
    "controller.quorum.voters",
    "listener.security.protocol.map",
    "log.dir",
    "log.dirs",
}
"""The properties that `Broker` sets itself, because it relies on their values."""

DEFAULTS = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    # With Kafka's default of 6 seconds, a killed consumer would hold its partitions at least that long.
    "group.min.session.timeout.ms": "1000",
    # There is one broker, so one replica.
    "default.replication.factor": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # Fewer partitions to create and recover, fewer threads, less memory.
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "num.network.threads": "2",
    "num.io.threads": "2",
    "background.threads": "2",
    "log.cleaner.dedupe.buffer.size": "16777216",
    # After kill() the controller considers the dead broker alive until its session ends, and rejects the new one.
    # With Kafka's default of 9 seconds, a start would take 11 seconds instead of 3.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
}
"""The embedded broker's settings that differ from Kafka's defaults. A user's properties override them."""


@dataclass(frozen=True)
class Listeners:
    """The ports of one broker, all on 127.0.0.1. They stay the same when the broker restarts."""

    plain: int
    proxied: tuple[int, int] | None
    """For the listener behind a proxy: the broker's port, and the proxy's port, which the broker advertises."""
    secured: Mapping[str, int]
    protocols: Mapping[str, str]
    """The security protocol of each secured listener."""

    @property
    def ports(self) -> list[int]:
        """All ports of this broker, including the proxy's."""
        return [self.plain, *(self.proxied or ()), *self.secured.values()]


def choose_listeners(port: int | None, *, proxied: bool, secured: Mapping[str, str]) -> Listeners:
    """Choose a free port for every listener.

    ``port``: the plain listener's port, None for a free one. ``secured``: listener name -> security protocol. Raises
    `SourceError` if no port is free.
    """
    plain = free_ports(1)[0] if port is None else port
    behind_proxy = free_ports(2, besides=[plain]) if proxied else []
    ports = free_ports(len(secured), besides=[plain, *behind_proxy]) if secured else []
    pair = (behind_proxy[0], behind_proxy[1]) if proxied else None
    return Listeners(plain, pair, dict(zip(secured, ports, strict=True)), dict(secured))


def refuse_reserved(properties: Mapping[str, str]) -> None:
    """Raise `ConfigurationError` if a user's properties contain one of `RESERVED`."""
    refused = sorted(RESERVED & properties.keys())
    if refused:
        raise ConfigurationError(
            f"the embedded broker sets {', '.join(refused)} itself",
            hint="Use its arguments `data` and `port`, or a Kafka of your own.",
        )


def server_properties(listeners: Listeners, properties: Mapping[str, str]) -> str:
    """The text of ``server.properties``: `DEFAULTS`, the user's ``properties``, and the settings of `RESERVED`.

    Chooses a free port for the controller. Raises `SourceError` if no port is free.
    """
    (controller,) = free_ports(1, besides=listeners.ports)
    listening = {"PLAINTEXT": listeners.plain, "CONTROLLER": controller, **listeners.secured}
    advertised = {"PLAINTEXT": listeners.plain, **listeners.secured}
    if listeners.proxied is not None:
        # A broker tells a client the address of the listener that the client uses.
        listening["PROXIED"], advertised["PROXIED"] = listeners.proxied
    settings = {
        **DEFAULTS,
        **properties,
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": _addresses(listening),
        "advertised.listeners": _addresses(advertised),
        "listener.security.protocol.map": ",".join(
            f"{name}:{listeners.protocols.get(name, 'PLAINTEXT')}" for name in listening
        ),
        "controller.listener.names": "CONTROLLER",
        # The data don't store a static quorum, so the controller's port may change with each start.
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        # A path relative to the working directory. An absolute path may contain commas, which separate paths here.
        "log.dirs": "kafka",
    }
    return "".join(f"{key}={_escaped(value)}\n" for key, value in sorted(settings.items()))


def free_ports(count: int, besides: Collection[int] = ()) -> list[int]:
    """Find free ports below 32768, where systems begin to assign ports to outgoing connections.

    Port 0 would give a port of that higher range. While the broker is down after `Broker.kill`, an outgoing connection
    could then take the broker's port, even that of a client that tries to reach this broker. The broker could not
    start again. Raises `SourceError` if too few ports are free.
    """
    free: list[int] = []
    for port in random.sample(range(20_000, 32_000), 100):
        if port not in besides and is_free(port):
            free.append(port)
        if len(free) == count:
            return free
    raise SourceError("no free port found between 20000 and 32000", hint="Give the broker a `port`.")


def is_free(port: int) -> bool:
    """Whether a broker could listen on this port of this machine."""
    with socket.socket() as probe, contextlib.suppress(OSError):
        # A port in TIME_WAIT counts as free, as in Java.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))
        return True
    return False


def _addresses(listeners: Mapping[str, int]) -> str:
    return ",".join(f"{name}://127.0.0.1:{port}" for name, port in listeners.items())


def _escaped(value: str) -> str:
    """Escape a value for a Java properties file. All characters but plain ASCII become UTF-16 units."""
    units = value.encode("utf-16-be")
    codes = [int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2)]
    return "".join(chr(code) if 32 < code < 127 and code != ord("\\") else f"\\u{code:04x}" for code in codes)
