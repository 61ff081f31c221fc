"""SASL logins, from the same options for Java (as JAAS) and for kafka-python."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_JAVA = "org.apache.kafka.common.security"
_MODULES = {
    "PLAIN": f"{_JAVA}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_JAVA}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_JAVA}.scram.ScramLoginModule",
    "OAUTHBEARER": f"{_JAVA}.oauthbearer.OAuthBearerLoginModule",
    "AWS_MSK_IAM": "software.amazon.msk.auth.iam.IAMLoginModule",
}
_BY_PASSWORD = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_HINT = 'write MODULE required name="value" ...; with its semicolon, or instead of it sasl.username and sasl.password'
_HANDLERS = {
    "OAUTHBEARER": {"sasl.login.callback.handler.class": f"{_JAVA}.oauthbearer.OAuthBearerLoginCallbackHandler"},
    "AWS_MSK_IAM": {"sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler"},
}
_ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
_OAUTH = {
    "clientId": "sasl.oauthbearer.client.credentials.client.id",
    "clientSecret": "sasl.oauthbearer.client.credentials.client.secret",
    "scope": "sasl.oauthbearer.scope",
}
"""Kafka 4.1 has these option names. Earlier Java clients take the keys of this mapping, in JAAS."""
_WANTED: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    **dict.fromkeys(_BY_PASSWORD, (("sasl.username", "sasl.password"), ())),
    "OAUTHBEARER": ((_OAUTH["clientId"], _OAUTH["clientSecret"]), (_OAUTH["scope"],)),
    "AWS_MSK_IAM": ((), ()),
}
"""The options that a mechanism needs without JAAS, and the optional ones."""
_IN_JAAS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    **dict.fromkeys(_BY_PASSWORD, (("username", "password"), ())),
    "OAUTHBEARER": (("clientId", "clientSecret"), ("scope",)),
    "AWS_MSK_IAM": ((), ()),
}
_VALUE = r"""("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[\w.$-]+)"""
_JAAS = re.compile(
    rf"\s*([\w.$-]+)\s+(?:required|requisite|sufficient|optional)\b((?:\s+[\w.$-]+\s*=\s*{_VALUE})*)\s*;\s*"
)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}


@dataclass(frozen=True)
class OAuth:
    """Client credentials of OAuth 2."""

    endpoint: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str | None = None


@dataclass(frozen=True)
class Login:
    """A login in the terms of both clients. Without a mechanism the client doesn't log in."""

    mechanism: str | None = None
    username: str | None = None
    password: str = field(default="", repr=False)
    oauth: OAuth | None = None
    kerberos_service: str | None = None
    java: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Options for Java, beside those that both clients share."""


def login_fault(kafka: Mapping[str, str]) -> str | None:
    """What is wrong with the login options, without any value. None if they are right."""
    protocol, mechanism = kafka.get("security.protocol", "PLAINTEXT"), kafka.get("sasl.mechanism")
    given = sorted(name for name in kafka if name.startswith("sasl."))
    if "SASL" not in protocol:
        return (
            f"{given[0]}: security.protocol: {protocol} doesn't log in. Write security.protocol: SASL_SSL"
            if given
            else None
        )
    if mechanism == "GSSAPI":
        return None
    if mechanism not in _MODULES:
        return f"sasl.mechanism: write one of {', '.join(_MODULES)}, GSSAPI"
    if mechanism == "AWS_MSK_IAM" and protocol != "SASL_SSL":
        return "security.protocol: AWS_MSK_IAM works over TLS only. Write SASL_SSL"
    wanted, optional = _WANTED[mechanism]
    names = ("sasl.username", "sasl.password", *_OAUTH.values())
    foreign = [name for name in names if name in kafka and name not in (*wanted, *optional)]
    if foreign:
        return f"{foreign[0]}: doesn't apply to sasl.mechanism: {mechanism}"
    if mechanism == "OAUTHBEARER" and _ENDPOINT not in kafka:
        return f"{_ENDPOINT}: is missing; the client gets its token there"
    if "sasl.jaas.config" in kafka:
        both = [name for name in wanted if name in kafka]
        return f"{both[0]}: is also in sasl.jaas.config; give one of them" if both else _jaas_fault(kafka, mechanism)
    missing = [name for name in wanted if not kafka.get(name)]
    return f"{missing[0]}: is missing; sasl.mechanism: {mechanism} needs it" if missing else None


def login(kafka: Mapping[str, str]) -> Login:
    """The login of these options, which ``login_fault`` has found to be right."""
    if "SASL" not in kafka.get("security.protocol", ""):
        return Login()
    mechanism = kafka["sasl.mechanism"]
    if mechanism == "GSSAPI":
        return Login(mechanism, kerberos_service=kafka.get("sasl.kerberos.service.name"))
    jaas = kafka.get("sasl.jaas.config")
    if jaas is not None:
        given = _jaas(jaas)[1]
    elif mechanism in _BY_PASSWORD:
        given = {"username": kafka["sasl.username"], "password": kafka["sasl.password"]}
    else:
        given = {short: kafka[name] for short, name in _OAUTH.items() if name in kafka}
    options = "".join(f" {name}={_quoted(value)}" for name, value in given.items())
    java = {"sasl.jaas.config": jaas or f"{_MODULES[mechanism]} required{options};", **_HANDLERS.get(mechanism, {})}
    if mechanism in _BY_PASSWORD:
        return Login(mechanism, given["username"], given["password"], java=java)
    if mechanism == "OAUTHBEARER":
        client = OAuth(kafka[_ENDPOINT], given["clientId"], given["clientSecret"], given.get("scope"))
        return Login(mechanism, oauth=client, java=java)
    return Login(mechanism, java=java)


def _jaas_fault(kafka: Mapping[str, str], mechanism: str) -> str | None:
    try:
        module, given = _jaas(kafka["sasl.jaas.config"])
    except ValueError as error:
        return f"sasl.jaas.config: {error}"
    # On Databricks Kafka's classes are named kafkashaded.org.apache.kafka...
    if not module.endswith(_MODULES[mechanism]):
        return f"sasl.jaas.config: sasl.mechanism: {mechanism} needs {_MODULES[mechanism]} in it"
    needed, optional = _IN_JAAS[mechanism]
    missing = [name for name in needed if name not in given]
    if missing:
        return f"sasl.jaas.config: {missing[0]} is missing"
    foreign = [name for name in given if name not in (*needed, *optional)]
    if foreign:
        instead = ": choose the identity by AWS_PROFILE, which both clients use" if mechanism == "AWS_MSK_IAM" else ""
        return f"sasl.jaas.config: kafka-python, one of the two clients, has no counterpart to {foreign[0]}{instead}"
    return None


def _jaas(text: str) -> tuple[str, dict[str, str]]:
    """The login module and its options. Raises ValueError, which doesn't contain the text."""
    found = _JAAS.fullmatch(text)
    if found is None:
        raise ValueError(_HINT)
    pairs = re.findall(rf"([\w.$-]+)\s*=\s*{_VALUE}", found[2])
    return found[1], {name: _unquoted(value) for name, value in pairs}


def _quoted(text: str) -> str:
    """Quote the text as Java's StreamTokenizer reads it."""
    for plain, escaped in {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"}.items():
        text = text.replace(plain, escaped)
    return f'"{text}"'


def _unquoted(value: str) -> str:
    if value[0] not in "\"'":
        return value
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), value[1:-1], flags=re.DOTALL)
