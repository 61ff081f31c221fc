"""Schema registries, which have the schema of each record. Only the driver asks, once per ID in a run."""

from __future__ import annotations

from connector.config.registry import GlueRegistry, RegistryOptions
from connector.decode.registry.registry import Registry


def opened(options: RegistryOptions) -> Registry:
    """A registry for these options. It sends no request yet."""
    from connector.decode.registry.confluent import Confluent
    from connector.decode.registry.glue import Glue

    return Glue(options.glue) if isinstance(options, GlueRegistry) else Confluent(options)
