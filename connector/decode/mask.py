"""HMAC-SHA-256 (RFC 2104) in Spark SQL, without its key in any plan, log or SQL text.

HMAC(key, text) = H(outer || H(inner || text)), where inner and outer are the key, filled up to a block of 64 bytes, XOR
0x36 and 0x5c. Both are rows of a temporary view, which plans show by its name only.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING

from connector.spark.compat import local_table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_BLOCK = 64


def _view(salt: str) -> str:
    """A view for each salt: Spark Connect looks a view up whenever it is used, and pipelines may share a session."""
    return f"lakelock_mask_{hmac.digest(salt.encode(), b'lakelock view', 'sha256').hex()[:16]}"


def key_of_mask(spark: SparkSession, salt: str) -> None:
    """Make the view that ``hashed`` reads."""
    key = salt.encode()
    key = (hashlib.sha256(key).digest() if len(key) > _BLOCK else key).ljust(_BLOCK, b"\0")
    inner, outer = (bytes(byte ^ pad for byte in key) for pad in (0x36, 0x5C))
    made = local_table(spark, [(inner, outer)], "inner BINARY, outer BINARY", _in_arrow())
    made.createOrReplaceTempView(_view(salt))


def _in_arrow() -> pa.Schema:
    import pyarrow as pa

    return pa.schema([("inner", pa.binary()), ("outer", pa.binary())])


def hashed(content: str, salt: str) -> str:
    """SQL of the hash of ``content``, SQL of a BINARY, in hexadecimal digits. Null for null."""
    inner, outer = (f"(SELECT {name} FROM {_view(salt)})" for name in ("inner", "outer"))
    return f"sha2(concat({outer}, unhex(sha2(concat({inner}, {content}), 256))), 256)"
