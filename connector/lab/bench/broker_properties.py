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
    # Kafka's default of 6 seconds is how long a killed consumer would hold its partitions at least
    "group.min.session.timeout.ms": "1000",
    # one broker, so one replica
    "default.replication.factor": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # small: fewer partitions to make and to recover, fewer threads, less memory
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "num.network.threads": "2",
    "num.io.threads": "2",
    "background.threads": "2",
    "log.cleaner.dedupe.buffer.size": "16777216",
    # After kill() the controller takes the dead broker for alive until its session ends, and turns the new one
    # away: with Kafka's default of 9 seconds, a start takes 11 seconds instead of 3.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
}
"""What the embedded broker does differently from Kafka. A user's properties override these."""


@dataclass(frozen=True)
class Listeners:
    """The ports of one broker, all on 127.0.0.1. They stay the same when the broker restarts."""

    plain: int
    proxied: tuple[int, int] | None
    """Of the listener behind a proxy: the broker's own port, and the proxy's port, which the broker advertises."""
    secured: Mapping[str, int]
    protocols: Mapping[str, str]
    """The security protocol of each secured listener."""

    @property
    def ports(self) -> list[int]:
        """All ports of this broker, the advertised one of the proxy included."""
        return [self.plain, *(self.proxied or ()), *self.secured.values()]


def choose_listeners(port: int | None, *, proxied: bool, secured: Mapping[str, str]) -> Listeners:
    """Choose a free port for every listener; ``port`` is that of the plain one, None for a free one.

    ``secured``: listener name -> security protocol. Raises `SourceError` when no port is free.
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
    """The text of ``server.properties``: the user's ``properties`` over `DEFAULTS`, and what makes this broker.

    Chooses a free port for the controller. Raises `SourceError` when no port is free.
    """
    (controller,) = free_ports(1, besides=listeners.ports)
    listening = {"PLAINTEXT": listeners.plain, "CONTROLLER": controller, **listeners.secured}
    advertised = {"PLAINTEXT": listeners.plain, **listeners.secured}
    if listeners.proxied is not None:
        # A broker tells a client the address that belongs to the listener on which the client asked.
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
        # A static quorum isn't stored in the data, so the controller's port may change with each start.
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        # Relative to the process's working directory, because this is a list, and a path may contain commas.
        "log.dirs": "kafka",
    }
    return "".join(f"{key}={_escaped(value)}\n" for key, value in sorted(settings.items()))


def free_ports(count: int, besides: Collection[int] = ()) -> list[int]:
    """Find ports that are free now, below those that systems give to outgoing connections (from 32768 up).

    Port 0 would give a port of that higher range. While the broker is down after `Broker.kill`, a client's outgoing
    connection could then take the broker's port, and the broker could not come back. Even the connection of a client
    that tries to reach this broker could take it. Raises `SourceError` when too few ports are free.
    """
    free: list[int] = []
    for port in random.sample(range(20_000, 32_000), 100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            # Java does the same: a port in TIME_WAIT counts as free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            if port not in besides:
                free.append(port)
        if len(free) == count:
            return free
    raise SourceError("no free port found between 20000 and 32000", hint="Give the broker a `port`.")


def _addresses(listeners: Mapping[str, int]) -> str:
    return ",".join(f"{name}://127.0.0.1:{port}" for name, port in listeners.items())


def _escaped(value: str) -> str:
    """Escape a value for a Java properties file: everything but plain ASCII becomes its UTF-16 units."""
    units = value.encode("utf-16-be")
    codes = [int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2)]
    return "".join(chr(code) if 32 < code < 127 and code != ord("\\") else f"\\u{code:04x}" for code in codes)
