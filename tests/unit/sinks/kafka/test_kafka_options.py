"""One block of Kafka's options, as Spark's reader and as kafka-python take it."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.errors import KafkaTimeoutError, SaslAuthenticationFailedError
from kafka.protocol.sasl import SaslAuthenticateRequest
from secured import Authority

from sinks.errors import AuthenticationFailed, BrokerUnreachable, ConfigurationError, NotAuthorized, TlsFailed
from sinks.kafka import client_options, faults, reader_refused, spark_options, spark_reader
from sinks.kafka.login import OAuth, login
from sinks.kafka.oauth import token_provider

PASSWORD = 'a "b" \\c;\n=d'
LOGIN = {
    "bootstrap.servers": "b:1",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "u",
    "sasl.password": PASSWORD,
}
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
TOKEN = {
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.token.endpoint.url": "https://id/token",
    "sasl.oauthbearer.client.credentials.client.id": "me",
    "sasl.oauthbearer.client.credentials.client.secret": PASSWORD,
    "sasl.oauthbearer.scope": "kafka",
}


def block(**changes: str) -> dict[str, str]:
    """``LOGIN`` with changes, whose names have _ for dots; an empty one takes an option out."""
    options = {**LOGIN, **{name.replace("_", "."): value for name, value in changes.items()}}
    return {name: value for name, value in options.items() if value}


def nobody(**changes: str) -> dict[str, str]:
    return block(sasl_username="", sasl_password="", **changes)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_password_reaches_both_clients_whatever_is_in_it(mechanism: str) -> None:
    kafka = block(sasl_mechanism=mechanism)
    assert faults(kafka) == []
    for client in (KafkaAdminClient, KafkaConsumer, KafkaProducer):
        options = client_options(client, kafka)
        assert (options["sasl_plain_username"], options["sasl_plain_password"]) == ("u", PASSWORD)
        assert options["sasl_mechanism"] == mechanism
    java = spark_options(kafka)
    assert "kafka.sasl.password" not in java
    # Read back as we read a user's own, which a broker has taken from Java: tests/integration/test_security.py.
    again = login({**nobody(sasl_mechanism=mechanism), "sasl.jaas.config": java["kafka.sasl.jaas.config"]})
    assert (again.username, again.password) == ("u", PASSWORD)


@pytest.mark.parametrize(
    "text",
    [
        f'{SCRAM} required username="u" password="p";',
        f"  kafkashaded.{SCRAM}  required\n username=u\n password='p' ; ",
    ],
)
def test_javas_own_form_serves_kafka_python_too(text: str) -> None:
    kafka = nobody(sasl_jaas_config=text)
    assert faults(kafka) == []
    options = client_options(KafkaConsumer, kafka)
    assert (options["sasl_plain_username"], options["sasl_plain_password"]) == ("u", "p")
    assert spark_options(kafka)["kafka.sasl.jaas.config"] == text


def test_client_credentials_reach_both_clients() -> None:
    kafka = nobody(**{name.replace(".", "_"): value for name, value in TOKEN.items()})
    assert faults(kafka) == []
    assert login(kafka).oauth == OAuth("https://id/token", "me", PASSWORD, "kafka")
    assert client_options(KafkaConsumer, kafka)["sasl_oauth_token_provider"].token
    java = spark_options(kafka)
    assert 'clientId="me"' in java["kafka.sasl.jaas.config"]
    assert java["kafka.sasl.login.callback.handler.class"].endswith("OAuthBearerLoginCallbackHandler")
    assert java["kafka.sasl.oauthbearer.token.endpoint.url"] == "https://id/token"


def test_msk_iam_is_amazons_module_for_java_and_kafka_pythons_own() -> None:
    kafka = nobody(sasl_mechanism="AWS_MSK_IAM")
    assert faults(kafka) == []
    assert client_options(KafkaAdminClient, kafka)["sasl_mechanism"] == "AWS_MSK_IAM"
    assert spark_options(kafka) == {
        "kafka.bootstrap.servers": "b:1",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "AWS_MSK_IAM",
        "kafka.sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
        "kafka.sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
    }


def test_no_reader_of_spark_reads_open_transactions_or_has_a_broker_create_a_topic() -> None:
    class Reader(dict[str, Any]):
        def format(self, _: str) -> Reader:
            return self

        def options(self, **given: str) -> Reader:
            self.update(given)
            return self

        def option(self, name: str, value: str) -> Reader:
            self[name] = value
            return self

    session: Any = SimpleNamespace(read=Reader())
    given: Any = spark_reader(session, block(allow_auto_create_topics="true", client_id="me"))
    assert given["kafka.allow.auto.create.topics"] == "false"
    assert given["kafka.isolation.level"] == "read_committed"
    assert given["kafka.client.id"] == "me"


def test_what_isnt_for_a_client_isnt_given_to_it() -> None:
    kafka = block(group_id="g", max_poll_records="5", compression_type="lz4", bootstrap_timeout_ms="9")
    assert "kafka.group.id" not in spark_options(kafka)
    assert "kafka.bootstrap.timeout.ms" not in spark_options(kafka)
    assert client_options(KafkaConsumer, kafka)["max_poll_records"] == 5
    assert client_options(KafkaConsumer, kafka)["bootstrap_timeout_ms"] == 9
    assert {"max_poll_records", "compression_type", "group_id"} & client_options(
        KafkaAdminClient, kafka
    ).keys() == set()
    assert faults({"bootstrap.servers": "b:1", "session.timeout.ms": "1"}) == []


@pytest.mark.parametrize(
    ("kafka", "said"),
    [
        ({"securty.protocol": "SSL"}, "is not an option of Kafka's clients, did you mean security.protocol?"),
        ({"sasl.mechanisms": "PLAIN"}, "did you mean sasl.mechanism?"),
        ({"ssl.ca.location": "ca.pem"}, "ssl.ca.location: Kafka's own name for it is ssl.truststore.type: PEM and"),
        ({"ssl.engine.factory.class": "x"}, "ssl.engine.factory.class: kafka-python, one of the two clients, has no"),
        ({"security.protocol": "TLS"}, "security.protocol: is one of PLAINTEXT, SSL,"),
        ({"sasl.username": "u"}, "sasl.username: security.protocol: PLAINTEXT doesn't log in. Write"),
        ({"ssl.truststore.type": "PEM", "ssl.truststore.location": "x"}, "PLAINTEXT doesn't use TLS. Write"),
        (block(sasl_mechanism=""), "sasl.mechanism: write one of PLAIN, SCRAM-SHA-256,"),
        (block(sasl_password=""), "sasl.password: is missing; sasl.mechanism: SCRAM-SHA-512 needs it"),
        (block(sasl_mechanism="AWS_MSK_IAM"), "sasl.username: doesn't apply to sasl.mechanism: AWS_MSK_IAM"),
        (block(sasl_mechanism="OAUTHBEARER"), "sasl.username: doesn't apply to sasl.mechanism: OAUTHBEARER"),
        (nobody(sasl_mechanism="OAUTHBEARER"), "sasl.oauthbearer.token.endpoint.url: is missing"),
        (nobody(sasl_mechanism="AWS_MSK_IAM", security_protocol="SASL_PLAINTEXT"), "over TLS only. Write SASL_SSL"),
        (block(sasl_jaas_config=f"{SCRAM} required;"), "sasl.username: is also in sasl.jaas.config; give one of them"),
        (nobody(sasl_jaas_config=f"{SCRAM} required username=u"), "sasl.jaas.config: write MODULE required"),
        (nobody(sasl_jaas_config=f"{SCRAM} required username=u;"), "sasl.jaas.config: password is missing"),
        (nobody(sasl_jaas_config=f"{SCRAM} required username=u password=p z=1;"), "no counterpart to z"),
        (nobody(sasl_mechanism="PLAIN", sasl_jaas_config=f"{SCRAM} required;"), "PlainLoginModule"),
        (block(ssl_truststore_location="a.jks"), "ssl.truststore.type: only Spark's reader can read JKS"),
        (block(ssl_keystore_type="PKCS12"), "`openssl pkcs12 -in STORE.p12 -out keystore.pem`"),
        (block(ssl_truststore_type="PEM"), "ssl.truststore.location: give either this file, or the text in"),
        (block(ssl_keystore_type="PEM", ssl_keystore_key="k"), "ssl.keystore.certificate.chain: is missing"),
        (block(ssl_truststore_type="PEM", ssl_truststore_password="p"), "ssl.truststore.password: a PEM file has none"),
    ],
)  # fmt: skip
def test_what_one_of_the_clients_couldnt_take_is_refused_by_name(kafka: dict[str, str], said: str) -> None:
    (found,) = faults({"bootstrap.servers": "b:1", **kafka})
    assert said in found
    assert PASSWORD not in found


def test_certificates_and_keys_are_read_when_the_clients_are_made(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ca")
    own = authority.issue("client")
    files = {"ssl_truststore_type": "PEM", "ssl_truststore_location": str(authority.ca)}
    context = context_of(**files, ssl_keystore_type="PEM", ssl_keystore_location=str(own))
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert context.check_hostname
    kafka = {**LOGIN, "ssl.endpoint.identification.algorithm": ""}
    assert not client_options(KafkaConsumer, kafka)["ssl_context"].check_hostname
    text = own.read_text()
    cut = text.index("-----BEGIN CERTIFICATE")
    context_of(ssl_keystore_type="PEM", ssl_keystore_key=text[:cut], ssl_keystore_certificate_chain=text[cut:])
    for changes, said in {
        ("ssl_truststore_location", str(tmp_path / "none.pem")): "source.kafka.ssl.truststore.location",
        ("ssl_keystore_location", str(authority.ca)): "source.kafka.ssl.keystore.location",
        ("ssl_keystore_location", str(authority.issue("locked", password="p"))): "ssl.key.password",
    }.items():
        with pytest.raises(ConfigurationError) as error:
            context_of(
                **{**files, "ssl_keystore_type": "PEM", "ssl_keystore_location": str(own), changes[0]: changes[1]}
            )
        assert said in error.value.message + error.value.hint
    own.write_text(text.replace("BEGIN PRIVATE KEY", "BEGIN EC PRIVATE KEY"))
    with pytest.raises(ConfigurationError, match="old format"):
        context_of(ssl_keystore_type="PEM", ssl_keystore_location=str(own))


def context_of(**changes: str) -> ssl.SSLContext:
    context: ssl.SSLContext = client_options(KafkaConsumer, block(**changes))["ssl_context"]
    return context


def test_no_client_logs_a_password(caplog: pytest.LogCaptureFixture) -> None:
    """kafka-python logs its options, and at DEBUG what it sends."""
    kafka = block(security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN", sasl_password="hunter2")
    kafka |= {"bootstrap.servers": "127.0.0.1:9", "bootstrap.timeout.ms": "50"}
    with caplog.at_level(logging.DEBUG, "kafka"):
        with pytest.raises(KafkaTimeoutError):
            KafkaAdminClient(**client_options(KafkaAdminClient, kafka))
        request = SaslAuthenticateRequest(b"\0u\0hunter2")
        logging.getLogger("kafka.net.connection").debug("%s Request %d: %s", "c", 1, request)
        logging.getLogger("kafka.protocol.parser").debug("%s Send: %r", "c", b"\0u\0hunter2")
    assert "sasl_plain_password" in caplog.text
    assert "hunter2" not in caplog.text
    assert "hunter2" not in repr(login(kafka))


def test_a_refused_client_at_the_token_endpoint_is_no_lost_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def answer(client: OAuth) -> tuple[str, float]:
        asked.append(1)
        return "t", 100.0

    monkeypatch.setattr("sinks.kafka.oauth.fetch", answer)
    tokens = token_provider(OAuth("https://id", "me", "s"))
    assert [tokens.token(), tokens.token()] == ["t", "t"]
    assert len(asked) == 1

    def refuse(client: OAuth) -> tuple[str, float]:
        import urllib.error

        raise urllib.error.HTTPError("https://id", 401, "Unauthorized", None, None)  # type: ignore[arg-type]

    monkeypatch.setattr("sinks.kafka.oauth.fetch", refuse)
    with pytest.raises(SaslAuthenticationFailedError, match="401"):
        token_provider(OAuth("https://id", "me", "s")).token()


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("x\nCaused by: org.apache.kafka.common.errors.TopicAuthorizationException: Not authorized [t]", NotAuthorized),
        ("org.apache.kafka.common.errors.SaslAuthenticationException: Authentication failed", AuthenticationFailed),
        ("org.apache.kafka.common.errors.SslAuthenticationException: SSL handshake failed", TlsFailed),
        (
            "javax.security.auth.login.LoginException: No LoginModule found for software.amazon.msk.auth.iam.IAM",
            AuthenticationFailed,
        ),
        ("java.lang.ArithmeticException: no such thing", None),
    ],
)
def test_what_sparks_reader_says_is_told_as_the_other_client_does(said: str, meant: Any) -> None:
    found = reader_refused(RuntimeError(said))
    assert type(found) is meant if meant else found is None
    assert "IAM" not in said or "aws-msk-iam-auth" in found.hint


@pytest.mark.parametrize(
    ("said", "tiered"),
    [
        ("java.lang.IllegalStateException: Kafka gave no record of t-0 from offset 5 on within 120 s.", True),
        ("java.util.concurrent.TimeoutException: Cannot fetch record for offset 5 in 120000 milliseconds", True),
        ("org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node", False),
    ],
)
def test_old_records_that_do_not_come_in_time_may_be_in_tiered_storage(said: str, tiered: bool) -> None:
    found = reader_refused(RuntimeError(said))
    assert isinstance(found, BrokerUnreachable)
    assert ("fetch.max.wait.ms: 5000" in found.hint) == tiered
    assert faults({"bootstrap.servers": "b:9092", "fetch.max.wait.ms": "5000"}) == []
