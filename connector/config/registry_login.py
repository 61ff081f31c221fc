"""How to log in to a schema registry with Confluent's API, for all who ask one."""

from __future__ import annotations

import requests
from pydantic import SecretStr
from requests.auth import AuthBase, HTTPBasicAuth

from connector.config.registry import ConfluentRegistry


def logged_in(options: ConfluentRegistry) -> requests.Session:
    """A session that sends what the file gives, and trusts the authorities that it names."""
    session = requests.Session()
    session.auth, session.verify = _auth(options), options.ca or True
    return session


class _Bearer(AuthBase):
    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request


class _Nobody(AuthBase):
    """Sends no credentials. Without it `requests` would look for them in the user's .netrc."""

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        return request


def _auth(options: ConfluentRegistry) -> AuthBase:
    if options.token is not None:
        return _Bearer(options.token.get_secret_value())
    if options.username is not None and options.password is not None:
        name = options.username
        in_clear = name.get_secret_value() if isinstance(name, SecretStr) else name
        return HTTPBasicAuth(in_clear.encode(), options.password.get_secret_value().encode())
    return _Nobody()
