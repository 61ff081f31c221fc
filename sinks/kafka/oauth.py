"""Tokens for OAUTHBEARER by OAuth 2's client credentials grant (RFC 6749, section 4.4), as in Kafka's Java client."""

from __future__ import annotations

import base64
import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from sinks.kafka.login import OAuth

_TIMEOUT_SECONDS = 10.0
_RENEWED_AFTER = 0.8
"""The share of a token's lifetime after which it is renewed, as in Java."""


def token_provider(client: OAuth) -> Any:
    """A token provider for kafka-python's ``sasl_oauth_token_provider``."""
    from kafka.errors import KafkaConnectionError, SaslAuthenticationFailedError
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Tokens(AbstractTokenProvider):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self._lock = threading.Lock()
            self._token, self._until = "", 0.0

        def token(self) -> str:
            """A valid token. Raises SaslAuthenticationFailedError or KafkaConnectionError."""
            with self._lock:
                if time.monotonic() >= self._until:
                    try:
                        self._token, lasts = fetch(client)
                    except urllib.error.HTTPError as error:
                        refusal = SaslAuthenticationFailedError if error.code < 500 else KafkaConnectionError
                        raise refusal(f"the token endpoint answers {error.code} {error.reason}") from None
                    except (OSError, ValueError) as error:
                        raise KafkaConnectionError(
                            f"the token endpoint gives no token ({type(error).__name__})"
                        ) from None
                    self._until = time.monotonic() + _RENEWED_AFTER * lasts
                return self._token

    return Tokens()


def fetch(client: OAuth) -> tuple[str, float]:
    """Fetch a token, and the number of seconds that it is valid. Raises OSError or ValueError."""
    if urllib.parse.urlsplit(client.endpoint).scheme not in ("http", "https"):
        raise ValueError("no http(s) URL")
    identity = base64.b64encode(f"{client.client_id}:{client.client_secret}".encode()).decode()
    form = {"grant_type": "client_credentials", **({"scope": client.scope} if client.scope else {})}
    request = urllib.request.Request(
        client.endpoint,
        urllib.parse.urlencode(form).encode(),
        {"Authorization": f"Basic {identity}", "Accept": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:
        found = json.load(answer)
    if not isinstance(found, dict) or not isinstance(found.get("access_token"), str):
        raise ValueError("no access_token")
    return found["access_token"], float(found.get("expires_in", 60))
