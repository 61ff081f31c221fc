"""One set of Kafka options for two clients: Spark's reader, which is Java, and kafka-python.

The names are Kafka's own. In addition there are `sasl.username` and `sasl.password`, as in librdkafka: Java takes both
inside ``sasl.jaas.config``, kafka-python under its own names. Certificates and keys are PEM, which both clients read.
An option is refused if it would weaken or break a connection when one client ignores it. Options that only tune the
Java client are passed to it alone.
"""

from __future__ import annotations

import difflib
import re
import ssl
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from sinks.errors import ConfigurationError
from sinks.kafka.login import PROTOCOLS, Login, login, login_fault
from sinks.kafka.oauth import token_provider

ANSWER_WITHIN_MS = 10_000

SECRET = re.compile(
    r"(?is)^(?!.*kubernetes[.]\w+[.]secret(s|keyref)[.]).*"
    r"(password|passwd|passphrase|secret|secret[._-]?(access[._-]?)?key|token|jaas[.]config|private[._-]?key|keystore[.]key"
    r"|encryption[.]key([.]list)?|client-provided(-encryption)?-key([.].*)?|credentials?|ftp[.]password[.].*"
    r"|account[.]key([.].*)?|azure[.]sas[.](?!token[.](provider|renew)|expiry).*"
    r"|azure[.]account[.]oauth2[.](client[.]secret|refresh[.]token|user[.]password)[.](?!endpoint).*)$"
)
"""Options, also Spark's, whose values are secrets. Azure's end with the account, and Hadoop's of FTP with the host. It
doesn't match names of places, as in token.endpoint.url, or what names a secret of Kubernetes."""

_JAVA = """
    acks allow.auto.create.topics auto.commit.interval.ms auto.include.jmx.reporter auto.offset.reset batch.size
    bootstrap.servers buffer.memory check.crcs client.dns.lookup client.id client.rack compression.gzip.level
    compression.lz4.level compression.type compression.zstd.level connections.max.idle.ms default.api.timeout.ms
    delivery.timeout.ms enable.auto.commit enable.idempotence enable.metrics.push exclude.internal.topics
    fetch.max.bytes fetch.max.wait.ms fetch.min.bytes group.id group.instance.id group.protocol group.remote.assignor
    heartbeat.interval.ms interceptor.classes isolation.level key.deserializer key.serializer linger.ms max.block.ms
    max.in.flight.requests.per.connection max.partition.fetch.bytes max.poll.interval.ms max.poll.records
    max.request.size metadata.max.age.ms metadata.max.idle.ms metadata.recovery.rebootstrap.trigger.ms
    metadata.recovery.strategy metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms
    partition.assignment.strategy partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms
    partitioner.class partitioner.ignore.keys receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms
    request.timeout.ms retries retry.backoff.max.ms retry.backoff.ms sasl.client.callback.handler.class
    sasl.jaas.config sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.service.name
    sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor sasl.login.callback.handler.class
    sasl.login.class sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
    sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
    sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.mechanism
    sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret
    sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer
    sasl.oauthbearer.header.urlencode sasl.oauthbearer.scope sasl.oauthbearer.scope.claim.name
    sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url security.protocol security.providers
    send.buffer.bytes session.timeout.ms socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
    ssl.cipher.suites ssl.enabled.protocols ssl.endpoint.identification.algorithm ssl.engine.factory.class
    ssl.key.password ssl.keymanager.algorithm ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location
    ssl.keystore.password ssl.keystore.type ssl.protocol ssl.provider ssl.secure.random.implementation
    ssl.trustmanager.algorithm ssl.truststore.certificates ssl.truststore.location ssl.truststore.password
    ssl.truststore.type transaction.timeout.ms transactional.id value.deserializer value.serializer
"""
"""Options of Kafka's consumer, producer and admin client, 3.9 and 4.1, without logins that one client doesn't have."""
JAVA = frozenset(_JAVA.split())
_SHORTHANDS = frozenset({"sasl.username", "sasl.password"})
_NO_COUNTERPART = {
    "ssl.engine.factory.class": "TLS is set up from PEM files",
    "security.providers": "TLS and logins are set up from the other options",
    "sasl.login.class": "the login is set up from sasl.mechanism",
    "sasl.login.callback.handler.class": "the login is set up from sasl.mechanism",
    "sasl.client.callback.handler.class": "the login is set up from sasl.mechanism",
}
_ELSEWHERE = {
    "ssl.ca.location": "ssl.truststore.type: PEM and ssl.truststore.location",
    "ssl.cafile": "ssl.truststore.type: PEM and ssl.truststore.location",
    "ssl.certfile": "ssl.keystore.type: PEM and ssl.keystore.location, one file with key and certificate",
    "ssl.keyfile": "ssl.keystore.type: PEM and ssl.keystore.location, one file with key and certificate",
    "ssl.certificate.location": "ssl.keystore.type: PEM and ssl.keystore.location, one file with key and certificate",
    "ssl.key.location": "ssl.keystore.type: PEM and ssl.keystore.location, one file with key and certificate",
    "ssl.check.hostname": 'ssl.endpoint.identification.algorithm: ""',
    "enable.ssl.certificate.verification": "ssl.truststore.type: PEM and ssl.truststore.location",
}
"""Names of librdkafka and kafka-python -> Kafka's names for the same."""


def faults(kafka: Mapping[str, str]) -> list[str]:
    """What is wrong with a set of options, one entry per option. No entry contains a value."""
    found = [_unknown(name) for name in kafka if name not in _known()]
    found += [
        f"{name}: kafka-python, one of the two clients, has no counterpart: {why}. Remove it"
        for name, why in _NO_COUNTERPART.items()
        if name in kafka
    ]
    if found:
        return found
    protocol = kafka.get("security.protocol", "PLAINTEXT")
    if protocol not in PROTOCOLS:
        return [f"security.protocol: is one of {', '.join(PROTOCOLS)}"]
    fault = login_fault(kafka)
    found += [fault] if fault else []
    given = sorted(name for name in kafka if name.startswith("ssl."))
    if given and "SSL" not in protocol:
        found.append(
            f"{given[0]}: security.protocol: {protocol} doesn't use TLS. Write security.protocol: "
            + ("SASL_SSL" if "SASL" in protocol else "SSL")
        )
    return found + [fault for store in ("truststore", "keystore") for fault in _store_faults(kafka, store)]


def spark_options(kafka: Mapping[str, str]) -> dict[str, str]:
    """The options for ``spark.read.format("kafka")``, with secrets in clear text."""
    # Lakelock publishes offsets in this group. Spark's reader uses another group, or none.
    ours = {"group.id", *_SHORTHANDS} | (_known() - JAVA)
    given = {name: value for name, value in kafka.items() if name not in ours and "client.credentials" not in name}
    return {f"kafka.{name}": value for name, value in {**given, **login(kafka).java}.items()}


def client_options(client: Any, kafka: Mapping[str, str]) -> dict[str, Any]:
    """The options for this kafka-python class, without ``group_id``. Options that it doesn't know are left out.

    The result contains secrets, but its ``repr`` doesn't. Raises ConfigurationError.
    """
    from sinks.kafka.network import NetworkClient

    patience = str(ANSWER_WITHIN_MS)
    options: dict[str, Any] = {"bootstrap_timeout_ms": patience, "request_timeout_ms": patience}
    # kafka-python's default is half a minute. With one second it finds a restarted broker before the timeout.
    options["reconnect_backoff_max_ms"] = "1000"
    plain = {name: value for name, value in kafka.items() if not name.startswith(("sasl.", "ssl.", "group.id"))}
    options |= {name.replace(".", "_"): value for name, value in plain.items()}
    known = {
        name: _typed(name, value, client.DEFAULT_CONFIG[name])
        for name, value in options.items()
        if name in client.DEFAULT_CONFIG
    }
    if "SSL" in kafka.get("security.protocol", ""):
        known["ssl_context"] = tls_context(kafka)
    return {**known, **_credentials(login(kafka)), "kafka_client": NetworkClient}


class Hidden(str):
    """A password that is hidden where kafka-python logs its options."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


def tls_context(kafka: Mapping[str, str]) -> ssl.SSLContext:
    """The TLS context of these options. Raises ConfigurationError if a file can't be used."""
    from sinks.kafka.network import TlsSocket

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.sslsocket_class = TlsSocket
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = bool(kafka.get("ssl.endpoint.identification.algorithm", "https"))
    file, text = kafka.get("ssl.truststore.location"), kafka.get("ssl.truststore.certificates")
    try:
        if file or text:
            context.load_verify_locations(cafile=file, cadata=text)
        else:
            context.load_default_certs()
    except OSError as error:  # SSLError is one
        option = "ssl.truststore.location" if file else "ssl.truststore.certificates"
        raise _unusable(option, file, error, "PEM certificates, -----BEGIN CERTIFICATE-----") from None
    file, key = kafka.get("ssl.keystore.location"), kafka.get("ssl.keystore.key")
    if file or key:
        option = "ssl.keystore.location" if file else "ssl.keystore.key"
        try:
            own = Path(file).read_text(encoding="ascii", errors="replace") if file else f"{key}\n{_chain(kafka)}\n"
            if re.search(r"BEGIN (RSA|EC|DSA) PRIVATE KEY", own):
                raise ConfigurationError(
                    f"source.kafka.{option}: contains a private key in an old format, which Java doesn't read.",
                    hint="Convert it to PKCS#8 (-----BEGIN PRIVATE KEY-----): `openssl pkcs8 -topk8 -nocrypt -in OLD "
                    "-out NEW`.",
                )
            # Python's TLS reads its own key only from a file. Nobody else may read it, and it is deleted at once.
            with tempfile.NamedTemporaryFile("w", encoding="ascii", errors="replace") as kept:
                kept.write(own)
                kept.flush()
                # Never None: with an encrypted key, OpenSSL would then ask for the password on the terminal.
                context.load_cert_chain(kept.name, password=kafka.get("ssl.key.password", ""))
        except OSError as error:
            wanted = "a PEM private key and its certificate; if the key is encrypted, ssl.key.password must decrypt it"
            raise _unusable(option, file, error, wanted) from None
    return context


def _chain(kafka: Mapping[str, str]) -> str:
    return kafka.get("ssl.keystore.certificate.chain", "")


def _unusable(option: str, file: str | None, error: OSError, wanted: str) -> ConfigurationError:
    reason = getattr(error, "reason", None) or error.strerror or type(error).__name__
    where = f" {file!r}" if file else ""
    return ConfigurationError(
        f"source.kafka.{option}:{where} can't be used for TLS ({reason}).",
        hint=f"It must contain {wanted}." + (" Every machine of the cluster needs the file." if file else ""),
    )


def _credentials(by: Login) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if by.mechanism:
        options["sasl_mechanism"] = by.mechanism
    if by.username is not None:
        options |= {"sasl_plain_username": by.username, "sasl_plain_password": Hidden(by.password)}
    if by.kerberos_service:
        options["sasl_kerberos_service_name"] = by.kerberos_service
    if by.oauth is not None:
        options["sasl_oauth_token_provider"] = token_provider(by.oauth)
    return options


@cache
def _known() -> frozenset[str]:
    """Kafka's options, our shorthands, and options that tune kafka-python alone."""
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer

    own = {
        name.replace("_", ".")
        for client in (KafkaConsumer, KafkaProducer, KafkaAdminClient)
        for name, default in client.DEFAULT_CONFIG.items()
        if isinstance(default, str | int) and not name.startswith(("ssl_", "sasl_"))
    }
    return JAVA | _SHORTHANDS | own


def _unknown(name: str) -> str:
    if name in _ELSEWHERE:
        return f"{name}: Kafka's own name for it is {_ELSEWHERE[name]}"
    near = difflib.get_close_matches(name, sorted(_known()), n=1)
    return f"{name}: is not an option of Kafka's clients" + (f", did you mean {near[0]}?" if near else "")


def _store_faults(kafka: Mapping[str, str], store: str) -> list[str]:
    given = [name for name in kafka if name.startswith(f"ssl.{store}.")]
    if not given:
        return []
    kind = kafka.get(f"ssl.{store}.type", "JKS")  # Java's default
    if kind != "PEM":
        return [
            f"ssl.{store}.type: only Spark's reader can read {kind}; kafka-python needs PEM. Write "
            f"ssl.{store}.type: PEM; `openssl pkcs12 -in STORE.p12 -out {store}.pem"
            + (" -nokeys" if store == "truststore" else "")
            + "` makes such a file, and `keytool -importkeystore -deststoretype PKCS12` makes a .p12 of a JKS file"
        ]
    if f"ssl.{store}.password" in kafka:
        return [f"ssl.{store}.password: a PEM file has none" + (", its key has: ssl.key.password" * (store[0] == "k"))]
    inline = ["ssl.truststore.certificates"] if store == "truststore" else ["ssl.keystore.key"]
    inline += [] if store == "truststore" else ["ssl.keystore.certificate.chain"]
    if (f"ssl.{store}.location" in kafka) == any(name in kafka for name in inline):
        return [f"ssl.{store}.location: give either this file, or the text in {' and '.join(inline)}"]
    missing = [name for name in inline if name not in kafka]
    return [f"{missing[0]}: is missing"] if missing and len(missing) < len(inline) else []


def _typed(name: str, value: str, default: object) -> Any:
    if isinstance(default, bool):
        return value.lower() == "true"
    if not isinstance(default, int):
        return value
    try:
        return int(value)
    except ValueError:
        # The message doesn't contain the value, which may be a secret from the environment.
        raise ConfigurationError(f"source.kafka.{name.replace('_', '.')}: is not a whole number.") from None
