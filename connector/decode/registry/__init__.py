"""Schema registries: which schema a record was written with. Asked on the driver alone, once for each id in a run."""

from __future__ import annotations

from connector.config.registry import GlueRegistry, RegistryOptions
from connector.decode.registry.registry import Registry


def opened(options: RegistryOptions) -> Registry:
    """Nothing is asked yet."""
    from connector.decode.registry.confluent import Confluent
    from connector.decode.registry.glue import Glue

    return Glue(options.glue) if isinstance(options, GlueRegistry) else Confluent(options)
