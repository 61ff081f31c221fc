"""Which columns of a table the auditor takes for narrower ones of what the file declares: by a rule of its own."""

from __future__ import annotations

import pytest
from pyspark.sql.types import DataType, DecimalType, DoubleType, FloatType, IntegerType, LongType, ShortType, StringType

from connector.audit.grown import _fits


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        (IntegerType(), LongType()),
        (ShortType(), IntegerType()),
        (FloatType(), DoubleType()),
        (DecimalType(10, 2), DecimalType(12, 4)),
        (DecimalType(10, 2), DecimalType(12, 2)),
    ],
)
def test_what_loses_nothing(narrow: DataType, wide: DataType) -> None:
    assert _fits(narrow, wide)
    assert not _fits(wide, narrow)


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        (IntegerType(), DoubleType()),
        (LongType(), FloatType()),
        (StringType(), LongType()),
        (LongType(), StringType()),
        (DecimalType(10, 2), DecimalType(10, 4)),
        (DecimalType(12, 4), DecimalType(14, 2)),
    ],
)
def test_what_stays_different(narrow: DataType, wide: DataType) -> None:
    assert not _fits(narrow, wide)
