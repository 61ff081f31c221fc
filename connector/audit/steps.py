"""What the ``steps`` of a pipeline file make of decoded records, made without the pipeline's code."""

from __future__ import annotations

import hmac
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from connector.audit import exact_json
from connector.audit.records import PLACE, PROBLEM, RAW, TOMBSTONE, Records
from connector.audit.values import Default
from connector.config import Step
from connector.spark.compat import type_from_ddl
from sinks.errors import ConfigurationError
from sinks.spark.sql import identifier, literal
from sinks.spark.types import is_utf8

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructField

_HEADERS = "lakelock_headers"
"""Kafka's headers, until a step has read them."""
_OP = "_op"
_WRONG = "step"


@dataclass(frozen=True)
class _Made:
    """A column after a step, and whether a record has a value that the step can't take; None: it takes any."""

    name: str
    value: Column
    wrong: Column | None = None


def with_headers(records: DataFrame, steps: Sequence[Step]) -> tuple[DataFrame, Sequence[str]]:
    """The records of Kafka, and the names of the columns that ``decoded`` has to keep for the steps."""
    if not any(step.header is not None for step in steps):
        return records, ()
    return records.withColumn(_HEADERS, records["headers"]), [_HEADERS]


def stepped(every: Records, steps: Sequence[Step], truncates: str) -> Records:
    """The records after the steps, those that a step can't take with a problem. What a filter leaves out is only
    ``left_out``.

    ``truncates``: SQL, whether the table of a record takes Debezium's truncates, which a filter then keeps. Raises
    ConfigurationError.
    """
    for index, step in enumerate(steps):
        for name in step.takes:
            if name not in every.columns.names:
                raise ConfigurationError(f"steps[{index}].{step.kind}: {name} isn't a column here.")
        if step.filter is not None:
            stays = f"coalesce({_stays(every.columns.names, step.filter, truncates)}, false)"
            every = replace(every, frame=every.frame.where(stays), left_out=_left_out(every, f"NOT {stays}"))
        else:
            defaults = _defaults(step, every)
            every = replace(_with(every, list(_made(step, every.columns.fields))), defaults=defaults)
    return replace(every, frame=every.frame.drop(_HEADERS)) if steps else every


def _left_out(every: Records, condition: str) -> DataFrame | None:
    """The records that filters have left out, with those of this one."""
    if RAW not in every.frame.columns:
        return every.left_out
    these = every.frame.where(condition).select(*PLACE, RAW)
    return these if every.left_out is None else every.left_out.unionByName(these)


def _stays(columns: Sequence[str], condition: str, truncates: str) -> str:
    delete = f"{TOMBSTONE} OR {_OP} <=> 'd' OR ({_OP} <=> 't' AND {truncates})" if _OP in columns else TOMBSTONE
    return f"{PROBLEM} IS NOT NULL OR {delete} OR ({condition})"


def _with(every: Records, columns: Sequence[_Made]) -> Records:
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    problem = F.col(PROBLEM)
    for made in columns:
        if made.wrong is not None:
            problem = F.coalesce(problem, F.when(made.wrong, _WRONG))
    others = [name for name in every.frame.columns if name not in every.columns.names and name != PROBLEM]
    names = [made.name for made in columns]
    frame = every.frame.select(
        *(made.value.alias(made.name) for made in columns), *map(F.col, others), problem.alias(PROBLEM)
    )
    return replace(every, frame=frame, columns=StructType([part for part in frame.schema if part.name in names]))


def _defaults(step: Step, every: Records) -> dict[str, Default]:
    """The defaults by the paths after the step. What it hashes isn't the default any more."""
    found: dict[str, Default] = {}
    for path, default in every.defaults.items():
        column, dot, inner = path.partition(".")
        if column not in step.option or step.kind == "cast":
            found[path] = default
        elif step.kind == "rename":
            found[f"{step.option[column]}{dot}{inner}"] = default
        elif step.kind == "flatten":
            for name, each in _flat_defaults(column, every.columns[column].dataType, inner, default):
                there = found.get(name)
                found[name] = each if there is None else there._replace(others=(*there.others, each))
    return found


def _flat_defaults(name: str, kind: DataType, inner: str, default: Default) -> Iterator[tuple[str, Default]]:
    """The default at a path inside of a STRUCT that is flattened. What is in an ARRAY or a MAP keeps its path."""
    from pyspark.sql.types import StructType

    while inner and isinstance(kind, StructType):
        part, _, inner = inner.partition(".")
        name, kind = f"{name}_{part}", kind[part].dataType
    if inner:
        yield f"{name}.{inner}", default
    else:
        yield from _of_fields(name, kind, json.loads(default.json)["v"], default.path)


def _of_fields(name: str, kind: DataType, value: Any, path: str) -> Iterator[tuple[str, Default]]:
    """The default of each column that a STRUCT's default gives."""
    from pyspark.sql.types import StructType

    if value is None:
        return
    if not isinstance(kind, StructType):
        yield name, Default(path, json.dumps({"v": value}))
        return
    for part in kind:
        yield from _of_fields(f"{name}_{part.name}", part.dataType, value.get(part.name), path)


def _same(part: StructField) -> _Made:
    from pyspark.sql import functions as F

    return _Made(part.name, F.col(identifier(part.name)))


def _each(step: Step, columns: Sequence[StructField]) -> Iterator[_Made]:
    """The columns of a step that changes those that it names."""
    made = {"mask": _hash, "cast": _cast, "flatten": _fields}[step.kind]
    for part in columns:
        yield from made(step, part) if part.name in step.option else [_same(part)]


def _hash(step: Step, part: StructField) -> Iterator[_Made]:
    from pyspark import cloudpickle
    from pyspark.sql import functions as F

    assert step.salt is not None
    # The executors of a cluster may not have this package.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    salt = step.salt.get_secret_value().encode()
    hashed = F.udf(partial(hash_of, salt), "string", useArrow=False)  # else PySpark warns: it looks for type hints
    value = identifier(part.name)
    # Unlike CAST, it writes a DECIMAL without an exponent in any session.
    content = value if part.dataType.typeName() == "binary" else f"CAST(try_cast({value} AS STRING) AS BINARY)"
    yield _Made(part.name, hashed(F.expr(content)))


def hash_of(salt: bytes, content: bytes | bytearray | None) -> str | None:
    """What ``mask`` makes of a value."""
    return None if content is None else hmac.new(salt, bytes(content), "sha256").hexdigest()


def _fields(_: Step, part: StructField) -> Iterator[_Made]:
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    whole = [(part.name, F.col(identifier(part.name)), part.dataType)]
    while whole:
        name, value, kind = whole.pop(0)
        if isinstance(kind, StructType):
            whole = [(f"{name}_{each.name}", value[each.name], each.dataType) for each in kind] + whole
        else:
            yield _Made(name, value)


def _cast(step: Step, part: StructField) -> Iterator[_Made]:
    """The auditor is no stricter than the pipeline: a record that a cast would change is a bad one for both, and where
    only the pipeline finds it bad, its letter is believed."""
    from pyspark.sql import functions as F

    name = identifier(part.name)
    value = exact_json.cast(part.dataType, type_from_ddl(step.option[part.name]), name)
    if value is None:
        raise ConfigurationError(f"steps: {part.name} has no exact {step.option[part.name]}.")
    yield _Made(part.name, F.expr(value), F.expr(f"{name} IS NOT NULL AND ({value}) IS NULL"))


def _of_headers(step: Step) -> Iterator[_Made]:
    from pyspark.sql import functions as F

    for name, header in step.option.items():
        named = f"filter({_HEADERS}, each -> each.key = {literal(header)}).value"
        sent = F.expr(f"IF(size({named}) > 0, {named}[size({named}) - 1], NULL)")
        sound = F.expr(is_utf8(f"IF(size({named}) > 0, {named}[size({named}) - 1], NULL)"))
        yield _Made(name, sent.cast("string"), ~F.coalesce(sound, F.lit(True)))


def _constants(step: Step) -> Iterator[_Made]:
    from pyspark.sql import functions as F

    for name, value in step.option.items():
        whole = isinstance(value, int) and not isinstance(value, bool)
        yield _Made(name, F.lit(value).cast("bigint") if whole else F.lit(value))


def _made(step: Step, columns: Sequence[StructField]) -> Iterator[_Made]:
    """The columns that a step leaves."""
    if step.kind in ("mask", "cast", "flatten"):
        yield from _each(step, columns)
        return
    for part in columns:
        if part.name not in (step.drop or ()):
            yield replace(_same(part), name=(step.rename or {}).get(part.name, part.name))
    yield from _of_headers(step) if step.header else _constants(step) if step.add else ()
