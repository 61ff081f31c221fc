"""Lets kafka-python read headers whose names aren't UTF-8, as Kafka's Java client does.

On the wire a name is bytes, and producers in C, C++ or Go write any. kafka-python has no option for it: it takes the
whole record for a corrupt one.
"""

from __future__ import annotations

from functools import wraps
from typing import Any


class _Name(bytes):
    def decode(self, encoding: str = "utf-8", errors: str = "replace") -> str:
        return super().decode(encoding, errors)


class _Lenient(bytearray):
    """The bytes of a batch of records. kafka-python decodes no part of them but the names of headers."""

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        return _Name(found) if isinstance(at, slice) else found


def read_any_header_name() -> None:
    """Replace what isn't UTF-8 in the names of headers, in all records that kafka-python reads in this process.

    The records before such a name in a batch are read as fast as ever. Does nothing to a kafka-python that reads
    records in another way.
    """
    from kafka.record.default_records import DefaultRecordBatch

    strict = getattr(DefaultRecordBatch, "_read_msg", None)
    if strict is None or hasattr(strict, "__wrapped__"):
        return

    @wraps(strict)
    def lenient(batch: Any, *args: Any, **options: Any) -> Any:
        try:
            return strict(batch, *args, **options)
        except UnicodeDecodeError:
            if isinstance(batch._buffer, _Lenient):
                raise
            # The place in the batch has not moved, as the record wasn't read to its end.
            batch._buffer = _Lenient(batch._buffer)
            return strict(batch, *args, **options)

    DefaultRecordBatch._read_msg = lenient
