"""Classes of the user's own that a pipeline file names, as module:Class."""

from __future__ import annotations

import pkgutil

from sinks.errors import ConfigurationError


def own_class(option: str, place: str) -> type:
    """``option``: that names it, for errors. Raises ConfigurationError."""
    try:
        found = pkgutil.resolve_name(place)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(
            f"{option}: {place} can't be imported: {error}.",
            hint="It has to be installed where the run is, or in a folder that PYTHONPATH names.",
        ) from None
    if not isinstance(found, type):
        raise ConfigurationError(f"{option}: {place} is no class.")
    return found
