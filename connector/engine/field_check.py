"""Checks now and then that the declared fields are in the records: see ``connector.decode.unmatched``."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from connector.config import DebeziumFormat, JsonFormat, PipelineConfig
from connector.decode.unmatched import IMAGES, WHOLE, Unmatched, counted, in_sample
from connector.spark.compat import from_ddl
from sinks.contract import Epoch
from sinks.errors import SchemaMismatch
from sinks.offsets import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_EVERY = 600.0
"""Seconds. A producer may rename a field while a run goes on."""
_HINT = (
    "Correct value.schema. If the records may lack the field for now, write unmatched: warn. Then its column is null."
)
log = logging.getLogger("lakelock.decode")

Sample = Callable[[Sequence[OffsetRange]], Iterable[bytes | None]]
"""A few values of each range, from its start."""


@dataclass
class FieldCheck:
    """Checks the first epoch of a run, and later ones at intervals."""

    config: PipelineConfig
    sample: Sample
    read: Callable[[Sequence[OffsetRange]], DataFrame]
    """Reads all records of the ranges."""
    _next: float = field(default=0.0, init=False)

    def __call__(self, epoch: Epoch) -> None:
        """Raises SchemaMismatch as the option ``unmatched`` says, else it warns."""
        if not epoch.ranges or time.monotonic() < self._next:
            return
        declared = declared_fields(self.config)
        if declared is None:
            return
        schema, roots = declared
        found = in_sample(self.sample(epoch.ranges), schema, roots)
        strict = self.config.unmatched or ("fail" if epoch.expected is None else "")
        fatal = [each for each in found if each.countable] if strict == "fail" and not _permissive(self.config) else []
        if fatal:
            gone = counted(self.read(epoch.ranges), fatal, roots)
            if gone:
                told = "\n".join(f"  - {each.told('of this epoch')}" for each in gone)
                raise SchemaMismatch(f"value.schema doesn't fit the records; nothing was written:\n{told}", hint=_HINT)
        for each in found:
            # A field that is merely rare is no news to a run that comes every hour.
            if each not in fatal and (strict or each.meant is not None):
                log.warning("value.schema: %s", each.told(f"of the {each.among:,} looked at"))
        self._next = time.monotonic() + _EVERY


def declared_fields(config: PipelineConfig) -> tuple[StructType, Sequence[str]] | None:
    """The fields that the pipeline file declares of JSON values, and where these are. None if it declares none."""
    from pyspark.sql.types import StructType

    if not isinstance(config.value, JsonFormat | DebeziumFormat) or config.value.schema_ is None:
        return None
    schema = from_ddl(config.value.schema_)
    assert isinstance(schema, StructType)
    return schema, WHOLE if isinstance(config.value, JsonFormat) else IMAGES


def unmatched_in(config: PipelineConfig, values: Iterable[bytes | None]) -> list[Unmatched]:
    """The declared fields that none of these values has."""
    declared = declared_fields(config)
    return in_sample(values, *declared) if declared is not None else []


def _permissive(config: PipelineConfig) -> bool:
    return isinstance(config.value, JsonFormat | DebeziumFormat) and config.value.mode == "permissive"
