"""Checks now and then that the declared fields are in the records: see ``connector.decode.unmatched``."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from connector.config import DebeziumFormat, JsonFormat, PipelineConfig
from connector.decode.unmatched import IMAGES, WHOLE, counted, in_sample
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
        if epoch.ranges and time.monotonic() >= self._next:
            for warning in self.look(epoch.ranges, first=epoch.expected is None):
                log.warning("%s", warning)
            self._next = time.monotonic() + _EVERY

    def look(self, ranges: Sequence[OffsetRange], *, first: bool) -> list[str]:
        """Warnings about these records. ``first``: whether the table has none yet. Raises SchemaMismatch."""
        declared = _declared(self.config)
        if declared is None:
            return []
        schema, roots, permissive = declared
        found = in_sample(self.sample(ranges), schema, roots)
        strict = self.config.unmatched or ("fail" if first else "")
        # Only strict JSON can be searched for the names of all records.
        fatal = [each for each in found if each.countable and strict == "fail" and not permissive]
        gone = counted(self.read(ranges), fatal, roots) if fatal else []
        if gone:
            told = "\n".join(f"  - {each.told('of this epoch')}" for each in gone)
            raise SchemaMismatch(f"value.schema doesn't fit the records; nothing was written:\n{told}", hint=_HINT)
        # A field that is merely rare is no news to a run that comes every hour.
        told_of = [each for each in found if each not in fatal and (strict or each.meant is not None)]
        return [f"value.schema: {each.told(f'of the {each.among:,} looked at')}" for each in told_of]


def _declared(config: PipelineConfig) -> tuple[StructType, Sequence[str], bool] | None:
    """The fields that the pipeline file declares of JSON values, where these are, and whether the mode is permissive.

    None if it declares none.
    """
    from pyspark.sql.types import StructType

    value = config.value
    if not isinstance(value, JsonFormat | DebeziumFormat) or value.schema_ is None:
        return None
    schema = from_ddl(value.schema_)
    assert isinstance(schema, StructType)
    return schema, WHOLE if isinstance(value, JsonFormat) else IMAGES, value.mode == "permissive"
