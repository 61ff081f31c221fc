"""The properties file of the embedded broker, without a broker."""

from __future__ import annotations

import socket

import pytest

from connector.lab.bench.broker_properties import (
    DEFAULTS,
    RESERVED,
    Listeners,
    choose_listeners,
    is_free,
    refuse_reserved,
    server_properties,
)
from sinks.errors import ConfigurationError

PLAIN = Listeners(plain=20001, proxied=None, secured={}, protocols={})


def written(listeners: Listeners, **properties: str) -> dict[str, str]:
    text = server_properties(listeners, {name.replace("_", "."): value for name, value in properties.items()})
    return dict(line.split("=", 1) for line in text.splitlines())


def test_a_users_property_goes_before_the_default() -> None:
    assert written(PLAIN)["num.io.threads"] == DEFAULTS["num.io.threads"]
    assert written(PLAIN, num_io_threads="5")["num.io.threads"] == "5"


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_a_reserved_property_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=name):
        refuse_reserved({name: "x", "num.io.threads": "5"})


def test_the_listener_behind_a_proxy_advertises_the_proxy() -> None:
    properties = written(Listeners(20001, (20002, 20003), {"SAFE": 20004}, {"SAFE": "SASL_SSL"}))
    assert "PROXIED://127.0.0.1:20002" in properties["listeners"]
    assert "PROXIED://127.0.0.1:20003" in properties["advertised.listeners"]
    assert "CONTROLLER" not in properties["advertised.listeners"]
    protocols = properties["listener.security.protocol.map"].split(",")
    assert set(protocols) == {"PLAINTEXT:PLAINTEXT", "CONTROLLER:PLAINTEXT", "PROXIED:PLAINTEXT", "SAFE:SASL_SSL"}


def test_every_listener_has_a_port_of_its_own() -> None:
    listeners = choose_listeners(None, proxied=True, secured={"A": "SSL", "B": "SSL"})
    assert len(set(listeners.ports)) == 5


def test_a_value_that_is_not_ascii_is_escaped_as_java_reads_it() -> None:
    assert written(PLAIN, note="a b\\é😀")["note"] == r"a\u0020b\u005c\u00e9\ud83d\ude00"


def test_a_port_that_somebody_listens_on_is_not_free() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert not is_free(port)
    assert is_free(port)
