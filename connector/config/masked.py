"""A pipeline file as everybody may see it: without comments, and without what may be a secret."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from connector.config.secret_places import OF_CUSTOM_SINK, SALT, STEPS, WEBHOOK, in_pipeline
from sinks.kafka import SECRET

HIDDEN = "(hidden)"
_REFERENCES = re.compile(r"(\$\{(env|file):[^}]*\})+")
_NAMED = re.compile(
    r"(?i)\b([\w.-]*(?:password|passwd|passphrase|secret|token|api[._-]?key|access[._-]?key|signature|credential)[\w.-]*"
    r"""["']?\s*[=:]\s*)("[^"]*"|'[^']*'|[^\s&;,]+)"""
)
_OTHER_SECRETS = re.compile(r"(?i)(api[._-]?key|access[._-]?key([._-]?id)?|credentials?|signature|authorization)$")
_LOGIN = re.compile(r"(://)[^/@\s]+@")


def without_secrets(options: object) -> str:
    """The options as YAML. A file that a run would refuse, for it has a secret, is shown without the secret too.

    ``${env:NAME}`` and ``${file:/path}`` are shown: they only name a secret.
    """
    return yaml.safe_dump(_masked(options), sort_keys=False, allow_unicode=True, width=100)


def _masked(value: object, path: tuple[str, ...] = ()) -> Any:
    if isinstance(value, Mapping):
        return {hidden_login(str(key)): _masked(item, (*path, str(key))) for key, item in value.items()}
    if isinstance(value, list):
        return [_masked(item, path) for item in value]
    if path and names_secret(path):
        return value if isinstance(value, str) and _REFERENCES.fullmatch(value) else HIDDEN
    return hidden_login(value) if isinstance(value, str) else value


def names_secret(path: tuple[str, ...]) -> bool:
    """Whether the option at this path may hold a secret: by its name, or as only a custom sink knows what it is."""
    own = tuple(part for part in in_pipeline(path) if not isinstance(part, int))
    return (
        own == WEBHOOK
        or own[:2] == OF_CUSTOM_SINK
        or path[-2:] == (STEPS, SALT)
        or any(SECRET.search(part) or _OTHER_SECRETS.search(part) for part in path)
    )


def hidden_login(text: str) -> str:
    """A text without credentials of URLs in it, and without values of what is called a password or the like."""
    return _NAMED.sub(lambda found: found[1] + HIDDEN, _LOGIN.sub(rf"\1{HIDDEN}@", text))
