"""A pipeline's file as it is, without secrets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from connector.config import file_and_part, options_in
from connector.config.masked import without_secrets
from sinks.errors import LakelockError


def text_of(file: str, overrides: Sequence[str] = ()) -> str | None:
    """The options of a pipeline file as YAML, without secrets. None: it can't be read.

    ``file`` may name a part of it, as ``FILE#PART``.
    """
    try:
        return without_secrets(options_in(Path(file_and_part(file)[0]), overrides))
    except (LakelockError, RecursionError):  # YAML can hold itself
        return None
