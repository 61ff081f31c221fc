"""A broker that is locked down: TLS, SASL and ACLs, with certificates made for the occasion."""

from __future__ import annotations

import base64
import datetime as dt
import ipaddress
import json
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TypeAlias

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.x509.oid import NameOID
from kafka import KafkaAdminClient
from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ResourcePattern,
    ResourceType,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from connector.lab.bench.broker import Broker

PASSWORD = 'S3cr3t-"of\\the; night'
"""One that every quoting could trip over."""
MARK = "S3cr3t"
"""The part of it that shows through any quoting."""
VARIABLE = "KAFKA_PASSWORD"
"""Of the environment: what a pipeline takes it from."""
PLAIN_USER = "plain"
Right: TypeAlias = tuple[str, str, str]
"""As in ("READ", "TOPIC", "orders")."""
_DAY = dt.timedelta(days=1)


class Authority:
    """A certificate authority; ``ca`` is the file that trusts it."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(name, name, self._key.public_key(), dt.timedelta(days=2))
        self._certificate = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), True).sign(
            self._key, hashes.SHA256()
        )
        self.ca = folder / f"{name}.pem"
        self.ca.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, *, lasts: dt.timedelta = _DAY, password: str | None = None) -> Path:
        """Key (PKCS#8) and certificate of 127.0.0.1 in one file."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(name, self._name, key.public_key(), lasts)
        address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        certificate = builder.add_extension(address, False).sign(self._key, hashes.SHA256())
        file = self._folder / f"{name}.pem"
        plain = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        if password:
            # The one kind of encryption that Java 17 and OpenSSL 3 both read.
            command = ["openssl", "pkcs8", "-topk8", "-v1", "PBE-SHA1-3DES", "-passout", f"pass:{password}"]
            plain = subprocess.run(command, input=plain, stdout=subprocess.PIPE, check=True).stdout
        file.write_bytes(plain + certificate.public_bytes(serialization.Encoding.PEM))
        return file


def _builder(name: str, issuer: str, key: ec.EllipticCurvePublicKey, lasts: dt.timedelta) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.timezone.utc)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 10 * _DAY)
        .not_valid_after(now + lasts)
    )


@dataclass
class Secured:
    """``broker``'s plain listener is for whoever prepares a test: its clients, being nobody, may do anything."""

    broker: Broker
    trusted: Authority
    untrusted: Authority
    token_endpoint: str

    def user(self, *rights: Right, name: str | None = None) -> str:
        """A user who has `PASSWORD` and these rights."""
        name = name or f"u-{uuid.uuid4().hex[:8]}"
        with KafkaAdminClient(bootstrap_servers=self.broker.bootstrap) as admin:
            for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
                done = admin.alter_user_scram_credentials([UserScramCredentialUpsertion(name, mechanism, PASSWORD)])
                assert done == {name: None}
            if rights:
                admin.create_acls([_acl(right, name) for right in rights])
        return name

    def kafka(self, user: str, **changes: str) -> dict[str, str]:
        """A pipeline's options. ``changes`` have _ for Kafka's dots; an empty one takes an option out."""
        options = {
            "bootstrap.servers": self.broker.address("SASL"),
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": f"${{env:{VARIABLE}}}",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.trusted.ca),
            **{name.replace("_", "."): value for name, value in changes.items()},
        }
        return {name: value for name, value in options.items() if value}


def _acl(right: Right, user: str) -> ACL:
    operation, kind, name = right
    pattern = ResourcePattern(ResourceType[kind], name)
    return ACL(f"User:{user}", "*", ACLOperation[operation], ACLPermissionType.ALLOW, pattern)


@contextmanager
def secured(folder: Path) -> Iterator[Secured]:
    trusted, untrusted = Authority(folder, "ca"), Authority(folder, "other-ca")
    server = trusted.issue("server")
    expired = trusted.issue("expired", lasts=-_DAY)
    plain = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{PLAIN_USER}="{quoted(PASSWORD)}";'
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    sasl = "listener.name.sasl"
    token, oauth = f"{sasl}.oauthbearer.sasl", "org.apache.kafka.common.security.oauthbearer"
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(server),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(trusted.ca),
        "listener.name.mtls.ssl.client.auth": "required",
        "listener.name.mtls.ssl.principal.mapping.rules": "RULE:^CN=(.*?)$/$1/",
        "listener.name.expired.ssl.keystore.type": "PEM",
        "listener.name.expired.ssl.keystore.location": str(expired),
        f"{sasl}.sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN,OAUTHBEARER",
        f"{sasl}.plain.sasl.jaas.config": plain,
        f"{sasl}.scram-sha-256.sasl.jaas.config": scram,
        f"{sasl}.scram-sha-512.sasl.jaas.config": scram,
    }
    listeners = {"SASL": "SASL_SSL", "MTLS": "SSL", "EXPIRED": "SSL"}
    with _tokens() as endpoint, pytest.MonkeyPatch.context() as patch:
        # Kafka 4 asks no other place for keys.
        patch.setenv("JAVA_TOOL_OPTIONS", f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={endpoint}/keys")
        properties |= {
            f"{token}.jaas.config": f"{oauth}.OAuthBearerLoginModule required;",
            f"{token}.server.callback.handler.class": f"{oauth}.OAuthBearerValidatorCallbackHandler",
            f"{token}.oauthbearer.jwks.endpoint.url": f"{endpoint}/keys",
            f"{token}.oauthbearer.expected.audience": "kafka",
            f"{token}.oauthbearer.expected.issuer": "tests",
        }
        with Broker(folder / "broker", properties=properties, secured=listeners) as broker:
            yield Secured(broker, trusted, untrusted, endpoint)


def quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


@contextmanager
def _tokens() -> Iterator[str]:
    """An endpoint that gives whoever knows `PASSWORD` a token in the name that they say, and tells its public key."""
    key = rsa.generate_private_key(65537, 2048)
    numbers = key.public_key().public_numbers()
    n, e = (_url64(each.to_bytes((each.bit_length() + 7) // 8, "big")) for each in (numbers.n, numbers.e))
    public = {"keys": [{"kty": "RSA", "kid": "1", "use": "sig", "alg": "RS256", "n": n, "e": e}]}

    class Endpoint(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(200, public)

        def do_POST(self) -> None:
            name, password = base64.b64decode(self.headers["Authorization"].split()[1]).decode().split(":", 1)
            form = self.rfile.read(int(self.headers["Content-Length"]))
            if password != PASSWORD or b"grant_type=client_credentials" not in form:
                self._answer(401, {})
                return
            now = int(time.time())
            claims = {"sub": name, "iat": now, "exp": now + 300, "scope": "kafka", "aud": "kafka", "iss": "tests"}
            parts = ({"alg": "RS256", "kid": "1"}, claims)
            signed = ".".join(_url64(json.dumps(part).encode()) for part in parts)
            signature = key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
            self._answer(200, {"access_token": f"{signed}.{_url64(signature)}", "expires_in": 300})

        def _answer(self, status: int, body: object) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def _url64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
