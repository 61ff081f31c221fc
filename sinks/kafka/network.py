"""A network client for kafka-python that says why it can't connect.

With kafka-python 3.0, after a rejected login or a TLS error the client keeps connecting until its timeout, and then
reports only the timeout. This client stops at once where a retry can't help, and otherwise keeps the last failure.
kafka-python also drops the data that it has read when the connection ends, and that is often the answer with the reason
(`TlsSocket` corrects this for TLS). At DEBUG it logs what it sends, including passwords. And it can't read a record
that has a header whose name isn't UTF-8, as other producers may write.
"""

from __future__ import annotations

import logging
import socket
import ssl
from typing import Any
from weakref import WeakSet

from kafka.errors import (
    IllegalSaslStateError,
    InvalidReceiveError,
    KafkaConfigurationError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
)
from kafka.net.compat import KafkaNetClient
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector

from sinks.kafka.header_names import read_any_header_name

_PROBE_SECONDS = 2.0


class _Explained(KafkaError):  # type: ignore[misc]
    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(reason)
        self.reason, self.hint = reason, hint


class TlsRefused(_Explained):
    """TLS failed in a way that a retry can't help: a certificate is rejected, or one side doesn't speak TLS."""


class LoginRefused(_Explained):
    """The broker rejected the login. A retry can't help."""


class NoConnection(_Explained, KafkaTimeoutError):  # type: ignore[misc]
    """No connection was made within the timeout."""


class TlsSocket(ssl.SSLSocket):
    """Reports the end of a connection only after the data that was read before it has been handed over."""

    _read = False

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        """Read as ``ssl.SSLSocket`` does, but report the end of the connection in a call of its own."""
        try:
            found = super().recv(buflen, flags)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            self._read = False
            raise
        except OSError:
            self._after_what_was_read()
            raise
        if not found:
            self._after_what_was_read()
        self._read = bool(found)
        return found

    def _after_what_was_read(self) -> None:
        if self._read:
            self._read = False
            raise ssl.SSLWantReadError


class NetworkClient(KafkaNetClient):  # type: ignore[misc]
    """A network client for the option ``kafka_client`` of consumers, producers and admin clients."""

    def __init__(self, **options: Any) -> None:
        network = NetworkSelector(**options)
        super().__init__(network, _Manager(network, **options), **options)


class _Manager(KafkaConnectionManager):  # type: ignore[misc]
    def __init__(self, network: Any, **options: Any) -> None:
        self._watched: WeakSet[Any] = WeakSet()
        self._refusal: KafkaError | None = None
        self._failure: BaseException | None = None
        self._cut_off = False
        """Whether the last connection was established, and then ended by the broker."""
        self._probed = False
        super().__init__(network, **options)

    def get_connection(self, node_id: Any, *args: Any, **options: Any) -> Any:
        if self._refusal is not None:
            raise self._refusal
        connection = super().get_connection(node_id, *args, **options)
        if connection not in self._watched:
            self._watched.add(connection)
            connection.init_future.add_errback(self._failed)
            connection.close_future.add_errback(lambda error: self._closed(connection.init_future.succeeded(), error))
        return connection

    def bootstrap(self, *args: Any, **options: Any) -> None:
        try:
            super().bootstrap(*args, **options)
        except KafkaTimeoutError as error:
            raise self._explained() or error from self._failure

    def _failed(self, error: BaseException) -> None:
        self._keep(error, False)
        if self._refusal is None:
            self._refusal = _refusal(error, self.config["sasl_mechanism"]) or self._wants_tls(error)

    def _closed(self, was_made: bool, error: BaseException) -> None:
        if was_made:
            self._keep(error, True)

    def _keep(self, error: BaseException, cut_off: bool) -> None:
        """Keep the failure. A timeout says less than the failure of the attempt before, and doesn't replace it."""
        if self._failure is None or not isinstance(error, KafkaTimeoutError):
            self._failure, self._cut_off = error, cut_off

    def _wants_tls(self, error: BaseException) -> TlsRefused | None:
        """Whether the port speaks TLS: it then ends a plain connection, or answers with a seemingly huge message."""
        protocol = self.config["security_protocol"]
        if "SSL" in protocol or self._probed or not (_ended(error) or isinstance(error, InvalidReceiveError)):
            return None
        self._probed = True
        if not any(map(_speaks_tls, self.cluster.bootstrap_brokers())):
            return None
        better = "SASL_SSL" if "SASL" in protocol else "SSL, or SASL_SSL with a login"
        return TlsRefused(
            f"this port speaks TLS, and security.protocol is {protocol}",
            f"Write security.protocol: {better}, under source.kafka.",
        )

    def _explained(self) -> KafkaError | None:
        """Why no broker answered, as far as it is known."""
        protocol, failure = self.config["security_protocol"], self._failure
        if failure is None:
            return None
        if "SSL" in protocol:
            tls = tls_error(failure)
            if tls is not None:
                reason = f"the TLS handshake fails: {tls.reason or type(tls).__name__}"
                return NoConnection(
                    reason, f"security.protocol: {protocol} needs a port with TLS. Does this one have it?"
                )
        if _ended(failure):
            if "SASL" in protocol and not self._cut_off:
                mechanism = self.config["sasl_mechanism"]
                return NoConnection(
                    "the broker ends the connection during the login",
                    f"Does this port offer sasl.mechanism: {mechanism}, and does the broker know the user?",
                )
            if self._cut_off and "SASL" not in protocol:
                return NoConnection(
                    "the broker ends the connection at the first request",
                    "Does this port require a login? Then write security.protocol: SASL_SSL and sasl.mechanism.",
                )
        return NoConnection(f"{type(failure).__name__}: {failure}".split("KafkaConnectionError: ")[-1], "")


def _ended(error: BaseException) -> bool:
    return isinstance(error, KafkaConnectionError) and "disconnected" in str(error)


def tls_error(error: BaseException) -> ssl.SSLError | None:
    """The TLS error inside ``error``: kafka-python keeps it as an argument, or only as the context."""
    found = (error, error.__cause__, error.__context__, *error.args)
    return next((each for each in found if isinstance(each, ssl.SSLError)), None)


def _refusal(error: BaseException, mechanism: str | None) -> KafkaError | None:
    """The error if a retry can't help. None if it may."""
    tls = tls_error(error)
    if isinstance(tls, ssl.SSLCertVerificationError):
        hint = (
            "The certificate is for other names than those in bootstrap.servers or the broker's advertised.listeners. "
            'source.kafka: ssl.endpoint.identification.algorithm: "" trusts any name.'
            if "mismatch" in tls.verify_message
            else "The broker needs a new certificate."
            if "expired" in tls.verify_message
            else "source.kafka: ssl.truststore.location must contain the certificate of the authority that signed the "
            "broker's certificate."
        )
        return TlsRefused(f"the broker's certificate isn't accepted: {tls.verify_message.rstrip('.')}", hint)
    if tls is not None and "ALERT" in (tls.reason or ""):
        reason = (tls.reason or "").replace("_", " ").lower()
        return TlsRefused(
            f"the broker refuses this client: {reason}",
            "It may require a client certificate, source.kafka: ssl.keystore.location, of an authority that it trusts.",
        )
    if isinstance(error, SaslAuthenticationFailedError):
        said = str(error.args[0]).removeprefix("SaslAuthenticationFailedError: ") if error.args else "no reason given"
        return LoginRefused(
            f"the login by {mechanism} failed: {said}",
            "Check sasl.mechanism, sasl.username, sasl.password and the other login options under source.kafka.",
        )
    if isinstance(error, UnsupportedSaslMechanismError):
        return LoginRefused(f"it has no login by {mechanism}", "Write another sasl.mechanism under source.kafka.")
    if isinstance(error, IllegalSaslStateError):
        return LoginRefused(
            "this port requires no login", "Write security.protocol: PLAINTEXT or SSL, under source.kafka."
        )
    if isinstance(error, OSError) or (isinstance(error, KafkaError) and not isinstance(error, KafkaConfigurationError)):
        return None
    # The login failed on this side. Its message isn't shown, because it may come from any library.
    return LoginRefused(f"no connection can be set up ({type(error).__name__})", _HINTS.get(mechanism or "", ""))


_HINTS = {
    "AWS_MSK_IAM": "AWS_MSK_IAM needs AWS credentials and a region, as in AWS_PROFILE and AWS_DEFAULT_REGION.",
    "GSSAPI": "GSSAPI needs the Python package gssapi, and a ticket.",
}


def _speaks_tls(broker: Any) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection((broker.host, broker.port), _PROBE_SECONDS) as plain:
            with context.wrap_socket(plain):
                return True
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except OSError:
        return False


class _NoLogins(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        arguments = record.args if isinstance(record.args, tuple) else ()
        return not any(
            isinstance(each, (bytes, bytearray, memoryview)) or type(each).__name__.startswith("Sasl")
            for each in arguments
        )


for _name in ("kafka.net.connection", "kafka.protocol.parser"):
    logging.getLogger(_name).addFilter(_NoLogins())
read_any_header_name()
